//! The account that the worker runs as, and its limits.

use std::ffi::CString;

use anyhow::Context;
use balanza_config::model::{Account, Level, Process};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::{Gid, Group, Uid, User};
use serde::{Deserialize, Serialize};

use crate::Failed;
use crate::log::{Log, OsError};
use crate::sys;

/// A resolved account.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    user: String,
    uid: u32,
    gid: u32,
}

impl Identity {
    /// Looks the account up, if this process is root; others cannot change theirs, and need none.
    ///
    /// Without a group it is the one that has the user's name, as in NGINX, or else the user's own.
    ///
    /// # Errors
    /// The log names the user or the group that does not exist.
    pub fn resolve(account: &Account, log: &Log) -> Result<Option<Self>, Failed> {
        if !nix::unistd::geteuid().is_root() {
            return Ok(None);
        }
        let unknown = |call: &str, name: &str| {
            log.write(Level::Emerg, format_args!("{call}(\"{name}\") failed"));
            Failed
        };
        let user = User::from_name(&account.user).ok().flatten().ok_or_else(|| unknown("getpwnam", &account.user))?;
        let gid = match &account.group {
            Some(group) => Group::from_name(group).ok().flatten().ok_or_else(|| unknown("getgrnam", group))?.gid,
            None => Group::from_name(&account.user).ok().flatten().map_or(user.gid, |group| group.gid),
        };
        Ok(Some(Self { user: user.name, uid: user.uid.as_raw(), gid: gid.as_raw() }))
    }

    /// The user.
    pub fn uid(&self) -> Uid {
        Uid::from_raw(self.uid)
    }

    /// Becomes this account for good.
    ///
    /// # Errors
    /// The call that failed; the process must not go on then.
    pub fn assume(&self) -> anyhow::Result<()> {
        let (uid, gid) = (self.uid(), Gid::from_raw(self.gid));
        let name = CString::new(self.user.as_str())?;
        nix::unistd::initgroups(&name, gid).with_context(|| format!("initgroups({}, {gid}) failed", self.user))?;
        nix::unistd::setgid(gid).with_context(|| format!("setgid({gid}) failed"))?;
        nix::unistd::setuid(uid).with_context(|| format!("setuid({uid}) failed"))
    }
}

/// Decides whether this process leaves a core file if it crashes. One that has changed its user leaves none otherwise, and
/// one with keys must not.
///
/// # Errors
/// The call failed.
pub fn leave_core_file(leaves: bool) -> anyhow::Result<()> {
    nix::sys::prctl::set_dumpable(leaves).context("prctl(PR_SET_DUMPABLE) failed")
}

/// Obeys what needs the rights that the process starts with: `worker_rlimit_core` and `worker_priority`.
pub fn obey_first(process: &Process, log: &Log) {
    if let Some(most) = process.rlimit_core
        && let Err(error) = setrlimit(Resource::RLIMIT_CORE, most, most)
    {
        let (code, text) = (error as i32, error.desc());
        log.write(Level::Alert, format_args!("setrlimit(RLIMIT_CORE, {most}) failed ({code}: {text})"));
    }
    if let Some(priority) = process.priority
        && let Err(error) = sys::set_priority(priority)
    {
        log.write(Level::Alert, format_args!("setpriority({priority}) failed {}", OsError(&error)));
    }
}

/// Obeys `working_directory`, with the rights of the worker's account.
///
/// # Errors
/// The directory does not exist, or the account may not enter it.
pub fn obey_last(process: &Process) -> anyhow::Result<()> {
    match &process.working_directory {
        Some(path) => std::env::set_current_dir(path)
            .map_err(|error| anyhow::anyhow!("chdir(\"{}\") failed {}", path.display(), OsError(&error))),
        None => Ok(()),
    }
}

/// Lets this process and those that it starts open as many files as the system allows: a machine with many processors
/// has many listening sockets.
pub fn lift_file_limit() {
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        // Any process may raise it to the hard limit; if that fails, the old limit may be enough.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}

/// `worker_rlimit_nofile`. NGINX has a process for each of `worker_processes` and limits each of them; here they are
/// threads of one process, which therefore gets their sum.
///
/// # Errors
/// When the hard limit is lower and this process is not root.
pub fn limit_files(each: u64, threads: usize) -> nix::Result<()> {
    let all = each.saturating_mul(threads as u64);
    setrlimit(Resource::RLIMIT_NOFILE, all, all)
}
