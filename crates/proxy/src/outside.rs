//! Servers from outside the configuration: resolved names, and discovery sources.

use std::sync::Arc;

use balanza_config::model::membership::{Found, Protocol};
use balanza_config::model::{Upstream, UpstreamServer};

use crate::discovery::Discoveries;
use crate::names::Names;
use crate::source_condition::Condition;

/// The names and sources of a process.
pub struct Outside<'a> {
    /// Names with `resolve`.
    pub names: &'a Arc<Names>,
    /// Sources of `discover`.
    pub discoveries: &'a Arc<Discoveries>,
}

impl Outside<'_> {
    /// The current servers of an upstream's sources.
    pub fn found(&self, protocol: Protocol, conf: &Upstream) -> Vec<Found> {
        if conf.discovers.is_empty() { Vec::new() } else { self.discoveries.found(protocol, conf) }
    }

    /// The state of each name of an upstream.
    pub fn names(&self, protocol: Protocol, conf: &Upstream) -> Vec<Condition> {
        if conf.resolved.is_empty() { Vec::new() } else { self.names.conditions(protocol, &conf.name) }
    }

    /// The state of each source of an upstream.
    pub fn sources(&self, protocol: Protocol, conf: &Upstream) -> Vec<Condition> {
        if conf.discovers.is_empty() { Vec::new() } else { self.discoveries.conditions(protocol, conf) }
    }

    /// All servers of an upstream: its own, then those of its names, then those of its sources.
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
