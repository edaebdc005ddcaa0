//! The lab's systems under test, really started in front of three servers.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use balanza_lab::plan::{Algorithm, System};
use balanza_lab::system::{self, Backend, Program, Programs, Running, Setup};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrIn, bind, connect, getsockname, socket};

/// This machine's programs, with the one that is tested here.
fn programs() -> Programs {
    let balanza = Program::ask(Path::new(env!("CARGO_BIN_EXE_balanza")), "balanza/");
    assert_eq!(balanza.version, env!("CARGO_PKG_VERSION"));
    let programs = Programs { balanza, ..Programs::find() };
    assert!(programs.nginx.is_some(), "NGINX is missing: apt-get install nginx");
    assert!(programs.haproxy.is_some(), "HAProxy is missing: apt-get install haproxy");
    programs
}

/// All that balance; with the module only where it is built, which tests/nginx-module is there for.
fn systems(programs: &Programs) -> Vec<System> {
    let mut systems = vec![System::Balanza, System::Nginx, System::Haproxy];
    match programs.caddy {
        Some(_) => systems.push(System::Caddy),
        None => eprintln!("without Caddy: apt-get install caddy"),
    }
    match programs.module {
        Some(_) => systems.push(System::NginxBalanza),
        None => eprintln!("without nginx+balanza: the module is not built"),
    }
    systems
}

fn algorithm(balance: &str, weights: &[u32]) -> Algorithm {
    let name = balance.to_owned();
    let (weights, servers, systems) = (weights.to_vec(), Vec::new(), Vec::new());
    Algorithm { name: name.clone(), balance: name, weights, servers, reaches: None, control: false, systems }
}

/// Three servers that say who they are, as long as the test program lives.
fn servers() -> Vec<(String, SocketAddr)> {
    ["a", "b", "c"].map(|name| (name.to_owned(), serve(name))).into()
}

fn serve(name: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || {
                let mut writer = stream.try_clone().unwrap();
                let mut lines = BufReader::new(stream).lines();
                // Each head ends with an empty line; the requests have no bodies.
                while lines.by_ref().map_while(Result::ok).any(|line| line.is_empty()) {
                    let answer = format!("HTTP/1.1 200 OK\r\nX-Server: {name}\r\nContent-Length: 0\r\n\r\n");
                    if writer.write_all(answer.as_bytes()).is_err() {
                        break;
                    }
                }
            });
        }
    });
    address
}

/// Status and server of the answer for a page.
fn ask(balancer: SocketAddr, page: usize) -> (u16, String) {
    talk(TcpStream::connect(balancer).unwrap(), page)
}

/// The same for a client with this address.
fn ask_from(source: Ipv4Addr, balancer: SocketAddr) -> (u16, String) {
    let socket = socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None).unwrap();
    bind(socket.as_raw_fd(), &SockaddrIn::from(SocketAddrV4::new(source, 0))).unwrap();
    let SocketAddr::V4(balancer) = balancer else { unreachable!("{balancer}") };
    connect(socket.as_raw_fd(), &SockaddrIn::from(balancer)).unwrap();
    talk(TcpStream::from(socket), 0)
}

