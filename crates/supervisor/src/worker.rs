//! The worker process: gets configurations and commands from the supervisor and drives the data plane.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use balanza_config::Replay;
use balanza_config::model::Level;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;

use crate::changes::Mailbox;
use crate::engine::{Engine, Setup, Start};
use crate::files::LogFiles;
use crate::identity::{leave_core_file, limit_files, obey_first, obey_last};
use crate::link::Link;
use crate::listen::parse_shown;
use crate::load;
use crate::log::Log;
use crate::message::{Configure, FromWorker, ToWorker};
use crate::secrets;
use crate::signals::Signals;
use crate::takeover::{Fate, Inheritance};

/// Set in the environment of a worker process. Its standard input is its end of the link.
pub const MARK: &str = "BALANZA_WORKER";

/// The exit code of an error that another attempt would meet again.
const FATAL: u8 = 2;

/// How often a draining data plane is asked whether it is done.
const GLANCE: Duration = Duration::from_millis(20);

/// Whether this process was started as a worker.
pub fn is_worker() -> bool {
    std::env::var_os(MARK).is_some()
}

/// Runs the worker until the supervisor ends it.
pub fn main(start: Start) -> ExitCode {
    match Worker::new(start).and_then(Worker::run) {
        Ok(code) => code,
        Err(error) => {
            Log::starting(crate::log::Console::Short).write(Level::Emerg, format_args!("worker process: {error:#}"));
            ExitCode::from(FATAL)
        }
    }
}

struct Worker {
    start: Start,
    signals: Signals,
    /// `None` once the supervisor is gone.
    link: Option<Link>,
    log: Log,
    serving: Option<Serving>,
    /// Another supervisor serves on the same sockets, so this worker may end without lost connections.
    shared: bool,
    /// The sockets that are handed over when the supervisor is gone.
    inheritance: Option<Inheritance>,
    draining: Option<Draining>,
}

struct Serving {
    engine: Box<dyn Engine>,
    shutdown_timeout: Option<Duration>,
    /// What the data plane tells of changes.
    mailbox: Mailbox,
}

struct Draining {
    deadline: Option<Instant>,
}

enum Next {
    GoOn,
    Exit(ExitCode),
}

impl Worker {
    fn new(start: Start) -> anyhow::Result<Self> {
        let signals = Signals::block().context("signalfd() failed")?;
        // The name of the program would be "exe" otherwise.
        let _ = nix::sys::prctl::set_name(c"balanza");
        let descriptor: OwnedFd = io::stdin().as_fd().try_clone_to_owned()?;
        nix::unistd::dup2_stdin(File::open("/dev/null")?)?;
        let link = Link::over(UnixStream::from(descriptor)).context("standard input is not the supervisor's link")?;
        Ok(Self {
            start,
            signals,
            link: Some(link),
            log: Log::default(),
            serving: None,
            shared: false,
            inheritance: None,
            draining: None,
        })
    }

