//! One of the demo's servers, and what can happen to it.

use std::net::SocketAddr;
use std::time::Duration;

use crate::target::{Handle, Stats, Target, Workload};

/// Speeds of the servers, in order and again.
pub(super) const SPEEDS: [f64; 3] = [1.0, 0.5, 0.25];

/// What a request costs at speed 1: 40 ms in the mean, and never quite the same.
const WORKLOAD: Workload = Workload::Poisson { mean: 4.0, step: Duration::from_millis(10) };
const MEAN: Duration = Duration::from_millis(40);

/// Requests that each server works on at once, so that more load than it carries makes a queue.
pub(super) const CONCURRENCY: usize = 16;

/// How much slower a slow server is.
const SLOWER: f64 = 4.0;

/// How a server is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Condition {
    /// As it was started.
    #[default]
    Well,
    /// A quarter as fast.
    Slow,
    /// It accepts connections and answers nothing.
    Stopped,
    /// Its process is gone: connections are refused.
    Killed,
}

/// A server and how it is.
pub(super) struct Server {
    target: Target,
    handle: Option<Handle>,
    condition: Condition,
    /// The counters of those that were killed before.
    before: Stats,
}

impl Server {
    /// Starts the server of this index on `address`; where its port is in use, on a free one.
    pub(super) fn start(address: SocketAddr, index: usize) -> anyhow::Result<Self> {
        let mut target = Target {
            name: format!("s{}", index + 1),
            listen: address,
            workload: WORKLOAD,
            speed: SPEEDS[index % SPEEDS.len()],
            concurrency: Some(CONCURRENCY),
            report_load: true,
            seed: index as u64,
            ..Target::default()
        };
        let handle = target.clone().spawn().or_else(|_| {
            target.listen.set_port(0);
            target.clone().spawn()
        })?;
        target.listen = handle.address();
        Ok(Self { target, handle: Some(handle), condition: Condition::Well, before: Stats::default() })
    }

    pub(super) fn name(&self) -> &str {
        &self.target.name
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.target.listen
    }

    pub(super) fn condition(&self) -> Condition {
        self.condition
    }

    /// How fast it is now: 1 is a fast server.
    pub(super) fn speed(&self) -> f64 {
        if self.condition == Condition::Slow { self.target.speed / SLOWER } else { self.target.speed }
    }

    /// Requests a second that it can answer now.
    pub(super) fn capacity(&self) -> f64 {
        match self.condition {
            Condition::Well | Condition::Slow => self.speed() * CONCURRENCY as f64 / MEAN.as_secs_f64(),
            Condition::Stopped | Condition::Killed => 0.0,
        }
    }

    /// Its requests now and those it has answered.
    pub(super) fn stats(&self) -> Stats {
        let mut stats = self.handle.as_ref().map(Handle::stats).unwrap_or_default();
        stats.requests += self.before.requests;
        stats
    }

    /// Brings it into this condition.
    ///
    /// Errors: its port was taken while it was gone.
    pub(super) fn set(&mut self, condition: Condition) -> anyhow::Result<()> {
        if condition == Condition::Killed {
            if let Some(handle) = self.handle.take() {
                self.before.requests += handle.stop().requests;
            }
        } else if self.handle.is_none() {
            self.handle = Some(self.target.clone().spawn()?);
        }
        self.condition = condition;
        if let Some(handle) = &self.handle {
            handle.set_speed(self.speed());
            handle.set_silent(condition == Condition::Stopped);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpStream;

    const SECOND: Duration = Duration::from_secs(1);

    fn answer(server: &Server, patience: Duration) -> Option<String> {
        let mut stream = TcpStream::connect(server.address()).ok()?;
        stream.set_read_timeout(Some(patience)).unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        Some(text)
    }

    #[test]
    fn a_server_can_be_slow_silent_gone_and_back() {
        let mut server = Server::start(([127, 0, 0, 1], 0).into(), 1).unwrap();
        assert_eq!((server.name(), server.speed(), server.capacity()), ("s2", 0.5, 200.0));
        assert!(answer(&server, 30 * SECOND).unwrap().starts_with("HTTP/1.1 200"));
        server.set(Condition::Slow).unwrap();
        assert_eq!((server.speed(), server.capacity()), (0.125, 50.0));
        server.set(Condition::Stopped).unwrap();
        let mut waiting = TcpStream::connect(server.address()).unwrap();
        waiting.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        assert_eq!((answer(&server, SECOND), server.capacity()), (None, 0.0));
        // At least the request that has not gone away, once it has been read.
        let begin = std::time::Instant::now();
        while server.stats().queued == 0 {
            assert!(begin.elapsed() < 30 * SECOND, "nobody waits");
            std::thread::sleep(Duration::from_millis(5));
        }
        server.set(Condition::Killed).unwrap();
        assert!(TcpStream::connect(server.address()).is_err());
        assert_eq!(server.stats().requests, 1);
        server.set(Condition::Well).unwrap();
        assert!(answer(&server, 30 * SECOND).unwrap().contains("s2"));
        assert_eq!(server.stats().requests, 2, "both lives count");
    }

    #[test]
    fn servers_take_the_ports_they_are_given_where_these_are_free() {
        let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let first = Server::start(address, 0).unwrap();
        let again = Server::start(address, 0).unwrap();
        assert_eq!(first.address(), address);
        assert_ne!(again.address(), address);
    }
}
