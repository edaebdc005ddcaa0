//! The worker processes, seen from the supervisor.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use balanza_config::model::membership::Changes;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::generation::Generation;
use crate::link::Link;
use crate::message::{FromWorker, ToWorker};
use crate::takeover::TakeoverSocket;
use crate::{title, upgrade, worker};

/// A worker that ran shorter than this probably failed at its start.
const CRASH_AT_ONCE: Duration = Duration::from_secs(1);
const BACK_OFF_FIRST: Duration = Duration::from_millis(100);
const BACK_OFF_MAX: Duration = Duration::from_secs(5);

/// Settings of the allocators in a worker; what the environment sets already holds. Of the C library's, which little uses: no
/// 64 MB of addresses for each thread. Of jemalloc, the program's own: a background thread gives freed memory back to the
/// system within three seconds. (The supervisor has one only after it has gone into the background.) Where addresses are
/// limited, it takes no more of them than it needs at once and gives them back, so that no thread's part of it keeps what
/// another's lacks.
fn allocators() -> impl Iterator<Item = (&'static str, String)> {
    let limited = getrlimit(Resource::RLIMIT_AS).is_ok_and(|(soft, _)| soft != RLIM_INFINITY);
    let retain = if limited { ",retain:false" } else { "" };
    let jemalloc = format!("background_thread:true,dirty_decay_ms:3000,muzzy_decay_ms:0{retain}");
    let all = [("_RJEM_MALLOC_CONF", jemalloc), ("MALLOC_ARENA_MAX", "1".to_owned())];
    all.into_iter().filter(|(name, _)| std::env::var_os(name).is_none())
}

/// A worker process.
#[derive(Debug)]
pub struct Worker {
    /// Its process.
    pub pid: Pid,
    started: Instant,
    /// `None` once the other end is closed.
    link: Option<Link>,
}

/// Where the output of a worker goes.
#[derive(Debug)]
pub enum Output {
    /// Where the supervisor's goes.
    Inherit,
    /// A daemon's: standard error to this file, if any, and the rest nowhere.
    Detached(Option<File>),
}

impl Worker {
    /// Starts a worker that serves `generation`.
    ///
    /// # Errors Errors of fork(2), execve(2) and the link.
    pub fn spawn(
        generation: &Generation,
        takeover: Option<&TakeoverSocket>,
        kept: (&Changes, u64),
        output: Output,
    ) -> io::Result<Self> {
        let (ours, theirs) = Link::pair()?;
        let mut command = Command::new("/proc/self/exe");
        command.arg0("balanza: worker process").env(worker::MARK, "1").stdin(theirs.into_fd());
        command.envs(allocators());
        command.env_remove(title::ARGUMENTS).env_remove(upgrade::INHERITED).env_remove(upgrade::CHANGES);
        command.env_remove(upgrade::INHERITED_OF_NGINX);
        command.envs(generation.core.process.environment.iter().map(|(name, value)| (name, value)));
        if let Output::Detached(errors) = output {
            command.stdout(Stdio::null()).stderr(errors.map_or_else(Stdio::null, Stdio::from));
        }
        let child = command.spawn()?;
        let pid = Pid::from_raw(i32::try_from(child.id()).map_err(io::Error::other)?);
        // The child reads only after exec, so what is sent here may have to wait for it; a child that dies before
        // shows as the end of the link and as SIGCHLD.
        drop(command);
        let mut worker = Self { pid, started: Instant::now(), link: Some(ours) };
        worker.configure(generation, takeover, kept);
        Ok(worker)
    }

    /// Hands it a configuration.
    pub fn configure(&mut self, generation: &Generation, takeover: Option<&TakeoverSocket>, kept: (&Changes, u64)) {
        let (message, descriptors) = generation.message(takeover, kept);
        self.send(&ToWorker::Configure(Box::new(message)), &descriptors);
    }

    /// Hands it reopened log files.
    pub fn reopen_logs(&mut self, generation: &Generation) {
        let (paths, descriptors): (Vec<PathBuf>, Vec<BorrowedFd<'_>>) =
            generation.logs.iter().map(|(path, file)| (path.to_path_buf(), file)).unzip();
        self.send(&ToWorker::ReopenLogs { paths }, &descriptors);
    }

    /// Tells it whether another supervisor serves on the same sockets.
    pub fn share(&mut self, shared: bool) {
        self.send(&ToWorker::Shared(shared), &[]);
    }

    /// Tells it to finish what is in flight and to exit.
    pub fn drain(&mut self) {
        self.send(&ToWorker::Drain, &[]);
    }

    /// Tells it to exit.
    pub fn stop(&mut self) {
        self.send(&ToWorker::Stop, &[]);
    }

    /// Ends it.
    pub fn kill(&self) {
        // It may be dead already, and only wait to be reaped.
        let _ = kill(self.pid, Signal::SIGKILL);
    }

    fn send(&mut self, message: &ToWorker, descriptors: &[BorrowedFd<'_>]) {
        let Some(link) = &self.link else { return };
        match link.send(message, descriptors) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => self.link = None,
            // It hangs, or a message was sent only in part: no more messages can be sent.
            Err(_) => {
                self.link = None;
                self.kill();
            }
        }
    }

    /// Whether a message has arrived, or its end of the link is closed.
    pub fn has_message(&self) -> bool {
        let Some(link) = &self.link else { return false };
        let mut polled = [PollFd::new(link.as_fd(), PollFlags::POLLIN)];
        poll(&mut polled, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
    }

    /// The next message; call it when [`Worker::has_message`].
    pub fn receive(&mut self) -> Option<FromWorker> {
        match self.link.as_ref()?.receive() {
            Ok(Some((message, _))) => Some(message),
            Ok(None) => {
                self.link = None;
                None
            }
            Err(_) => {
                self.link = None;
                self.kill();
                None
            }
        }
    }

    /// What to wait for.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.link.as_ref().map(AsFd::as_fd)
    }
}

/// The pause before a dead worker is replaced: none, unless workers die repeatedly at their start.
#[derive(Debug)]
pub struct BackOff {
    next: Duration,
}

impl BackOff {
    /// No wait yet.
    pub fn new() -> Self {
        Self { next: BACK_OFF_FIRST }
    }

    /// The wait before the successor of this worker.
    pub fn after(&mut self, worker: &Worker) -> Duration {
        self.after_life_of(worker.started.elapsed())
    }

    fn after_life_of(&mut self, life: Duration) -> Duration {
        if life >= CRASH_AT_ONCE {
            self.next = BACK_OFF_FIRST;
            return Duration::ZERO;
        }
        let wait = self.next;
        self.next = (wait * 2).min(BACK_OFF_MAX);
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_workers_that_die_at_once_are_waited_for() {
        let mut back_off = BackOff::new();
        assert_eq!(back_off.after_life_of(Duration::from_secs(60)), Duration::ZERO);
        let waits: Vec<_> = (0..8).map(|_| back_off.after_life_of(Duration::from_millis(10)).as_millis()).collect();
        assert_eq!(waits, [100, 200, 400, 800, 1600, 3200, 5000, 5000]);
        assert_eq!(back_off.after_life_of(Duration::from_secs(2)), Duration::ZERO);
        assert_eq!(back_off.after_life_of(Duration::ZERO), BACK_OFF_FIRST);
    }
}
