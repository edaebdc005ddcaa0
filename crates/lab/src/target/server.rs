//! One target in operation: its sockets and its threads.

use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context;
use tokio::sync::oneshot;

use super::answer::Server;
use super::stats::Stats;
use super::{Target, accept, socket};

/// Length of the listen queue for questions about the target.
const CONTROL_BACKLOG: u16 = 128;

impl Target {
    /// Starts the target on threads of its own; it listens when this returns.
    ///
    /// Errors: an address cannot be bound (in use, not of this machine, not allowed); a setting out of its range.
    pub fn spawn(self) -> anyhow::Result<Handle> {
        self.check()?;
        let listener = listen(self.listen, self.backlog)?;
        let address = listener.local_addr()?;
        let control = self.control.map(|control| listen(control, CONTROL_BACKLOG)).transpose()?;
        let control_address = control.as_ref().map(TcpListener::local_addr).transpose()?;
        let name = if self.name.is_empty() { address.to_string() } else { self.name.clone() };
        let server = Arc::new(Server::new(&self, name)?);

        let mut builder = match self.threads {
            1 => tokio::runtime::Builder::new_current_thread(),
            _ => tokio::runtime::Builder::new_multi_thread(),
        };
        if self.threads > 1 {
            builder.worker_threads(self.threads);
        }
        let runtime = builder
            .max_blocking_threads(self.threads)
            .thread_name("target")
            .enable_all()
            .build()
            .context("no runtime")?;

        let (stop, stopped) = oneshot::channel::<Infallible>();
        let serving = Arc::clone(&server);
        let limit = self.connections;
        let thread = std::thread::Builder::new().name("target".into()).spawn(move || {
            let queue = serving.queue();
            runtime.block_on(async {
                if let Some(queue) = queue.clone() {
                    tokio::spawn(async move { queue.run().await });
                }
                if let Some(control) = control {
                    tokio::spawn(accept::control(control, Arc::clone(&serving)));
                }
                tokio::select! {
                    _ = accept::accept(listener, serving, limit) => {}
                    _ = stopped => {}
                }
            });
            // Computations that were begun end by themselves; they are short.
            runtime.shutdown_timeout(Duration::from_secs(2));
            queue.iter().for_each(|queue| queue.clear());
        })?;
        Ok(Handle { address, control: control_address, server, running: Some((stop, thread)) })
    }
}

fn listen(address: SocketAddr, backlog: u16) -> anyhow::Result<TcpListener> {
    socket::listen(address, backlog).map_err(|error| explain(address, error))
}

/// A bind error in words that say what to do.
fn explain(address: SocketAddr, error: io::Error) -> anyhow::Error {
    let hint = match error.kind() {
        io::ErrorKind::AddrInUse => "the port is in use: stop what listens there, or choose another port",
        io::ErrorKind::AddrNotAvailable => "this machine has no such address",
        io::ErrorKind::PermissionDenied => "not allowed: ports below 1024 need root",
        _ => return anyhow::Error::new(error).context(format!("cannot listen on {address}")),
    };
    anyhow::anyhow!("cannot listen on {address}: {hint}")
}

/// A running target. Dropping it stops it.
#[derive(Debug)]
pub struct Handle {
    address: SocketAddr,
    control: Option<SocketAddr>,
    server: Arc<Server>,
    running: Option<(oneshot::Sender<Infallible>, JoinHandle<()>)>,
}

impl Handle {
    /// Where it listens, with the port that was taken.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where it answers questions about itself alone, with the port that was taken, if it does.
    pub fn control(&self) -> Option<SocketAddr> {
        self.control
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.server.name
    }

    /// Its counters now.
    pub fn stats(&self) -> Stats {
        self.server.stats()
    }

    /// Works so fast from the next request on; see [`Target::speed`].
    pub fn set_speed(&self, speed: f64) {
        self.server.set_speed(speed);
    }

    /// Accepts connections and reads requests, and answers none of them until it is told to go on.
    pub fn set_silent(&self, silent: bool) {
        self.server.set_silent(silent);
    }

    /// Accepts no more connections, finishes the requests that it has, and ends.
    pub fn drain(&self) {
        self.server.drain();
    }

    /// Whether it has ended after [`drain`](Self::drain).
    pub fn has_ended(&self) -> bool {
        self.running.as_ref().is_none_or(|(_, thread)| thread.is_finished())
    }

    /// Closes its sockets and its connections, waits for its threads to end, and returns the last counters.
    pub fn stop(mut self) -> Stats {
        self.end();
        self.stats()
    }

    fn end(&mut self) {
        if let Some((stop, thread)) = self.running.take() {
            drop(stop);
            // A panic of the thread was printed when it happened; there is nothing left to stop.
            let _ = thread.join();
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_out_of_range_are_refused_at_the_start() {
        let free = || Target { listen: ([127, 0, 0, 1], 0).into(), ..Target::default() };
        for target in [Target { speed: 0.0, ..free() }, Target { name: "a\r\nb: c".into(), ..free() }] {
            assert!(target.clone().spawn().is_err(), "{target:?}");
        }
        free().spawn().unwrap();
    }

    #[test]
    fn a_silent_target_answers_when_it_goes_on() {
        use std::io::{Read, Write};
        let target = Target { listen: ([127, 0, 0, 1], 0).into(), ..Target::default() }.spawn().unwrap();
        target.set_silent(true);
        let mut client = std::net::TcpStream::connect(target.address()).unwrap();
        client.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        client.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        assert!(client.read(&mut [0]).is_err(), "an answer of a silent target");
        client.set_read_timeout(None).unwrap();
        target.set_silent(false);
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }

    #[test]
    fn bind_errors_say_what_to_do() {
        let taken = Target { listen: ([127, 0, 0, 1], 0).into(), ..Target::default() }.spawn().unwrap();
        let error = Target { listen: taken.address(), ..Target::default() }.spawn().unwrap_err().to_string();
        assert!(error.contains(&taken.address().to_string()) && error.contains("in use"), "{error}");
        let error = Target { listen: ([192, 0, 2, 1], 0).into(), ..Target::default() }.spawn().unwrap_err();
        assert!(error.to_string().contains("no such address"), "{error}");
    }
}