    fn run(mut self) -> anyhow::Result<ExitCode> {
        loop {
            let timeout = if self.draining.is_some() { Some(GLANCE) } else { None };
            let mut polled = vec![PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)];
            polled.extend(self.link.as_ref().map(|link| PollFd::new(link.as_fd(), PollFlags::POLLIN)));
            let orphaned = self.inheritance.as_ref().filter(|_| self.link.is_none());
            polled.extend(orphaned.map(|inheritance| PollFd::new(inheritance.descriptor(), PollFlags::POLLIN)));
            polled.extend(self.serving.as_ref().map(|serving| PollFd::new(serving.mailbox.as_fd(), PollFlags::POLLIN)));
            let timeout =
                timeout.map_or(PollTimeout::NONE, |wait| PollTimeout::try_from(wait).unwrap_or(PollTimeout::MAX));
            match poll(&mut polled, timeout) {
                Ok(_) | Err(nix::errno::Errno::EINTR) => {}
                Err(error) => bail!("poll() failed: {error}"),
            }
            let readable = polled.get(1).is_some_and(|fd| fd.any() == Some(true));
            drop(polled);
            while let Some(received) = self.signals.next() {
                match received.signal {
                    Signal::SIGTERM | Signal::SIGINT => {
                        self.log.write(Level::Notice, format_args!("{received}, exiting"));
                        return Ok(self.exit());
                    }
                    Signal::SIGQUIT => {
                        self.log.write(Level::Notice, format_args!("{received}, shutting down"));
                        self.drain();
                    }
                    // The supervisor gets them too and sends a command.
                    _ => {}
                }
            }
            if readable && let Next::Exit(code) = self.receive()? {
                return Ok(code);
            }
            self.tell_changes()?;
            if self.link.is_none()
                && let Some(inheritance) = &mut self.inheritance
                && inheritance.attend(&self.log) == Fate::Retire
            {
                self.drain();
            }
            if let (Some(draining), Some(serving)) = (&self.draining, &self.serving) {
                let late = draining.deadline.is_some_and(|deadline| Instant::now() >= deadline);
                if late || serving.engine.is_drained() {
                    return Ok(self.exit());
                }
            }
        }
    }

    fn receive(&mut self) -> anyhow::Result<Next> {
        let Some(link) = &self.link else { return Ok(Next::GoOn) };
        let Some((message, descriptors)) = link.receive::<ToWorker>().context("the supervisor's message")? else {
            self.link = None;
            if self.serving.is_none() {
                return Ok(Next::Exit(ExitCode::SUCCESS));
            }
            if self.inheritance.is_some() && !self.shared && self.draining.is_none() {
                let advice = "this worker goes on, and the next start takes over its sockets";
                self.log.write(Level::Alert, format_args!("the master process has died: {advice}"));
            } else {
                self.log.write(Level::Alert, "the master process has died, shutting down");
                self.drain();
            }
            return Ok(Next::GoOn);
        };
        match message {
            ToWorker::Configure(configure) => return self.configure(*configure, descriptors),
            ToWorker::ReopenLogs { paths } => {
                let files = LogFiles::adopt(paths.into_iter().zip(descriptors));
                files.replace_in(&mut self.log)?;
                if let Some(serving) = &self.serving {
                    serving.engine.reopen_logs(files.into_inner());
                }
            }
            ToWorker::Shared(shared) => self.shared = shared,
            ToWorker::Drain => self.drain(),
            ToWorker::Stop => return Ok(Next::Exit(self.exit())),
        }
        Ok(Next::GoOn)
    }

    fn configure(&mut self, configure: Configure, descriptors: Vec<OwnedFd>) -> anyhow::Result<Next> {
        let generation = configure.generation;
        let first = self.serving.is_none();
        let (answer, next) = match self.apply(configure, descriptors) {
            Ok(()) => (FromWorker::Ready { generation }, Next::GoOn),
            Err(error) => {
                let message = format!("{error:#}");
                let next = if first { Next::Exit(ExitCode::from(FATAL)) } else { Next::GoOn };
                (FromWorker::Failed { generation, message }, next)
            }
        };
        self.tell(&answer)?;
        Ok(next)
    }

    /// Tells the supervisor what was changed, so that it outlives this process.
    fn tell_changes(&mut self) -> anyhow::Result<()> {
        let Some(changes) = self.serving.as_mut().and_then(|serving| serving.mailbox.take()) else { return Ok(()) };
        self.tell(&FromWorker::Changed(changes.into_iter().collect()))
    }

    fn tell(&self, message: &FromWorker) -> anyhow::Result<()> {
        if let Some(link) = &self.link
            && let Err(error) = link.send(message, &[])
            // If the supervisor is gone, the link ends, which is handled there.
            && error.kind() != io::ErrorKind::BrokenPipe
        {
            return Err(error).context("a message to the supervisor");
        }
        Ok(())
    }

    fn apply(&mut self, configure: Configure, descriptors: Vec<OwnedFd>) -> anyhow::Result<()> {
        let mut descriptors = descriptors.into_iter();
        let mut listeners = Vec::new();
        for (address, count) in configure.listeners {
            let address = parse_shown(&address).with_context(|| format!("listening address {address:?}"))?;
            listeners.push((address, descriptors.by_ref().take(count).collect()));
        }
        let logs = LogFiles::adopt(configure.logs.into_iter().zip(descriptors.by_ref()));
        if configure.secrets {
            leave_core_file(false)?;
        }
        let secrets = descriptors.by_ref().take(configure.secrets.into()).next().map(secrets::read).transpose();
        let secrets = secrets.context("the configuration's keys")?.unwrap_or_default();
        let source = Replay { bundle: &configure.bundle, secrets: &secrets };
        let config = Arc::new(load::again(&configure.options, &source)?);
        if config.core.process.has_keys {
            leave_core_file(false)?;
        }
        let takeover = descriptors.next().filter(|_| configure.takeover);
        let inheritance = takeover.map(|takeover| Inheritance::new(&listeners, takeover)).transpose()?;
        let log = logs.log(&config.core.error_log)?;
        let shutdown_timeout = config.core.worker_shutdown_timeout;
        let nofile = config.core.worker_rlimit_nofile;
        let process = config.core.process.clone();
        let changes = configure.changes.into_iter().collect();
        let Configure { threads, respawned, .. } = configure;
        let setup = Setup { config, listeners, logs: logs.into_inner(), threads, changes, respawned };
        match &mut self.serving {
            Some(serving) => {
                serving.engine.reload(setup)?;
                serving.shutdown_timeout = shutdown_timeout;
                self.log = log;
            }
            None => {
                self.log = log;
                if let Some(each) = nofile
                    && let Err(error) = limit_files(each, configure.threads)
                {
                    self.log.write(Level::Alert, format_args!("setrlimit(RLIMIT_NOFILE, {each}) failed ({error})"));
                }
                obey_first(&process, &self.log);
                if let Some(identity) = configure.identity {
                    identity.assume()?;
                    leave_core_file(!process.has_keys)?;
                }
                obey_last(&process)?;
                let engine = (self.start)(setup)?;
                let (mailbox, notify) = Mailbox::new().context("no descriptors for changes")?;
                engine.on_change(notify);
                self.serving = Some(Serving { engine, shutdown_timeout, mailbox });
            }
        }
        self.inheritance = inheritance;
        Ok(())
    }

    fn drain(&mut self) {
        if self.draining.is_some() {
            return;
        }
        self.log.write(Level::Notice, "gracefully shutting down");
        // Sockets that are held here would queue connections that no worker accepts.
        self.inheritance = None;
        let timeout = self.serving.as_ref().and_then(|serving| serving.shutdown_timeout);
        self.draining = Some(Draining { deadline: timeout.map(|timeout| Instant::now() + timeout) });
        if let Some(serving) = &self.serving {
            serving.engine.drain();
        }
    }

    /// Stops the data plane and writes buffered log lines.
    fn exit(&mut self) -> ExitCode {
        self.log.write(Level::Notice, "exiting");
        self.serving = None;
        self.log.write(Level::Notice, "exit");
        ExitCode::SUCCESS
    }
}
