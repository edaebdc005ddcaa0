//! What the API needs of the engine.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::SystemTime;

use balanza_config::model::UpstreamServer;
use balanza_config::model::membership::{Arm, Change, ChangeError, Protocol};

use super::Failure;
use crate::running_config::Generation;
use crate::servers::blocks::Running;
use crate::servers::membership::{ServerId, Shared};

/// What runs at one time.
pub struct View {
    /// The configuration, with its upstreams and counters.
    pub generation: Arc<Generation>,
    /// The serial numbers of the workers, in their order.
    pub workers: Vec<u64>,
    /// How many processes were started in the place of one that died.
    pub respawned: u64,
    /// How many servers each upstream has lost that still serve requests; those without such servers are left out.
    pub zombies: HashMap<(Protocol, String), usize>,
    /// When servers that drain are set down.
    pub deadlines: HashMap<ServerId, SystemTime>,
    /// Servers that were set down at such a deadline lately, and how much they still served.
    pub cut_off: HashMap<ServerId, u32>,
}

impl View {
    /// The upstreams that have a name.
    pub fn upstreams(&self) -> impl Iterator<Item = &Shared> {
        self.generation.upstreams().filter(|shared| !shared.conf.implicit)
    }

    /// Those of a protocol.
    pub fn upstreams_of(&self, protocol: Protocol) -> impl Iterator<Item = &Shared> {
        self.upstreams().filter(move |shared| shared.protocol == protocol)
    }

    /// Whether the configuration has something of `stream`.
    pub fn has_stream(&self) -> bool {
        let stream = &self.generation.config.stream;
        !stream.listens.is_empty() || !stream.upstreams.is_empty()
    }

    /// The upstream of this name.
    pub fn upstream(&self, protocol: Protocol, name: &str) -> Option<&Shared> {
        self.upstreams_of(protocol).find(|shared| shared.conf.name == name)
    }
}

/// Decides what to change of an upstream. The number says how many of its servers, the first ones, do not come from names or
/// sources.
pub type Decide<'d> = &'d mut dyn FnMut(&Shared, usize) -> Result<Vec<Change>, Failure>;

/// What the API needs of the engine.
pub trait Plane: Send {
    /// What runs now; none if the engine has ended.
    fn view(&self) -> Option<View>;

    /// The servers of an upstream with what a watched file says now, if that is not what was loaded.
    fn listed(&self, protocol: Protocol, upstream: &str) -> Option<Vec<UpstreamServer>>;

    /// How many servers of an upstream, the first ones, do not come from names or other sources.
    fn own(&self, protocol: Protocol, upstream: &str) -> Option<usize>;

    /// Changes an upstream. Nothing else changes it between the decision and the change.
    ///
    /// # Errors
    /// The decision, or what the change is refused for. Then nothing has changed.
    fn change(&self, protocol: Protocol, upstream: &str, decide: Decide<'_>) -> Result<(), Failure>;

    /// An upstream goes on in an arm of an experiment, or as it was before the experiment.
    ///
    /// # Errors
    /// What the method is refused for. Then nothing has changed.
    fn set_arm(&self, protocol: Protocol, upstream: &str, arm: Option<(Arm, Arc<Running>)>) -> Result<(), ChangeError>;
}
