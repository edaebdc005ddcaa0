//! `master_process off`: supervisor and data plane in one process, for debugging.

use std::os::fd::AsFd;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use balanza_config::model::{Config, Level};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;

use crate::daemon::Ready;
use crate::engine::Engine;
use crate::generation::Generation;
use crate::invocation::Invocation;
use crate::listen::{Purpose, Sockets};
use crate::log::{Log, OsError};
use crate::signals::Signals;
use crate::takeover::Orphan;
use crate::{Failed, identity, pidfile};

/// How often a draining data plane is asked whether it is done.
const GLANCE: u16 = 20;

/// Serves until a signal ends it.
///
/// # Errors
/// When the data plane does not start; the log says why.
pub fn run(
    invocation: Invocation,
    (current, config): (Generation, Config),
    log: Log,
    signals: Signals,
    ready: Option<Ready>,
    orphan: Option<Orphan>,
) -> Result<ExitCode, Failed> {
    if let Some(each) = current.core.worker_rlimit_nofile
        && let Err(error) = identity::limit_files(each, current.threads)
    {
        log.write(Level::Alert, format_args!("setrlimit(RLIMIT_NOFILE, {each}) failed ({error})"));
    }
    identity::obey_first(&current.core.process, &log);
    if let Err(error) = identity::obey_last(&current.core.process) {
        log.write(Level::Emerg, format_args!("{error:#}"));
        return Err(Failed);
    }
    let started = current.setup(config).map_err(anyhow::Error::from).and_then(|setup| (invocation.start)(setup));
    let engine = match started {
        Ok(engine) => engine,
        Err(error) => {
            log.write(Level::Emerg, format_args!("{error:#}"));
            if orphan.is_none() {
                remove_traces(&current, &log);
            }
            return Err(Failed);
        }
    };
    if let Some(ready) = ready
        && let Err(error) = ready.report(log.first_file())
    {
        log.write(Level::Alert, format_args!("open() \"/dev/null\" failed {}", OsError(&error)));
    }
    if let Some(orphan) = orphan {
        orphan.retire();
    }
    let mut process = Process { invocation, current, log: log.without_console(), engine };
    process.serve(&signals);
    drop(process.engine);
    remove_traces(&process.current, &process.log);
    process.log.write(Level::Notice, "exit");
    Ok(ExitCode::SUCCESS)
}

struct Process {
    invocation: Invocation,
    current: Generation,
    log: Log,
    engine: Box<dyn Engine>,
}

impl Process {
    fn serve(&mut self, signals: &Signals) {
        let mut draining = false;
        let mut deadline = None;
        loop {
            let timeout = if draining { PollTimeout::from(GLANCE) } else { PollTimeout::NONE };
            // Whatever it returns, everything is looked at afterwards.
            let _ = poll(&mut [PollFd::new(signals.as_fd(), PollFlags::POLLIN)], timeout);
            while let Some(received) = signals.next() {
                match received.signal {
                    Signal::SIGTERM | Signal::SIGINT => {
                        self.log.write(Level::Notice, format_args!("{received}, exiting"));
                        return;
                    }
                    Signal::SIGQUIT if !draining => {
                        self.log.write(Level::Notice, format_args!("{received}, shutting down"));
                        draining = true;
                        let timeout: Option<Duration> = self.current.core.worker_shutdown_timeout;
                        deadline = timeout.map(|timeout| Instant::now() + timeout);
                        self.engine.drain();
                    }
                    Signal::SIGHUP if !draining => {
                        self.log.write(Level::Notice, format_args!("{received}, reconfiguring"));
                        self.reconfigure();
                    }
                    Signal::SIGUSR1 => {
                        self.log.write(Level::Notice, format_args!("{received}, reopening logs"));
                        self.reopen_logs();
                    }
                    _ => self.log.write(Level::Notice, format_args!("{received}, ignoring")),
                }
            }
            if draining && (self.engine.is_drained() || deadline.is_some_and(|deadline| Instant::now() >= deadline)) {
                return;
            }
        }
    }

    fn reconfigure(&mut self) {
        self.log.write(Level::Notice, "reconfiguring");
        let (number, sockets) = (self.current.number + 1, &self.current.sockets);
        let prepared = Generation::prepare(number, &self.invocation.options, sockets, Purpose::Serve, &self.log);
        let Ok((next, config)) = prepared else { return };
        match next.setup(config).map_err(anyhow::Error::from).and_then(|setup| self.engine.reload(setup)) {
            Ok(()) => {
                let old = std::mem::replace(&mut self.current, next);
                old.sockets.unlink_except(&self.current.sockets);
                match self.current.log() {
                    Ok(log) => self.log = log,
                    Err(error) => self.log.write(Level::Alert, format_args!("dup() failed {}", OsError(&error))),
                }
            }
            Err(error) => {
                self.log.write(Level::Emerg, format_args!("{error:#}"));
                next.sockets.unlink_except(&self.current.sockets);
            }
        }
    }

    fn reopen_logs(&mut self) {
        self.current.logs.reopen(None, &self.log);
        match self.current.logs.replace_in(&mut self.log).and_then(|()| self.current.logs.duplicate()) {
            Ok(logs) => self.engine.reopen_logs(logs),
            Err(error) => self.log.write(Level::Alert, format_args!("dup() failed {}", OsError(&error))),
        }
    }
}

fn remove_traces(current: &Generation, log: &Log) {
    current.sockets.unlink_except(&Sockets::default());
    if let Some(path) = &current.core.pid {
        pidfile::remove(path, log);
    }
}
