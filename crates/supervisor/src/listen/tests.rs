use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use balanza_config::model::Config;
use balanza_config::{Bundle, Options};
use nix::sys::socket::{getsockopt, sockopt};

use super::*;

/// The configuration with these `listen` directives.
fn listens(parameters: &str) -> Config {
    let mut files = Bundle::default();
    files.add_file("/t.conf", format!("events {{ }} http {{ server {{ {parameters} return 204; }} }}"));
    let (config, problems) = balanza_config::load(&files, &Options::new("/", "/t.conf"));
    config.unwrap_or_else(|| panic!("{problems:?}"))
}

fn wanted(config: &Config) -> Vec<Wanted<'_>> {
    config.sockets().collect()
}

/// A port that is free on every address: below those that the kernel gives to clients, one of which could take it
/// meanwhile, and beside those of the other tests that may run now.
fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let start = u16::try_from(std::process::id() % 160).unwrap() * 10;
    loop {
        let port = 31_000 + (start + NEXT.fetch_add(1, Ordering::Relaxed)) % 1_700;
        if TcpListener::bind(("0.0.0.0", port)).is_ok() {
            return port;
        }
    }
}

fn prepare(have: &Sockets, parameters: &str, threads: usize) -> Result<Sockets, Failed> {
    have.prepare(&wanted(&listens(parameters)), threads, Purpose::Serve, &Log::default())
}

