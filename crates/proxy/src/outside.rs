//! What finds servers outside the configuration: names that are resolved, and sources that are followed.

use std::sync::Arc;

use balanza_config::model::membership::{Found, Protocol};
use balanza_config::model::{Upstream, UpstreamServer};

use crate::discovery::Discoveries;
use crate::names::Names;
use crate::source_condition::Condition;

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
