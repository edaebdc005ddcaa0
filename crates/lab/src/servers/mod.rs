//! The servers of a farm: a process of `balanza target` for each, or the user's own.

pub(crate) mod ask;

use std::ffi::OsString;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};

use crate::plan::{Farm, Server};
use crate::process::{Process, how};
use crate::record::{Role, ServerRecord};
use crate::target::{STATS_PATH, Stats};

/// How long a server may take until it listens.
const START_MAX: Duration = Duration::from_secs(10);

/// How long it may take to say what it has counted: it may be at work.
const STATS_MAX: Duration = Duration::from_secs(10);

/// The servers of a farm, in its order. The lab's own end when this is dropped.
#[derive(Debug)]
pub struct Servers(Vec<Running>);

/// One server.
#[derive(Debug)]
struct Running {
    name: String,
    address: SocketAddr,
    /// The lab's own: its process and where it says what it counts.
    own: Option<(Process, SocketAddr)>,
}

impl Servers {
    /// Starts them, each with a log in `logs` and a seed of its own, and waits until all listen.
    ///
    /// Errors: one does not start, with what it says; an address of the user's is not one.
    pub fn start(program: &Path, farm: &Farm, seed: u64, logs: &Path) -> anyhow::Result<Servers> {
        let mut started = Vec::new();
        let each = farm.servers.iter().flat_map(|server| server.names().into_iter().map(move |name| (name, server)));
        for (index, (name, server)) in each.enumerate() {
            let process = match &server.address {
                Some(_) => None,
                None => {
                    let command = command(program, server, &name, seed.wrapping_add(1 + index as u64));
                    Some(Process::spawn(&name, Role::Server, command, &logs.join(format!("server-{index}.log")))?)
                }
            };
            started.push((name, server, process));
        }
        let end = Instant::now() + START_MAX;
        let running = started.into_iter().map(|(name, server, process)| match process {
            None => Ok(Running { address: resolve(&name, server)?, name, own: None }),
            Some(mut process) => {
                let (address, counters) = introduction(&mut process, end)?;
                Ok(Running { name, address, own: Some((process, counters)) })
            }
        });
        Ok(Servers(running.collect::<anyhow::Result<Vec<Running>>>()?))
    }

    /// Their names.
    pub fn names(&self) -> Vec<String> {
        self.0.iter().map(|server| server.name.clone()).collect()
    }

    /// Where they listen.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.0.iter().map(|server| server.address).collect()
    }

    /// The processes of those that the lab has started.
    pub fn processes(&mut self) -> impl Iterator<Item = &mut Process> {
        self.0.iter_mut().filter_map(|server| server.own.as_mut().map(|(process, _)| process))
    }

    /// What the lab's own have counted so far.
    ///
    /// Errors: one does not answer.
    pub fn stats(&self) -> anyhow::Result<Vec<ServerRecord>> {
        let own = self.0.iter().filter_map(|server| server.own.as_ref().map(|(_, counters)| (server, *counters)));
        own.map(|(Running { name, .. }, counters)| {
            let stats = stats(counters).with_context(|| format!("{name} does not say what it has counted"))?;
            Ok(ServerRecord {
                name: name.clone(),
                requests: stats.requests,
                aborted: stats.aborted,
                in_flight_max: stats.max_in_flight,
                queued_max: stats.max_queued,
            })
        })
        .collect()
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        // All are told first: they end side by side.
        for process in self.processes() {
            process.terminate();
        }
    }
}

fn stats(counters: SocketAddr) -> anyhow::Result<Stats> {
    let answer = ask::ask(counters, "lab", STATS_PATH, None, STATS_MAX)?;
    if answer.status != 200 {
        bail!("status {}", answer.status);
    }
    Ok(serde_json::from_str(&answer.body)?)
}

fn command(program: &Path, server: &Server, name: &str, seed: u64) -> Command {
    let mut words: Vec<OsString> = vec!["target".into()];
    words.extend(["--listen", "127.0.0.1:0", "--control", "127.0.0.1:0", "--name", name].map(OsString::from));
    let arguments = server.arguments();
    if !arguments.iter().any(|argument| argument.starts_with("--seed")) {
        words.push(format!("--seed={seed}").into());
    }
    words.extend(arguments.into_iter().map(OsString::from));
    let mut command = Command::new(program);
    command.args(words);
    command
}