/// Whether this comes true in less time than connections are deferred: on a busy machine the kernel, too, takes its time.
fn soon(mut what: impl FnMut() -> bool) -> bool {
    let begin = Instant::now();
    loop {
        let late = begin.elapsed() >= Duration::from_millis(500);
        let true_now = what();
        if true_now || late {
            return true_now;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn only(sockets: &Sockets) -> &[Rc<OwnedFd>] {
    assert_eq!(sockets.0.len(), 1);
    sockets.0.values().next().unwrap()
}

#[test]
fn every_thread_has_a_socket_and_all_of_them_get_connections() {
    let port = free_port();
    let sockets = prepare(&Sockets::default(), &format!("listen 127.0.0.1:{port};"), 4).unwrap();
    assert_eq!(only(&sockets).len(), 4);
    let clients: Vec<_> = (0..200).map(|_| TcpStream::connect(("127.0.0.1", port)).unwrap()).collect();
    let listeners: Vec<_> =
        only(&sockets).iter().map(|socket| TcpListener::from(socket.try_clone().unwrap())).collect();
    let mut accepted = [0; 4];
    let all = soon(|| {
        for (count, listener) in accepted.iter_mut().zip(&listeners) {
            *count += std::iter::from_fn(|| listener.accept().ok()).count();
        }
        accepted.iter().sum::<usize>() == clients.len()
    });
    assert!(all, "{accepted:?}");
    assert!(accepted.iter().all(|&count| count > 10), "{accepted:?}");
}

#[test]
fn a_port_in_use_is_noticed_whatever_its_user_allows() {
    // Someone else who has SO_REUSEPORT, as HAProxy does, and is even the same user.
    let other = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    other.set_reuse_address(true).unwrap();
    other.set_reuse_port(true).unwrap();
    other.bind(&"127.0.0.1:0".parse::<SocketAddr>().unwrap().into()).unwrap();
    other.listen(1).unwrap();
    let port = other.local_addr().unwrap().as_socket().unwrap().port();
    for address in [format!("127.0.0.1:{port}"), format!("0.0.0.0:{port}")] {
        let listens = listens(&format!("listen {address};"));
        let refused = Sockets::default().bind_all(&wanted(&listens)[0], 2).unwrap_err();
        assert_eq!((refused.call, refused.error.raw_os_error()), ("bind()", Some(libc::EADDRINUSE)), "{address}");
        let tested = Sockets::default().prepare(&wanted(&listens), 2, Purpose::Test, &Log::default()).unwrap();
        assert!(tested.is_empty());
    }
    // And our own sockets are in use for every other program.
    let port = free_port();
    let listen = format!("listen 127.0.0.1:{port};");
    let sockets = prepare(&Sockets::default(), &listen, 2).unwrap();
    assert!(Sockets::default().bind_all(&wanted(&listens(&listen))[0], 2).is_err());
    drop(sockets);
}

#[test]
fn sockets_stay_as_long_as_their_address() {
    let (one, two) = (free_port(), free_port());
    let first = prepare(&Sockets::default(), &format!("listen 127.0.0.1:{one};"), 2).unwrap();
    let text = format!("listen 127.0.0.1:{one}; listen 127.0.0.1:{two};");
    let second = prepare(&first, &text, 3).unwrap();
    let counts: Vec<_> = second.iter().map(|(_, sockets)| sockets.len()).collect();
    assert_eq!(counts, [3, 3]);
    let kept = &second.0[&ListenAddress::Inet(([127, 0, 0, 1], one).into())];
    assert!(only(&first).iter().all(|socket| kept.iter().any(|other| Rc::ptr_eq(socket, other))));
    let third = prepare(&second, &text, 1).unwrap();
    assert!(third.iter().all(|(_, sockets)| sockets.len() == 3));
    // A wildcard address may take over a port, which is its own already.
    let fourth = prepare(&third, &format!("listen {two};"), 1).unwrap();
    drop((first, second, third));
    assert!(TcpStream::connect(("127.0.0.1", one)).is_err());
    assert!(TcpStream::connect(("127.0.0.3", two)).is_ok());
    drop(fourth);
}

#[test]
fn options_are_set_on_every_socket_and_follow_a_reload() {
    let port = free_port();
    let parameters = "backlog=77 rcvbuf=16k sndbuf=32k deferred so_keepalive=30s:10s:4 fastopen=5";
    let sockets = prepare(&Sockets::default(), &format!("listen 127.0.0.1:{port} {parameters};"), 2).unwrap();
    for socket in only(&sockets) {
        let reference = SockRef::from(socket.as_ref());
        assert!(reference.is_listener().unwrap());
        assert!(reference.reuse_address().unwrap() && reference.reuse_port().unwrap());
        // The kernel doubles what is asked for, for its own needs.
        assert_eq!(reference.recv_buffer_size().unwrap(), 32768);
        assert_eq!(reference.send_buffer_size().unwrap(), 65536);
        assert!(reference.keepalive().unwrap());
        assert_eq!(reference.tcp_keepalive_time().unwrap(), Duration::from_secs(30));
        assert_eq!(getsockopt(socket, sockopt::TcpKeepInterval).unwrap(), 10);
        assert_eq!(getsockopt(socket, sockopt::TcpKeepCount).unwrap(), 4);
    }
    let listening = |port: u16| {
        let output = std::fs::read_to_string("/proc/net/tcp").unwrap();
        let local = format!("0100007F:{port:04X}");
        let lines = output.lines().filter(|line| line.contains(&local) && line.contains(" 0A "));
        // By inode: a line may be repeated while others connect.
        lines.map(|line| line.split_whitespace().nth(9)).collect::<std::collections::BTreeSet<_>>().len()
    };
    assert_eq!(listening(port), 2);

    // Deferred: a connection without data is not there yet.
    let listener = TcpListener::from(only(&sockets)[0].try_clone().unwrap());
    let other = TcpListener::from(only(&sockets)[1].try_clone().unwrap());
    let arrives = || listener.accept().is_ok() || other.accept().is_ok();
    let begin = Instant::now();
    let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    let before = arrives();
    // The kernel waits for the data for a second.
    assert!(!before || begin.elapsed() >= Duration::from_millis(900), "not deferred");
    client.write_all(b"x").unwrap();
    assert!(before || soon(arrives));

    let plain = prepare(&sockets, &format!("listen 127.0.0.1:{port};"), 2).unwrap();
    let _client = TcpStream::connect(("127.0.0.1", port)).unwrap();
    assert!(soon(arrives), "no longer deferred");
    drop(plain);
}

#[test]
fn both_families_can_have_a_port() {
    let port = free_port();
    let sockets = prepare(&Sockets::default(), &format!("listen {port}; listen [::]:{port};"), 2).unwrap();
    assert_eq!(sockets.iter().count(), 2);
    assert!(TcpStream::connect(("127.0.0.1", port)).is_ok());
    let names: Vec<_> = sockets.iter().map(|(address, _)| Shown(address).to_string()).collect();
    assert_eq!(names, [format!("0.0.0.0:{port}"), format!("[::]:{port}")]);
    for (name, (address, _)) in names.iter().zip(sockets.iter()) {
        assert_eq!(parse_shown(name).as_ref(), Some(address));
    }
}

#[test]
fn udp_has_a_socket_for_each_worker_beside_tcp() {
    let port = free_port();
    let address = ListenAddress::Udp(([127, 0, 0, 1], port).into());
    let options = listens(&format!("listen 127.0.0.1:{port};")).http.listens[0].options;
    let wanted = [(&address, &options, "place")];
    let sockets = Sockets::default().prepare(&wanted, 3, Purpose::Serve, &Log::default()).unwrap();
    assert_eq!(only(&sockets).len(), 3);
    assert_eq!(parse_shown(&Shown(&address).to_string()), Some(address.clone()));
    let tcp = prepare(&sockets, &format!("listen 127.0.0.1:{port};"), 1).unwrap();
    assert_eq!(tcp.iter().count(), 1, "TCP has ports of its own");
    // Another program cannot have the port, whatever it asks for but the option of this one.
    assert!(std::net::UdpSocket::bind(("127.0.0.1", port)).is_err());
    let mut inherited = Sockets::default();
    for socket in only(&sockets) {
        inherited.adopt(socket.try_clone().unwrap()).unwrap();
    }
    assert_eq!(inherited.iter().map(|(address, all)| (address.clone(), all.len())).collect::<Vec<_>>(), [(address, 3)]);
}

#[test]
fn files_of_unix_sockets_come_and_go() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s");
    let listen = format!("listen unix:{};", path.display());
    // Left over from someone who was killed.
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    let sockets = prepare(&Sockets::default(), &listen, 3).unwrap();
    assert_eq!(only(&sockets).len(), 1);
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o666);
    UnixStream::connect(&path).unwrap();
    // In use: refused, and not taken away.
    assert!(Sockets::default().bind_all(&wanted(&listens(&listen))[0], 1).is_err());
    UnixStream::connect(&path).unwrap();
    assert_eq!(
        parse_shown(&Shown(&ListenAddress::Unix(path.clone())).to_string()),
        Some(ListenAddress::Unix(path.clone()))
    );
    sockets.unlink_except(&sockets);
    assert!(path.exists());
    sockets.unlink_except(&Sockets::default());
    assert!(!path.exists());
    // A file that is not a socket must not be removed.
    std::fs::write(&path, "precious").unwrap();
    assert!(Sockets::default().bind_all(&wanted(&listens(&listen))[0], 1).is_err());
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
}

#[test]
fn inherited_sockets_are_known_by_their_address() {
    let port = free_port();
    let listen = format!("listen 127.0.0.1:{port};");
    let sockets = prepare(&Sockets::default(), &listen, 3).unwrap();
    let mut inherited = Sockets::default();
    for socket in only(&sockets) {
        inherited.adopt(socket.try_clone().unwrap()).unwrap();
    }
    let next = prepare(&inherited, &listen, 2).unwrap();
    assert_eq!(only(&next).len(), 3);
    let connected = TcpStream::connect(("127.0.0.1", port)).unwrap();
    assert!(inherited.adopt(connected.into()).is_err());
    assert!(inherited.adopt(std::fs::File::open("/dev/null").unwrap().into()).is_err());
}

#[test]
fn a_socket_of_another_program_gets_others_beside_it() {
    // As NGINX leaves it: without SO_REUSEPORT.
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let listen = format!("listen 127.0.0.1:{};", listener.local_addr().unwrap().port());
    let mut inherited = Sockets::default();
    inherited.adopt(listener.into()).unwrap();
    let next = prepare(&inherited, &listen, 3).unwrap();
    assert_eq!(only(&next).len(), 3);
}
