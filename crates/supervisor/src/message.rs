//! The messages between the supervisor and its worker.

use std::path::PathBuf;

use balanza_config::{Bundle, Options};
use serde::{Deserialize, Serialize};

use crate::changes::Listed;
use crate::identity::Identity;

/// To the worker.
#[derive(Debug, Serialize, Deserialize)]
pub enum ToWorker {
    /// Serve this. The descriptors are the sockets in the order of `listeners`, then the logs, then the
    /// secrets, then the takeover socket.
    Configure(Box<Configure>),
    /// Write to these files; their descriptors are beside it.
    ReopenLogs {
        /// In the order of the descriptors.
        paths: Vec<PathBuf>,
    },
    /// Whether another supervisor serves on the same sockets: the new binary of an upgrade.
    Shared(bool),
    /// Finish what is in flight and exit.
    Drain,
    /// Exit now.
    Stop,
}

/// A configuration with all that it needs.
#[derive(Debug, Serialize, Deserialize)]
pub struct Configure {
    /// Names it in the answer.
    pub generation: u64,
    /// How to load it.
    pub options: Options,
    /// What it was loaded from: loading it again gives exactly what the supervisor has checked.
    pub bundle: Bundle,
    /// The account that the first configuration of a worker sets.
    pub identity: Option<Identity>,
    /// Worker threads.
    pub threads: usize,
    /// Addresses, as [`crate::listen::Shown`] writes them, and the number of sockets of each.
    pub listeners: Vec<(String, usize)>,
    /// Paths of the log files.
    pub logs: Vec<PathBuf>,
    /// What was changed of upstreams' servers before; a worker that serves already knows better.
    pub changes: Listed,
    /// How many workers were started in the place of one that died.
    pub respawned: u64,
    /// Whether there is a descriptor of secrets.
    pub secrets: bool,
    /// Whether the last descriptor is the takeover socket by which the worker can be taken over.
    pub takeover: bool,
}

/// From the worker.
#[derive(Debug, Serialize, Deserialize)]
pub enum FromWorker {
    /// It serves this configuration.
    Ready {
        /// Which.
        generation: u64,
    },
    /// The servers of upstreams have been changed. This is all that was changed.
    Changed(Listed),
    /// It cannot, and keeps the configuration that it had.
    Failed {
        /// Which.
        generation: u64,
        /// Why.
        message: String,
    },
}
