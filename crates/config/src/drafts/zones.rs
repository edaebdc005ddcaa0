//! Shared memory zones.

use super::Protocol;
use crate::diagnostics::Span;
use crate::model::{ConnectionZone, RequestZone};

/// Eight pages are the least that NGINX's allocator works with.
pub(crate) const SMALLEST_ZONE: u64 = 8 * 4096;

/// What a zone is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// The servers of upstreams, which may share it.
    Servers,
    /// The sessions of one upstream, which is named.
    Sessions(String),
    /// `limit_req`.
    Requests,
    /// `limit_conn`.
    Connections,
    /// `keyval`.
    Pairs,
}

/// A zone.
#[derive(Debug)]
pub(crate) struct Zone {
    pub size: Option<u64>,
    pub span: Span,
    pub protocol: Protocol,
    pub purpose: Purpose,
}

/// The zones of a protocol's limits that were mentioned, by number.
#[derive(Debug, Default)]
pub(crate) struct LimitZones {
    pub requests: Vec<RequestZone>,
    pub connections: Vec<ConnectionZone>,
}

impl LimitZones {
    pub fn requests(&mut self, name: &str) -> usize {
        let known = self.requests.iter().position(|zone| zone.name == name);
        known.unwrap_or_else(|| {
            self.requests.push(RequestZone { name: name.to_string(), ..RequestZone::default() });
            self.requests.len() - 1
        })
    }

    pub fn connections(&mut self, name: &str) -> usize {
        let known = self.connections.iter().position(|zone| zone.name == name);
        known.unwrap_or_else(|| {
            self.connections.push(ConnectionZone { name: name.to_string(), ..ConnectionZone::default() });
            self.connections.len() - 1
        })
    }

    /// All of them. Those that no directive defines were reported as errors.
    pub fn take(&mut self) -> (Vec<RequestZone>, Vec<ConnectionZone>) {
        (std::mem::take(&mut self.requests), std::mem::take(&mut self.connections))
    }
}
