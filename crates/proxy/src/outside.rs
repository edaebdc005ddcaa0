//! What finds servers outside the configuration: names that are resolved, and sources that are followed.

use std::sync::Arc;
use std::time::SystemTime;

use balanza_config::model::membership::{Found, Protocol};
use balanza_config::model::{Upstream, UpstreamServer};

use crate::discovery::Discoveries;
use crate::names::Names;

/// How a name or a source is at present.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Condition {
    /// What messages call it.
    pub name: String,
    /// How many servers it has.
    pub servers: usize,
    /// Its entries that are no servers.
    pub wrong: usize,
    /// When it answered last; none before it has.
    pub answered: Option<SystemTime>,
    /// Why it has not answered since.
    pub error: Option<String>,
}

impl Condition {
    /// That of a name or a source that has not been asked yet.
    pub fn new(name: String) -> Condition {
        Condition { name, ..Condition::default() }
    }

    /// It has answered.
    pub fn answered(&mut self, servers: usize) {
        self.servers = servers;
        self.answered = Some(SystemTime::now());
        self.error = None;
    }
}

/// Both, of one process.
pub struct Outside<'a> {
    /// `resolve`.
    pub names: &'a Arc<Names>,
    /// `discover`.
    pub discoveries: &'a Arc<Discoveries>,
}

impl Outside<'_> {
    /// What the sources of an upstream have at present.
    pub fn found(&self, protocol: Protocol, conf: &Upstream) -> Vec<Found> {
        if conf.discovers.is_empty() { Vec::new() } else { self.discoveries.found(protocol, conf) }
    }

    /// How the names of an upstream are.
    pub fn names(&self, protocol: Protocol, conf: &Upstream) -> Vec<Condition> {
        if conf.resolved.is_empty() { Vec::new() } else { self.names.conditions(protocol, &conf.name) }
    }

    /// How its sources are.
    pub fn sources(&self, protocol: Protocol, conf: &Upstream) -> Vec<Condition> {
        if conf.discovers.is_empty() { Vec::new() } else { self.discoveries.conditions(protocol, conf) }
    }

    /// An upstream's own servers, then those that its names have at present, then these of its sources.
    pub fn behind(
        &self,
        own: &[UpstreamServer],
        protocol: Protocol,
        conf: &Upstream,
        found: &[Found],
    ) -> Vec<UpstreamServer> {
        let mut servers = own.to_vec();
        if !conf.resolved.is_empty() {
            servers.extend(self.names.resolved_of(protocol, &conf.name));
        }
        servers.extend(found.iter().flat_map(|found| found.servers.iter().cloned()));
        servers
    }
}