/// Waits for the line with which a server introduces itself.
fn introduction(process: &mut Process, end: Instant) -> anyhow::Result<(SocketAddr, SocketAddr)> {
    loop {
        let ended = process.ended();
        let output = process.output();
        if let Some(addresses) = output.split_inclusive('\n').find_map(addresses) {
            return Ok(addresses);
        }
        if let Some(status) = ended {
            return Err(said(process, format!("server {} has ended ({})", process.name(), how(status))));
        }
        if Instant::now() >= end {
            let seconds = START_MAX.as_secs();
            return Err(said(process, format!("server {} does not listen after {seconds} s", process.name())));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// `NAME, listening on 127.0.0.1:9001, counters on 127.0.0.1:9101: …`
fn addresses(line: &str) -> Option<(SocketAddr, SocketAddr)> {
    let line = line.strip_suffix('\n')?;
    let after = |words: &str| {
        let rest = &line[line.find(words)? + words.len()..];
        rest.split([' ', ',']).next()?.trim_end_matches(':').parse::<SocketAddr>().ok()
    };
    Some((after("listening on ")?, after("counters on ")?))
}

/// An error with what the process said last.
pub(crate) fn said(process: &Process, message: String) -> anyhow::Error {
    match process.last_output() {
        words if words.is_empty() => anyhow!("{message} and says nothing"),
        words => anyhow!("{message} and says:\n{words}"),
    }
}

fn resolve(name: &str, server: &Server) -> anyhow::Result<SocketAddr> {
    let address = server.address.as_deref().unwrap_or_default();
    let found = address.to_socket_addrs().with_context(|| format!("server {name}: {address} is no address"))?;
    let addresses: Vec<SocketAddr> = found.collect();
    let chosen = addresses.iter().find(|address| address.is_ipv4()).or(addresses.first());
    chosen.copied().ok_or_else(|| anyhow!("server {name}: {address} has no address"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::plan::Setting;
    use crate::target::Target;

    fn server(name: &str, count: u16, address: Option<&str>) -> Server {
        Server { name: name.into(), count, address: address.map(str::to_owned), target: BTreeMap::new() }
    }

    fn script(directory: &Path, text: &str) -> std::path::PathBuf {
        let path = directory.join("program");
        crate::process::script(&path, text);
        path
    }

    #[test]
    fn introductions() {
        let line = "web-1, listening on 127.0.0.1:9001, counters on 127.0.0.1:9101: fixed, serial\n";
        let expected = ("127.0.0.1:9001".parse().unwrap(), "127.0.0.1:9101".parse().unwrap());
        assert_eq!(addresses(line), Some(expected));
        assert_eq!(addresses("listening on 127.0.0.1:9001, counters on 127.0.0.1:9101: x\n"), Some(expected));
        assert_eq!(addresses(line.trim_end()), None, "the line is not whole yet");
        assert_eq!(addresses("web-1, listening on 127.0.0.1:9001: fixed\n"), None);
    }

    #[test]
    fn the_command_of_a_server() {
        let mut server = server("web", 1, None);
        server.target = [("backlog", Setting::Whole(128)), ("no-keep-alive", Setting::Flag(true))]
            .map(|(name, value)| (name.to_owned(), value))
            .into();
        let words = |server: &Server| {
            let command = command(Path::new("balanza"), server, "web-1", 7);
            command.get_args().map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
        };
        let begin = "target --listen 127.0.0.1:0 --control 127.0.0.1:0 --name web-1";
        assert_eq!(words(&server), format!("{begin} --seed=7 --backlog=128 --no-keep-alive"));
        server.target = BTreeMap::from([("seed".into(), Setting::Whole(3))]);
        assert_eq!(words(&server), format!("{begin} --seed=3"));
    }

    #[test]
    fn the_user_s_own_are_not_started() {
        let directory = tempfile::tempdir().unwrap();
        let farm = Farm { name: "mine".into(), servers: vec![server("a", 1, Some("localhost:8081"))] };
        let mut servers = Servers::start(Path::new("/no/such/program"), &farm, 1, directory.path()).unwrap();
        assert_eq!(servers.names(), ["a"]);
        assert_eq!(servers.addresses(), ["127.0.0.1:8081".parse().unwrap()]);
        assert_eq!(servers.processes().count(), 0);
        assert_eq!(servers.stats().unwrap(), []);
        let farm = Farm { name: "mine".into(), servers: vec![server("a", 1, Some("nonsense"))] };
        let error = Servers::start(Path::new("x"), &farm, 1, directory.path()).unwrap_err();
        assert!(error.to_string().contains("server a: nonsense is no address"), "{error}");
    }

    #[test]
    fn one_that_does_not_start_is_quoted() {
        let directory = tempfile::tempdir().unwrap();
        let farm = Farm { name: "two".into(), servers: vec![server("web", 2, None)] };
        let program = script(directory.path(), "echo 'no --backlog for you' >&2; exit 2");
        let error = Servers::start(&program, &farm, 1, directory.path()).unwrap_err().to_string();
        assert_eq!(error, "server web-1 has ended (exit status 2) and says:\nno --backlog for you");
    }

    /// A script introduces itself as a server that runs in this process, so counters are read as in an experiment.
    #[test]
    fn counters_are_the_server_s() {
        let directory = tempfile::tempdir().unwrap();
        let handle =
            Target { name: "web".into(), listen: ([127, 0, 0, 1], 0).into(), ..Target::default() }.spawn().unwrap();
        let address = handle.address();
        let line = format!("web, listening on {address}, counters on {address}: fixed");
        let program = script(directory.path(), &format!("echo '{line}'; exec sleep 600"));
        let farm = Farm { name: "one".into(), servers: vec![server("web", 1, None)] };
        let mut servers = Servers::start(&program, &farm, 1, directory.path()).unwrap();
        assert_eq!(servers.addresses(), [address]);
        for _ in 0..3 {
            let answer = ask::ask(address, "lab", "/", None, Duration::from_secs(20)).unwrap();
            assert_eq!((answer.status, answer.server.as_deref()), (200, Some("web")));
        }
        let [record] = &servers.stats().unwrap()[..] else { panic!("one server") };
        assert_eq!((record.name.as_str(), record.requests, record.in_flight_max), ("web", 3, 1));
        assert!(servers.processes().all(|process| process.ended().is_none()));
    }
}
