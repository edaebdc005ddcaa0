//! What finds servers outside the configuration: names that are resolved, and sources that are followed.

use std::sync::Arc;

use balanza_config::model::membership::Protocol;
use balanza_config::model::{Upstream, UpstreamServer};

use crate::discovery::Discoveries;
use crate::names::Names;

/// Both, of one process.
pub struct Outside<'a> {
    /// `resolve`.
    pub names: &'a Arc<Names>,
    /// `discover`.
    pub discoveries: &'a Arc<Discoveries>,
}

impl Outside<'_> {
    /// The servers of an upstream that they know at present.
    pub fn servers(&self, protocol: Protocol, conf: &Upstream) -> Vec<UpstreamServer> {
        let mut servers = Vec::new();
        if !conf.resolved.is_empty() {
            servers = self.names.resolved_of(protocol, &conf.name);
        }
        if !conf.discovers.is_empty() {
            servers.extend(self.discoveries.servers(protocol, &conf.name));
        }
        servers
    }
}
