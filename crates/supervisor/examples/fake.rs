//! A supervisor with a data plane that only names itself: for the tests of the processes, and a small example of
//! [`Engine`].
//!
//! `fake PREFIX FILE` serves lines: each line from a client is answered with the worker's process id, the number of
//! threads and the number of sockets, and noted in the first log file. A connection is in flight until the client
//! closes it. The line `abort` kills the worker, after `give up` it exits as one that cannot be helped, and `change` changes
//! the servers of one more upstream. The answer ends with how many were changed.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use balanza_config::Options;
use balanza_config::model::membership::{Changed, Changes, Notify, Protocol};
use balanza_supervisor::{Console, Engine, Invocation, Setup, run, worker};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

fn main() -> ExitCode {
    if balanza_supervisor::is_worker() {
        return worker(start);
    }
    let arguments = balanza_supervisor::arguments();
    let [_, prefix, file] = &arguments[..] else {
        eprintln!("usage: fake PREFIX FILE");
        return ExitCode::FAILURE;
    };
    let prefix = PathBuf::from(prefix);
    let options = Options::new(prefix, PathBuf::from(file)).with_process();
    run(Invocation { options, arguments, console: Console::Short, early_log: None, start, settled: || () })
}

fn start(setup: Setup) -> anyhow::Result<Box<dyn Engine>> {
    let fake = Fake { state: Arc::new(State::default()) };
    *fake.state.changes.lock().unwrap() = setup.changes.clone();
    fake.reload(setup)?;
    let state = Arc::clone(&fake.state);
    std::thread::spawn(move || state.accept());
    Ok(Box::new(fake))
}

struct Fake {
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    listeners: Mutex<Vec<TcpListener>>,
    log: Mutex<Option<File>>,
    threads: AtomicUsize,
    sockets: AtomicUsize,
    in_flight: AtomicUsize,
    changes: Mutex<Changes>,
    notify: Mutex<Option<Notify>>,
    draining: AtomicBool,
    /// Nothing is accepted any more.
    unreachable: AtomicBool,
}

impl State {
    fn accept(self: Arc<Self>) {
        while !self.draining.load(Ordering::SeqCst) {
            let listeners = self.listeners.lock().unwrap();
            let mut polled: Vec<_> =
                listeners.iter().map(|listener| PollFd::new(listener.as_fd(), PollFlags::POLLIN)).collect();
            let _ = poll(&mut polled, PollTimeout::from(5_u8));
            for listener in listeners.iter() {
                if let Ok((client, _)) = listener.accept() {
                    self.in_flight.fetch_add(1, Ordering::SeqCst);
                    let state = Arc::clone(&self);
                    std::thread::spawn(move || {
                        state.talk(client);
                        state.in_flight.fetch_sub(1, Ordering::SeqCst);
                    });
                }
            }
        }
        self.listeners.lock().unwrap().clear();
        self.unreachable.store(true, Ordering::SeqCst);
    }

    fn talk(&self, client: TcpStream) {
        client.set_nonblocking(false).unwrap();
        let mut writer = client.try_clone().unwrap();
        for line in BufReader::new(client).lines() {
            let Ok(line) = line else { return };
            match line.as_str() {
                "abort" => std::process::abort(),
                "give up" => std::process::exit(2),
                "change" => self.change(),
                _ => {}
            }
            if let Some(log) = &mut *self.log.lock().unwrap() {
                let _ = writeln!(log, "request {line}");
            }
            let (pid, threads) = (std::process::id(), self.threads.load(Ordering::SeqCst));
            let sockets = self.sockets.load(Ordering::SeqCst);
            let changes = self.changes.lock().unwrap().len();
            if writeln!(writer, "{pid} {threads} {sockets} {changes}").is_err() {
                return;
            }
        }
    }

    /// Changes one more upstream.
    fn change(&self) {
        let mut changes = self.changes.lock().unwrap();
        let name = format!("upstream {}", changes.len());
        changes.insert((Protocol::Http, name), Changed::default());
        if let Some(notify) = &*self.notify.lock().unwrap() {
            notify(&changes);
        }
    }
}

impl Engine for Fake {
    fn on_change(&self, notify: Notify) {
        *self.state.notify.lock().unwrap() = Some(notify);
    }

    fn reload(&self, setup: Setup) -> anyhow::Result<()> {
        anyhow::ensure!(setup.threads != 13, "13 threads bring bad luck");
        let sockets = setup.listeners.into_iter().flat_map(|(_, sockets)| sockets);
        let listeners: Vec<_> = sockets.map(TcpListener::from).collect();
        self.state.sockets.store(listeners.len(), Ordering::SeqCst);
        *self.state.listeners.lock().unwrap() = listeners;
        self.state.threads.store(setup.threads, Ordering::SeqCst);
        self.reopen_logs(setup.logs);
        Ok(())
    }

    fn reopen_logs(&self, logs: Vec<(PathBuf, OwnedFd)>) {
        *self.state.log.lock().unwrap() = logs.into_iter().next().map(|(_, file)| File::from(file));
    }

    fn drain(&self) {
        self.state.draining.store(true, Ordering::SeqCst);
    }

    fn is_drained(&self) -> bool {
        self.state.unreachable.load(Ordering::SeqCst) && self.state.in_flight.load(Ordering::SeqCst) == 0
    }
}
