//! Names that are resolved while the program runs.

use std::net::SocketAddr;
use std::time::Duration;

use super::upstream::UpstreamServer;

/// `resolver`, with `resolver_timeout`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Resolver {
    /// Name servers, which are asked in rotation.
    pub servers: Vec<SocketAddr>,
    /// `valid=`: how long answers hold, whatever they say.
    pub valid: Option<Duration>,
    /// `ipv4=` (on): addresses of IPv4 are asked for.
    pub ipv4: bool,
    /// `ipv6=` (on): addresses of IPv6 are asked for.
    pub ipv6: bool,
    /// `status_zone=`: what its questions are counted for.
    pub status_zone: Option<String>,
    /// `resolver_timeout` (30s): how long a name may take.
    pub timeout: Duration,
}

/// `server NAME … resolve`: as many servers as the name has addresses.
#[derive(Debug, Clone, PartialEq)]
pub struct ResolvedServer {
    /// The host name.
    pub host: String,
    /// The port; that of each server of a service is the service's.
    pub port: u16,
    /// `service=`: the name of a service whose servers are used (SRV records).
    pub service: Option<String>,
    /// What its servers have in common. The address is to be filled in.
    pub template: UpstreamServer,
}
