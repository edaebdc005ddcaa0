//! The supervisor process: its loop, its workers and its shutdown.

mod handover;
mod reload;
mod start;

use std::os::fd::AsFd;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use balanza_config::model::membership::Changes;
use balanza_config::model::{Config, Level};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use crate::children::{BackOff, Output, Worker};
use crate::daemon::Ready;
use crate::generation::Generation;
use crate::invocation::Invocation;
use crate::listen::Sockets;
use crate::log::{Log, OsError};
use crate::message::FromWorker;
use crate::pidfile;
use crate::signals::{Received, Signals};
use crate::takeover::{Orphan, TakeoverSocket};

pub use start::run;

/// How long workers may take for a fast stop before they are killed.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);

/// How a worker ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Death {
    /// By itself: another would meet the same at its start.
    Own,
    /// With the code that says that another would fail as well.
    Fatal,
    /// By SIGKILL: by an operator, or by the kernel for want of memory.
    Killed,
}

struct Supervisor {
    invocation: Invocation,
    current: Generation,
    /// What was changed of upstreams' servers while they were in use.
    changes: Changes,
    /// Workers that were started in the place of one that died.
    respawned: u64,
    log: Log,
    signals: Signals,
    /// Until the first worker serves: what waits for that.
    ready: Option<Ready>,
    /// The process whose sockets this one inherited.
    predecessor: Option<Pid>,
    daemonized: bool,
    /// The socket by which the next start finds the worker if this process dies.
    takeover: Option<TakeoverSocket>,
    /// Until the first worker serves: a worker without a supervisor, whose sockets this process has taken over.
    orphan: Option<Orphan>,
    /// Whether no worker has served yet; until then its failure ends the program.
    starting: bool,
    /// The configuration sent to the worker that has not been answered yet.
    pending: Option<Generation>,
    /// Another `HUP` arrived meanwhile.
    reload_again: bool,
    worker: Option<Worker>,
    /// Workers that finish their requests in flight.
    retired: Vec<Worker>,
    back_off: BackOff,
    respawn_at: Option<Instant>,
    /// Off after `WINCH`.
    accepting: bool,
    /// The new binary's process.
    successor: Option<Pid>,
    ending: Option<Ending>,
}

#[derive(Debug, Clone, Copy)]
enum Ending {
    /// `QUIT`.
    Graceful,
    /// `TERM` or `INT`: workers that still run at this time are killed.
    Fast(Instant),
}

impl Supervisor {
    fn run(mut self, config: Config) -> ExitCode {
        self.log.write(Level::Notice, format_args!("balanza/{}", env!("CARGO_PKG_VERSION")));
        self.log.write(Level::Notice, "start worker processes");
        self.spawn();
        // Only the worker needs it, which reads it again. Large ones take as long to give back as a tenth of the start.
        drop(config);
        (self.invocation.settled)();
        loop {
            self.wait();
            while let Some(received) = self.signals.next() {
                self.signal(received);
            }
            if let Some(code) = self.reap() {
                return self.exit(code);
            }
            if let Some(takeover) = &self.takeover {
                takeover.answer_alive();
            }
            self.listen_to_workers();
            self.timers();
            if self.ending.is_some() && self.worker.is_none() && self.retired.is_empty() {
                return self.exit(ExitCode::SUCCESS);
            }
        }
    }

