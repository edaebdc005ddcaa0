//! The servers of a farm: a process of `balanza target` for each, or the user's own.

pub(crate) mod ask;
mod events;
mod own;

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};

use crate::plan::{Farm, Server};
use crate::ports;
use crate::process::Process;
use crate::record::ServerRecord;

use own::{Own, Recipe};

/// How long a server may take until it listens.
const START_MAX: Duration = Duration::from_secs(10);

/// The servers of a farm, in its order. The lab's own end when this is dropped.
#[derive(Debug)]
pub struct Servers(Vec<Running>);

/// One server.
#[derive(Debug)]
struct Running {
    name: String,
    address: SocketAddr,
    /// The lab's own.
    own: Option<Own>,
}

impl Servers {
    /// Starts them, each with a log in `logs` and a seed of its own, and waits until all listen.
    ///
    /// Errors: one does not start, with what it says; an address of the user's is not one.
    pub fn start(program: &Path, farm: &Farm, seed: u64, logs: &Path) -> anyhow::Result<Servers> {
        let mut started = Vec::new();
        for (index, (name, server)) in farm.each().enumerate() {
            let own = match &server.address {
                Some(_) => None,
                None => {
                    // The kernel gives the ports that it chooses to clients as well: a server that comes back needs its own.
                    let port = if farm.events.is_empty() { 0 } else { ports::free()? };
                    let recipe = Recipe {
                        program: program.to_owned(),
                        server: server.clone(),
                        name: name.clone(),
                        seed: seed.wrapping_add(1 + index as u64),
                        log: logs.join(format!("server-{index}.log")),
                    };
                    Some(Own::start(recipe, ([127, 0, 0, 1], port).into())?)
                }
            };
            started.push((name, server, own));
        }
        let end = Instant::now() + START_MAX;
        let running = started.into_iter().map(|(name, server, own)| match own {
            None => Ok(Running { address: resolve(&name, server)?, name, own: None }),
            Some(mut own) => {
                while !own.listens()? {
                    if Instant::now() >= end {
                        let seconds = START_MAX.as_secs();
                        return Err(own.said(format!("server {name} does not listen after {seconds} s")));
                    }
                    std::thread::sleep(Duration::from_millis(5));
                }
                Ok(Running { name, address: own.address, own: Some(own) })
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

    /// The processes of those that the lab has started, without those that are away by plan.
    pub fn processes(&mut self) -> impl Iterator<Item = &mut Process> {
        self.0.iter_mut().filter_map(|server| server.own.as_mut()?.present())
    }

    /// What the lab's own have counted so far: of one that is away, until it left.
    ///
    /// Errors: one does not answer.
    pub fn stats(&self) -> anyhow::Result<Vec<ServerRecord>> {
        self.0.iter().filter_map(|server| server.own.as_ref()).map(Own::stats).collect()
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        // All are told first: they end side by side.
        for own in self.0.iter().filter_map(|server| server.own.as_ref()) {
            own.terminate();
        }
    }
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
    fn the_user_s_own_are_not_started() {
        let directory = tempfile::tempdir().unwrap();
        let farm = Farm { name: "mine".into(), servers: vec![server("a", 1, Some("localhost:8081"))], events: vec![] };
        let mut servers = Servers::start(Path::new("/no/such/program"), &farm, 1, directory.path()).unwrap();
        assert_eq!(servers.names(), ["a"]);
        assert_eq!(servers.addresses(), ["127.0.0.1:8081".parse().unwrap()]);
        assert_eq!(servers.processes().count(), 0);
        assert_eq!(servers.stats().unwrap(), []);
        let farm = Farm { name: "mine".into(), servers: vec![server("a", 1, Some("nonsense"))], events: vec![] };
        let error = Servers::start(Path::new("x"), &farm, 1, directory.path()).unwrap_err();
        assert!(error.to_string().contains("server a: nonsense is no address"), "{error}");
    }

    #[test]
    fn one_that_does_not_start_is_quoted() {
        let directory = tempfile::tempdir().unwrap();
        let farm = Farm { name: "two".into(), servers: vec![server("web", 2, None)], events: vec![] };
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
        let farm = Farm { name: "one".into(), servers: vec![server("web", 1, None)], events: vec![] };
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
