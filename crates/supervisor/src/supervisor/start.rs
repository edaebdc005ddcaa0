//! The start: does everything that can fail before the first worker starts.

use std::process::ExitCode;

use balanza_config::model::Level;

use super::Supervisor;
use crate::children::BackOff;
use crate::daemon::{self, Detached};
use crate::generation::Loaded;
use crate::invocation::Invocation;
use crate::listen::Purpose;
use crate::log::{Log, OsError};
use crate::signals::{self, Signals};
use crate::takeover::{Orphan, TakeoverSocket};
use crate::{Failed, identity, pidfile, single, title, upgrade};

/// Runs until a signal ends it.
pub fn run(invocation: Invocation) -> ExitCode {
    signals::hold_requests();
    title::become_supervisor(&invocation.arguments);
    start(invocation).unwrap_or(ExitCode::FAILURE)
}

fn start(invocation: Invocation) -> Result<ExitCode, Failed> {
    let log = invocation.starting_log();
    identity::lift_file_limit();
    let inherited = upgrade::inherited_list();
    let changes = upgrade::inherited_changes(&log);
    let predecessor = inherited.is_some().then(nix::unistd::getppid);
    let sockets = inherited.as_ref().map(|list| upgrade::adopt(list, &log)).unwrap_or_default();
    let loaded = Loaded::load(&invocation.options, &log)?;
    let pid = loaded.config.core.pid.clone().filter(|_| predecessor.is_none());
    let (orphan, sockets) = match pid.and_then(|pid| Orphan::find(&pid, &log)) {
        Some((orphan, sockets)) => (Some(orphan), sockets),
        None => (None, sockets),
    };
    let (current, config) = loaded.open(1, &sockets, Purpose::Serve, &log)?;
    drop(sockets);
    let log = current.log().map_err(|error| fail(&log, "dup() failed", &error))?.with_console(invocation.console);
    if let Some(list) = inherited {
        log.write(Level::Notice, format_args!("using inherited sockets from \"{list}\""));
    }
    if let Some(orphan) = &orphan {
        let worker = orphan.worker();
        log.write(
            Level::Notice,
            format_args!("using the sockets of worker process {worker}, whose master process died"),
        );
    }
    let core = &current.core;
    let mut ready = None;
    if core.daemon && predecessor.is_none() {
        match daemon::detach().map_err(|error| fail(&log, "fork() failed", &error))? {
            Detached::Foreground(code) => return Ok(code),
            Detached::Background(it) => ready = Some(it),
        }
    }
    let signals = Signals::block().map_err(|error| fail(&log, "signalfd() failed", &error.into()))?;
    if let Some(path) = &core.pid {
        pidfile::write(path, &log)?;
    }
    let daemonized = ready.is_some() || predecessor.is_some();
    if !core.master_process {
        return single::run(invocation, (current, config), log, signals, ready, orphan);
    }
    let takeover = match &orphan {
        Some(orphan) => Some(orphan.takeover_socket().map_err(|error| fail(&log, "dup() failed", &error))?),
        None => core.pid.as_ref().and_then(|pid| TakeoverSocket::open(pid, &log)),
    };
    let supervisor = Supervisor {
        invocation,
        current,
        changes,
        respawned: 0,
        log,
        signals,
        ready,
        predecessor,
        daemonized,
        takeover,
        orphan,
        starting: true,
        pending: None,
        reload_again: false,
        worker: None,
        retired: Vec::new(),
        back_off: BackOff::new(),
        respawn_at: None,
        accepting: true,
        successor: None,
        ending: None,
    };
    Ok(supervisor.run(config))
}

fn fail(log: &Log, what: &str, error: &std::io::Error) -> Failed {
    log.write(Level::Emerg, format_args!("{what} {}", OsError(error)));
    Failed
}
