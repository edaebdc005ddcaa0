//! A configuration with its sockets and files, which are bound and opened before the configuration is used.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;

use balanza_config::Options;
use balanza_config::model::membership::Changes;
use balanza_config::model::{Config, Core, Level, LogTarget};
use balanza_config::{Bundle, FileSystem, Recorder, Secrets};

use crate::Failed;
use crate::engine::Setup;
use crate::files::LogFiles;
use crate::identity::{Identity, leave_core_file};
use crate::listen::{Purpose, Shown, Sockets};
use crate::load;
use crate::log::{Log, OsError};
use crate::message::Configure;
use crate::secrets;
use crate::takeover::TakeoverSocket;
use crate::temporary;

/// A configuration that was read, before anything was opened for it.
pub struct Loaded {
    /// What was loaded.
    pub config: Config,
    options: Options,
    bundle: Bundle,
    secrets: Secrets,
}

impl Loaded {
    /// Reads the configuration.
    ///
    /// # Errors
    /// The log has all reasons.
    pub fn load(options: &Options, log: &Log) -> Result<Self, Failed> {
        let recorder = Recorder::new(FileSystem);
        let config = load::first(options, &recorder, log)?;
        if config.core.process.has_keys
            && let Err(error) = leave_core_file(false)
        {
            log.write(Level::Alert, format_args!("{error:#}"));
        }
        let (bundle, secrets) = recorder.into_parts();
        Ok(Self { config, options: options.clone(), bundle, secrets })
    }

    /// Every log file that it names without variables.
    pub fn logs(&self) -> BTreeSet<PathBuf> {
        log_paths(&self.config)
    }

    /// Opens its logs and binds its sockets, using those in `sockets` that fit. What was loaded is returned beside, since only
    /// a data plane in this process needs it: with thousands of servers it takes more memory than all else.
    ///
    /// # Errors
    /// The log has all reasons. Nothing has changed then.
    pub fn open(
        self,
        number: u64,
        sockets: &Sockets,
        purpose: Purpose,
        log: &Log,
    ) -> Result<(Generation, Config), Failed> {
        let Self { config, options, bundle, secrets } = self;
        let identity = Identity::resolve(&config.core.user, log);
        let logs = LogFiles::open(log_paths(&config), log);
        let threads = config.core.worker_processes.unwrap_or_else(processors).max(1);
        let owner = identity.as_ref().ok().and_then(Option::as_ref).map(Identity::uid);
        let directories = temporary::prepare(config.http.temp_directories.iter().map(PathBuf::as_path), owner, log);
        let (identity, logs) = (identity?, logs?);
        directories?;
        let secrets = secrets::store(&secrets).map_err(|error| {
            log.write(Level::Emerg, format_args!("cannot keep the configuration's keys {}", OsError(&error)));
            Failed
        })?;
        let sockets = sockets.prepare(&config.sockets().collect::<Vec<_>>(), threads, purpose, log)?;
        let core = config.core.clone();
        Ok((Generation { number, core, sockets, logs, identity, threads, options, bundle, secrets }, config))
    }
}

/// A usable configuration.
#[derive(Debug)]
pub struct Generation {
    /// Counts reloads, from 1.
    pub number: u64,
    /// Its process-wide settings.
    pub core: Core,
    /// The listening sockets.
    pub sockets: Sockets,
    /// The log files.
    pub logs: LogFiles,
    /// The worker's account.
    pub identity: Option<Identity>,
    /// Worker threads.
    pub threads: usize,
    options: Options,
    bundle: Bundle,
    /// Where the worker finds its keys, if it has any.
    secrets: Option<OwnedFd>,
}

impl Generation {
    /// Loads the configuration, opens its logs and binds its sockets, using those in `sockets` that fit.
    ///
    /// # Errors
    /// The log has all reasons. Nothing has changed then.
    pub fn prepare(
        number: u64,
        options: &Options,
        sockets: &Sockets,
        purpose: Purpose,
        log: &Log,
    ) -> Result<(Self, Config), Failed> {
        Loaded::load(options, log)?.open(number, sockets, purpose, log)
    }

    /// The log that this configuration asks for.
    ///
    /// # Errors
    /// When the process has no descriptor left.
    pub fn log(&self) -> io::Result<Log> {
        self.logs.log(&self.core.error_log)
    }

    /// The message that hands all this to a worker, with its descriptors. `kept` is what the supervisor knows beside it:
    /// the changes of servers, and how many workers it has replaced.
    pub fn message<'a>(
        &'a self,
        takeover: Option<&'a TakeoverSocket>,
        kept: (&Changes, u64),
    ) -> (Configure, Vec<BorrowedFd<'a>>) {
        let mut descriptors = Vec::new();
        let mut listeners = Vec::new();
        for (address, sockets) in self.sockets.iter() {
            listeners.push((Shown(address).to_string(), sockets.len()));
            descriptors.extend(sockets);
        }
        let mut logs = Vec::new();
        for (path, file) in self.logs.iter() {
            logs.push(path.to_path_buf());
            descriptors.push(file);
        }
        descriptors.extend(self.secrets.as_ref().map(AsFd::as_fd));
        descriptors.extend(takeover.map(TakeoverSocket::as_fd));
        let message = Configure {
            generation: self.number,
            options: self.options.clone(),
            bundle: self.bundle.clone(),
            identity: self.identity.clone(),
            threads: self.threads,
            listeners,
            logs,
            changes: kept.0.clone().into_iter().collect(),
            respawned: kept.1,
            secrets: self.secrets.is_some(),
            takeover: takeover.is_some(),
        };
        (message, descriptors)
    }

    /// All this for a data plane in the same process, with what was loaded.
    ///
    /// # Errors
    /// When the process has no descriptor left.
    pub fn setup(&self, config: Config) -> io::Result<Setup> {
        Ok(Setup {
            config: Arc::new(config),
            listeners: self.sockets.duplicate()?,
            logs: self.logs.duplicate()?,
            threads: self.threads,
            changes: Changes::new(),
            respawned: 0,
        })
    }
}

/// `worker_processes auto`: the processors that this process may run on.
fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Every log file that the configuration names without variables.
fn log_paths(config: &Config) -> BTreeSet<PathBuf> {
    let main = config.core.error_log.iter().filter_map(|log| match &log.target {
        LogTarget::File(path) => Some(path),
        LogTarget::Stderr | LogTarget::Syslog(_) => None,
    });
    main.chain(config.log_files()).cloned().collect()
}
