//! Reloads the configuration (`HUP`) and reopens log files (`USR1`).

use balanza_config::model::Level;

use super::Supervisor;
use crate::generation::Generation;
use crate::listen::Purpose;
use crate::log::OsError;
use crate::takeover::TakeoverSocket;
use crate::{identity, pidfile};

impl Supervisor {
    pub(super) fn reconfigure(&mut self) {
        if self.pending.is_some() || self.starting {
            self.reload_again = true;
            return;
        }
        if self.successor.is_some() {
            // As NGINX: serves again at the same time as the new binary, with the old configuration.
            self.accepting = true;
            if self.worker.is_none() {
                self.spawn();
            }
            return;
        }
        self.log.write(Level::Notice, "reconfiguring");
        let (number, sockets) = (self.current.number + 1, &self.current.sockets);
        let prepared = Generation::prepare(number, &self.invocation.options, sockets, Purpose::Serve, &self.log);
        let Ok((mut next, _)) = prepared else { return };
        // A number is never used twice, not even when the worker refuses the configuration.
        self.current.number = number;
        let pid = next.core.pid.as_ref();
        if self.takeover.is_none() {
            self.takeover = pid.and_then(|pid| TakeoverSocket::open(pid, &self.log));
        }
        let takeover = self.takeover.as_ref().filter(|_| pid.is_some());
        let same_account = next.identity == self.current.identity
            && next.core.worker_rlimit_nofile == self.current.core.worker_rlimit_nofile;
        match &mut self.worker {
            Some(worker) if same_account => {
                worker.configure(&next, takeover, (&self.changes, self.respawned));
                self.pending = Some(next);
            }
            _ => {
                // A process that has given up its rights cannot change its account: another one has to serve.
                next.number = number;
                self.adopt(next);
                self.retire();
                self.accepting = true;
                self.respawn_at = None;
                self.spawn();
            }
        }
    }

    /// `next` is served from now on.
    pub(super) fn adopt(&mut self, next: Generation) {
        let old = std::mem::replace(&mut self.current, next);
        old.sockets.unlink_except(&self.current.sockets);
        match self.current.log() {
            Ok(log) => self.log = log,
            Err(error) => self.log.write(Level::Alert, format_args!("dup() failed {}", OsError(&error))),
        }
        let (before, now) = (&old.core.pid, &self.current.core.pid);
        if before != now {
            if let Some(path) = now {
                // If it fails, the log has the reason, and the program continues to serve.
                let _ = pidfile::write(path, &self.log);
            }
            if let Some(path) = before {
                pidfile::remove(path, &self.log);
            }
            self.follow_pid_file();
        }
    }

    /// Moves the takeover socket to the pid file of the configuration in operation.
    fn follow_pid_file(&mut self) {
        match (&mut self.takeover, &self.current.core.pid) {
            (Some(takeover), Some(pid)) => takeover.rename(pid, &self.log),
            (Some(_), None) => self.takeover.take().into_iter().for_each(TakeoverSocket::remove),
            (None, _) => {}
        }
    }

    pub(super) fn abandon_pending(&mut self) {
        if let Some(pending) = self.pending.take() {
            pending.sockets.unlink_except(&self.current.sockets);
        }
    }

    pub(super) fn reopen_logs(&mut self) {
        self.log.write(Level::Notice, "reopening logs");
        for generation in std::iter::once(&mut self.current).chain(&mut self.pending) {
            let owner = generation.identity.as_ref().map(identity::Identity::uid);
            generation.logs.reopen(owner, &self.log);
        }
        if let Err(error) = self.current.logs.replace_in(&mut self.log) {
            self.log.write(Level::Alert, format_args!("dup() failed {}", OsError(&error)));
        }
        for worker in self.worker.iter_mut().chain(&mut self.retired) {
            worker.reopen_logs(self.pending.as_ref().unwrap_or(&self.current));
        }
    }
}
