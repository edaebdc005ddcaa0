//! Starts another binary with the same sockets (`USR2`).

use std::path::{Path, PathBuf};

use balanza_config::model::Level;

use super::Supervisor;
use crate::log::OsError;
use crate::takeover::Orphan;
use crate::{pidfile, upgrade};

impl Supervisor {
    /// Not while a new binary runs, and not while the predecessor runs.
    pub(super) fn may_upgrade(&self) -> bool {
        self.successor.is_none() && !self.predecessor_lives()
    }

    pub(super) fn predecessor_lives(&self) -> bool {
        self.predecessor.is_some_and(|pid| nix::unistd::getppid() == pid)
    }

    pub(super) fn change_binary(&mut self) {
        if !self.may_upgrade() {
            let message = "the changing binary signal is ignored: you should shutdown or terminate before either old \
                           or new binary's process";
            self.log.write(Level::Crit, message);
            return;
        }
        self.log.write(Level::Notice, "changing binary");
        if let Some(path) = &self.current.core.pid {
            let old = pidfile::old(path);
            if let Err(error) = std::fs::rename(path, &old) {
                let (path, old, error) = (path.display(), old.display(), OsError(&error));
                self.log.write(
                    Level::Alert,
                    format_args!("rename() {path} to {old} failed before executing new binary process {error}"),
                );
                return;
            }
        }
        self.rename_takeover(pidfile::old);
        match upgrade::execute(&self.invocation.arguments, &self.current.sockets, &self.changes) {
            Ok(pid) => {
                self.log.write(Level::Notice, format_args!("start new binary process {pid}"));
                self.successor = Some(pid);
                self.worker.iter_mut().for_each(|worker| worker.share(true));
            }
            Err(error) => {
                let program = self.invocation.arguments.first().map(|name| name.display().to_string());
                let (program, error) = (program.unwrap_or_default(), OsError(&error));
                self.log.write(
                    Level::Alert,
                    format_args!("execve() failed while executing new binary process \"{program}\" {error}"),
                );
                self.restore_pid_file();
            }
        }
    }

    pub(super) fn successor_died(&mut self) {
        self.successor = None;
        self.worker.iter_mut().for_each(|worker| worker.share(false));
        // Its worker serves at the same time as this one.
        let pid = self.current.core.pid.as_ref();
        if let Some((orphan, _)) = pid.and_then(|pid| Orphan::find(pid, &self.log)) {
            orphan.retire();
        }
        if self.ending.is_none() {
            self.restore_pid_file();
            if !std::mem::replace(&mut self.accepting, true) {
                self.spawn();
            }
        }
    }

    /// The takeover socket follows the pid file.
    fn rename_takeover(&mut self, name: impl Fn(&Path) -> PathBuf) {
        if let (Some(takeover), Some(pid)) = (&mut self.takeover, &self.current.core.pid) {
            takeover.rename(&name(pid), &self.log);
        }
    }

    pub(super) fn restore_pid_file(&mut self) {
        self.rename_takeover(Path::to_owned);
        let Some(path) = &self.current.core.pid else { return };
        let old = pidfile::old(path);
        if let Err(error) = std::fs::rename(&old, path) {
            let (path, old, error) = (path.display(), old.display(), OsError(&error));
            self.log.write(
                Level::Alert,
                format_args!("rename() {old} back to {path} failed after the new binary process exited {error}"),
            );
        }
    }
}
