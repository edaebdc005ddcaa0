//! What the supervisor needs from a data plane.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use balanza_config::model::membership::{Changes, Notify};
use balanza_config::model::{Config, ListenAddress};

/// Everything that a data plane works with; it opens and binds nothing itself.
#[derive(Debug)]
pub struct Setup {
    /// The configuration.
    pub config: Arc<Config>,
    /// The listening sockets: for a TCP address at least one for each thread, possibly more (connections wait in
    /// every one of them, so all must be accepted from); for a Unix-domain address one.
    pub listeners: Vec<(ListenAddress, Vec<OwnedFd>)>,
    /// The log files, opened for appending.
    pub logs: Vec<(PathBuf, OwnedFd)>,
    /// Worker threads.
    pub threads: usize,
    /// What was changed of upstreams' servers before the start. A reload keeps what the data plane has changed itself.
    pub changes: Changes,
    /// How many worker processes were started in the place of one that died.
    pub respawned: u64,
}

/// A running data plane. Dropping it stops it at once, with what is buffered for the logs written.
pub trait Engine {
    /// Changes to another configuration without closing client connections. On an error the old one stays in use.
    ///
    /// # Errors
    /// Why the new one cannot be used.
    fn reload(&self, setup: Setup) -> anyhow::Result<()>;

    /// Tells of every change of upstreams' servers from now on.
    fn on_change(&self, notify: Notify);

    /// Writes to these files from now on.
    fn reopen_logs(&self, logs: Vec<(PathBuf, OwnedFd)>);

    /// Stops accepting, closes idle connections and finishes the requests in flight.
    fn drain(&self);

    /// Whether nothing is in flight any more after [`Engine::drain`].
    fn is_drained(&self) -> bool;
}

/// Starts a data plane.
pub type Start = fn(Setup) -> anyhow::Result<Box<dyn Engine>>;