    /// Sleeps until there is something to do.
    fn wait(&self) {
        let deadlines = [self.respawn_at, if let Some(Ending::Fast(at)) = self.ending { Some(at) } else { None }];
        let timeout = deadlines.into_iter().flatten().min().map_or(PollTimeout::NONE, |at| {
            // Rounded up, so that it does not wake a little too early again and again.
            let rest = at.saturating_duration_since(Instant::now()) + Duration::from_millis(1);
            PollTimeout::try_from(rest).unwrap_or(PollTimeout::MAX)
        });
        let mut polled = vec![PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)];
        polled.extend(self.takeover.iter().map(|takeover| PollFd::new(takeover.as_fd(), PollFlags::POLLIN)));
        let workers = self.worker.iter().chain(&self.retired);
        polled.extend(workers.filter_map(Worker::descriptor).map(|fd| PollFd::new(fd, PollFlags::POLLIN)));
        // Everything is checked afterwards, whatever it returns.
        let _ = poll(&mut polled, timeout);
    }

    fn signal(&mut self, received: Received) {
        let action = match received.signal {
            Signal::SIGTERM | Signal::SIGINT => ", exiting",
            Signal::SIGQUIT => ", shutting down",
            Signal::SIGHUP => ", reconfiguring",
            Signal::SIGUSR1 => ", reopening logs",
            Signal::SIGUSR2 if self.may_upgrade() => ", changing binary",
            Signal::SIGUSR2 => ", ignoring",
            // A terminal sends it whenever its window changes, so it counts only without one.
            Signal::SIGWINCH if self.daemonized => ", stop accepting connections",
            _ => "",
        };
        self.log.write(Level::Notice, format_args!("{received}{action}"));
        match received.signal {
            Signal::SIGTERM | Signal::SIGINT => self.stop(),
            _ if matches!(self.ending, Some(Ending::Fast(_))) => {}
            Signal::SIGQUIT => self.quit(),
            Signal::SIGUSR1 => self.reopen_logs(),
            _ if self.ending.is_some() => {}
            Signal::SIGHUP => self.reconfigure(),
            Signal::SIGUSR2 => self.change_binary(),
            Signal::SIGWINCH if self.daemonized => {
                self.accepting = false;
                self.respawn_at = None;
                self.retire();
            }
            _ => {}
        }
    }

    fn stop(&mut self) {
        if !matches!(self.ending, Some(Ending::Fast(_))) {
            self.ending = Some(Ending::Fast(Instant::now() + STOP_TIMEOUT));
            self.respawn_at = None;
        }
        for worker in self.worker.iter_mut().chain(&mut self.retired) {
            worker.stop();
        }
    }

    fn quit(&mut self) {
        if self.ending.is_none() {
            self.ending = Some(Ending::Graceful);
            self.respawn_at = None;
            self.abandon_pending();
            self.retire();
            self.close_sockets();
        }
    }

    /// Lets the worker finish its requests in flight; the supervisor has no worker then.
    fn retire(&mut self) {
        if let Some(mut worker) = self.worker.take() {
            worker.drain();
            self.retired.push(worker);
        }
    }

    fn spawn(&mut self) {
        let output = if self.daemonized { Output::Detached(self.log.first_file()) } else { Output::Inherit };
        match Worker::spawn(&self.current, self.takeover.as_ref(), (&self.changes, self.respawned), output) {
            Ok(mut worker) => {
                self.log.write(Level::Notice, format_args!("start worker process {}", worker.pid));
                if self.successor.is_some() {
                    worker.share(true);
                }
                self.worker = Some(worker);
            }
            Err(error) => {
                self.log.write(
                    Level::Alert,
                    format_args!("fork() failed while spawning \"worker process\" {}", OsError(&error)),
                );
                self.respawn_at = Some(Instant::now() + Duration::from_secs(1));
            }
        }
    }

    fn timers(&mut self) {
        let now = Instant::now();
        if self.respawn_at.is_some_and(|at| now >= at) {
            self.respawn_at = None;
            self.spawn();
        }
        if let Some(Ending::Fast(at)) = self.ending
            && now >= at
        {
            for worker in self.worker.iter().chain(&self.retired) {
                worker.kill();
            }
            self.ending = Some(Ending::Fast(now + STOP_TIMEOUT));
        }
    }

    /// Reaps children that ended. Returns an exit code if the program cannot continue.
    fn reap(&mut self) -> Option<ExitCode> {
        while let Ok(status) = waitpid(Pid::from_raw(-1), Some(WaitPidFlag::WNOHANG)) {
            let (pid, death) = match status {
                WaitStatus::Exited(pid, code) => {
                    let name = self.name_of(pid);
                    self.log.write(Level::Notice, format_args!("{name} {pid} exited with code {code}"));
                    (pid, if code == 2 { Death::Fatal } else { Death::Own })
                }
                WaitStatus::Signaled(pid, signal, core) => {
                    let (name, signal) = (self.name_of(pid), signal as i32);
                    let core = if core { " (core dumped)" } else { "" };
                    self.log.write(Level::Alert, format_args!("{name} {pid} exited on signal {signal}{core}"));
                    (pid, if signal == Signal::SIGKILL as i32 { Death::Killed } else { Death::Own })
                }
                WaitStatus::StillAlive => break,
                _ => continue,
            };
            if self.successor == Some(pid) {
                self.successor_died();
            } else if self.worker.as_ref().is_some_and(|worker| worker.pid == pid) {
                // Its last messages come first: they have the reason.
                self.listen_to_workers();
                if let Some(worker) = self.worker.take()
                    && let Some(code) = self.worker_died(&worker, death)
                {
                    return Some(code);
                }
            } else {
                self.retired.retain(|worker| worker.pid != pid);
            }
        }
        None
    }

    fn name_of(&self, pid: Pid) -> &'static str {
        if self.successor == Some(pid) {
            return "new binary process";
        }
        let known = self.worker.iter().chain(&self.retired).any(|worker| worker.pid == pid);
        if known { "worker process" } else { "unknown process" }
    }

    fn worker_died(&mut self, worker: &Worker, death: Death) -> Option<ExitCode> {
        if self.ending.is_some() {
            return None;
        }
        // One that was killed may have been serving already.
        if self.starting && death != Death::Killed {
            return Some(ExitCode::FAILURE);
        }
        if let Some(pending) = &self.pending {
            let (died, number) = (worker.pid, pending.number);
            self.log.write(
                Level::Alert,
                format_args!("worker process {died} exited before it applied configuration {number}: the old configuration stays in use"),
            );
        }
        self.abandon_pending();
        if death == Death::Fatal {
            let pid = worker.pid;
            self.log.write(
                Level::Alert,
                format_args!("worker process {pid} exited with fatal code 2 and cannot be respawned"),
            );
            if std::mem::take(&mut self.reload_again) {
                self.reconfigure();
            }
        } else if self.accepting {
            self.respawn_at = Some(Instant::now() + self.back_off.after(worker));
            self.respawned += 1;
        }
        None
    }

    fn listen_to_workers(&mut self) {
        while let Some(message) = self.worker.as_mut().filter(|worker| worker.has_message()).and_then(Worker::receive) {
            match message {
                FromWorker::Ready { generation } => {
                    match self.pending.take() {
                        Some(pending) if pending.number == generation => self.adopt(pending),
                        other => self.pending = other,
                    }
                    self.started();
                }
                FromWorker::Changed(changes) => self.changes = changes.into_iter().collect(),
                FromWorker::Failed { generation, message } => {
                    for line in message.lines() {
                        self.log.write(Level::Emerg, line);
                    }
                    if self.pending.as_ref().is_some_and(|pending| pending.number == generation) {
                        self.abandon_pending();
                    }
                }
            }
            if self.pending.is_none() && std::mem::take(&mut self.reload_again) {
                self.reconfigure();
            }
        }
        // Only so that a closed link no longer wakes the loop.
        for worker in &mut self.retired {
            while worker.has_message() && worker.receive().is_some() {}
        }
    }

    /// The first worker serves.
    fn started(&mut self) {
        if !std::mem::take(&mut self.starting) {
            return;
        }
        if let Some(orphan) = self.orphan.take() {
            orphan.retire();
        }
        if let Some(ready) = self.ready.take()
            && let Err(error) = ready.report(self.log.first_file())
        {
            self.log.write(Level::Alert, format_args!("open() \"/dev/null\" failed {}", OsError(&error)));
        }
        self.log = std::mem::take(&mut self.log).without_console();
    }

    /// Closes the listening sockets. Files of Unix-domain sockets stay when another process listens there.
    fn close_sockets(&mut self) {
        let sockets = std::mem::take(&mut self.current.sockets);
        // The worker that was to be taken over still uses them, too.
        if self.successor.is_none() && !self.predecessor_lives() && self.orphan.is_none() {
            sockets.unlink_except(&Sockets::default());
        }
    }

    fn exit(mut self, code: ExitCode) -> ExitCode {
        self.abandon_pending();
        self.close_sockets();
        if let Some(takeover) = self.takeover.take().filter(|_| self.orphan.is_none()) {
            takeover.remove();
        }
        if let Some(path) = &self.current.core.pid {
            match self.successor {
                Some(_) => pidfile::remove(&pidfile::old(path), &self.log),
                None => pidfile::remove(path, &self.log),
            }
        }
        self.log.write(Level::Notice, "exit");
        code
    }
}