fn talk(mut stream: TcpStream, page: usize) -> (u16, String) {
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let head = format!("GET /page/{page} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let status = answer.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0);
    let mut fields = answer.lines().filter_map(|line| line.split_once(": "));
    let server = fields.find(|(name, _)| name.eq_ignore_ascii_case("x-server"));
    (status, server.map(|(_, value)| value.to_owned()).unwrap_or_default())
}

/// Starts a system on a free port.
fn start(programs: &Programs, setup: &Setup<'_>, directory: &Path) -> Running {
    let mut tries = (0..5).map(|_| {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        system::start(programs, &Setup { port, ..setup.clone() }, directory)
    });
    // Somebody may have got the port meanwhile.
    let result = tries.find(|result| !result.as_ref().is_err_and(system::is_port_taken));
    result.unwrap().unwrap_or_else(|error| panic!("{error:?}"))
}

/// Starts a system with an algorithm and gives it to `ask`.
fn with<T>(
    system: &System,
    algorithm: &Algorithm,
    farm: &[(String, SocketAddr)],
    keep: bool,
    ask: impl Fn(SocketAddr) -> T,
) -> T {
    let programs = programs();
    let directory = tempfile::Builder::new().prefix("with space").tempdir().unwrap();
    let servers = system::backends(algorithm, farm).unwrap();
    let setup = Setup { system, algorithm, servers: &servers, port: 0, keep_alive: keep, workers: 1 };
    let mut running = start(&programs, &setup, &directory.path().join("run"));
    let result = ask(running.address());
    let process = running.process().unwrap();
    assert!(process.ended().is_none(), "{system} ended: {}", process.last_output());
    let address = running.address();
    assert!(!running.configuration().files.is_empty());
    running.stop();
    // Its last process may need a moment.
    let ended = (0..1000_u64).any(|look| {
        thread::sleep(Duration::from_millis(look.min(10)));
        TcpStream::connect(address).is_err()
    });
    assert!(ended, "{system} still listens");
    result
}

/// Who gets how many of 300 requests for 20 pages.
fn shares(system: &System, algorithm: &Algorithm, farm: &[(String, SocketAddr)], keep: bool) -> BTreeMap<String, u32> {
    let mut shares = BTreeMap::new();
    for (status, server) in
        with(system, algorithm, farm, keep, |at| (0..300).map(|i| ask(at, i % 20)).collect::<Vec<_>>())
    {
        assert_eq!(status, 200, "{system}, {}", algorithm.name);
        *shares.entry(server).or_default() += 1;
    }
    shares
}

#[test]
fn turns_are_in_proportion_to_the_weights() {
    let farm = servers();
    for (number, system) in systems(&programs()).iter().enumerate() {
        for keep in [true, false] {
            let counts = |balance, weights| {
                Vec::from_iter(shares(system, &algorithm(balance, weights), &farm, keep).into_values())
            };
            assert_eq!(counts("round_robin", &[]), [100, 100, 100], "{system}");
            if *system != System::Caddy {
                assert_eq!(counts("round_robin", &[2, 1, 1]), [150, 75, 75], "{system}");
            }
            if number == 0 {
                assert_eq!(counts("two_choices", &[]).iter().sum::<u32>(), 300);
            }
        }
    }
}

#[test]
fn hashes_keep_to_their_server() {
    let farm = servers();
    for system in &systems(&programs()) {
        let shares = shares(system, &algorithm("ip_hash", &[]), &farm, true);
        assert_eq!(Vec::from_iter(shares.into_values()), [300], "{system}: one address, one server");
        for balance in ["hash key=$request_uri", "hash key=$request_uri consistent"] {
            let asked = with(system, &algorithm(balance, &[]), &farm, true, |at| {
                // So many that each server gets some of them, whatever the ports that consistent hashing goes by.
                (0..3).map(|_| (0..40).map(|page| ask(at, page)).collect::<Vec<_>>()).collect::<Vec<_>>()
            });
            assert!(asked[0] == asked[1] && asked[1] == asked[2], "{system}, {balance}: {asked:?}");
            let mut of_pages: Vec<&str> = asked[0].iter().map(|(_, server)| server.as_str()).collect();
            of_pages.sort_unstable();
            of_pages.dedup();
            assert_eq!(of_pages, ["a", "b", "c"], "{system}, {balance}");
        }
    }
}

/// All go on to another server at once, so that a server that is gone costs none of them a request.
#[test]
fn a_server_that_is_gone_is_passed_over() {
    let mut farm = servers();
    // Bound, but not listening: it refuses, and no other program gets the port.
    let gone = socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None).unwrap();
    bind(gone.as_raw_fd(), &SockaddrIn::from(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0))).unwrap();
    farm[1].1 = getsockname::<SockaddrIn>(gone.as_raw_fd()).unwrap().into();
    for system in &systems(&programs()) {
        for keep in [true, false] {
            let shares = shares(system, &algorithm("round_robin", &[]), &farm, keep);
            assert_eq!(Vec::from_iter(shares.keys().map(String::as_str)), ["a", "c"], "{system}");
        }
    }
}

/// An algorithm with some of the servers only, and connections from many addresses.
#[test]
fn some_servers_and_many_addresses() {
    let farm = servers();
    let some = Algorithm { servers: vec!["c".into(), "a".into()], ..algorithm("least_conn", &[1, 1, 1]) };
    for system in &systems(&programs()) {
        let of_some = shares(system, &some, &farm, false);
        assert_eq!(Vec::from_iter(of_some.keys().map(String::as_str)), ["a", "c"], "{system}");
        let reached = with(system, &algorithm("ip_hash", &[]), &farm, true, |at| {
            let mut reached = Vec::from_iter((0..40).map(|i| ask_from([127, 1, i, 1].into(), at).1));
            reached.sort_unstable();
            reached.dedup();
            reached
        });
        assert_eq!(reached, ["a", "b", "c"], "{system}: 40 networks reach every server");
    }
}

/// Every algorithm of the registry that the lab gives to Balanza is read by it.
#[test]
fn balanza_reads_what_is_written_for_it() {
    let programs = programs();
    let servers = [81, 82].map(|port| Backend { name: "s".into(), address: ([127, 0, 0, 1], port).into(), weight: 1 });
    let text =
        String::from_utf8(Command::new(&programs.balanza.path).arg("algorithms").output().unwrap().stdout).unwrap();
    let names = text.lines().filter_map(|line| line.split(' ').next()).filter(|name| !name.is_empty());
    let mut forms: Vec<String> = names.filter(|name| *name != "hash").map(str::to_owned).collect();
    assert!(forms.len() > 20, "{forms:?}");
    forms.extend(
        ["hash key=$uri", "hash key=$uri consistent", "hash key=${uri};x balance_factor=150"].map(str::to_owned),
    );
    forms.extend(
        ["least_time by=last_byte inflight", "two_choices by=header", "external program=/bin/cat"].map(str::to_owned),
    );
    let mut read = 0;
    for (form, keep_alive) in forms.iter().flat_map(|form| [(form, true), (form, false)]) {
        let algorithm = algorithm(form, &[]);
        if system::supports(&programs, &System::Balanza, &algorithm, 2).is_err() {
            continue;
        }
        let setup = Setup {
            system: &System::Balanza,
            algorithm: &algorithm,
            servers: &servers,
            port: 8080,
            keep_alive,
            workers: 2,
        };
        let directory = tempfile::tempdir().unwrap();
        let (name, text) = &system::configuration(&programs, &setup).unwrap().files[0];
        std::fs::write(directory.path().join(name), text).unwrap();
        std::fs::create_dir(directory.path().join("temp")).unwrap();
        let mut test = Command::new(&programs.balanza.path);
        test.args(["-t", "-q", "-e", "stderr", "-c", name, "-p"]).arg(directory.path()).current_dir(directory.path());
        let output = test.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.is_empty(), "{form}: {said}\n{text}");
        read += 1;
    }
    assert!(read > 40, "{read}");
}
