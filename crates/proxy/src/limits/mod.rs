//! Zones of `limit_req` and `limit_conn`: what all workers know of the keys of requests and connections.
//!
//! A zone consists of parts with a lock each, so that workers seldom wait for one another. It is kept over a reload if its
//! name, its key and its size are the same. Times are arguments.

mod bucket;
mod connections;
mod counts;
mod memory;
mod requests;
mod table;

use balanza_config::model::{self, Config};

pub use self::connections::{ConnectionZone, LONGEST_CONNECTION_KEY, Place};
pub use self::counts::Decisions;
pub use self::requests::{Found, RequestZone};

/// What was decided: `$limit_req_status` and `$limit_conn_status`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Status {
    Passed,
    Delayed,
    Rejected,
    DelayedDryRun,
    RejectedDryRun,
}

impl Status {
    /// As the variables have it.
    pub fn text(self) -> &'static str {
        match self {
            Status::Passed => "PASSED",
            Status::Delayed => "DELAYED",
            Status::Rejected => "REJECTED",
            Status::DelayedDryRun => "DELAYED_DRY_RUN",
            Status::RejectedDryRun => "REJECTED_DRY_RUN",
        }
    }
}

/// The zones of a configuration, by their numbers in it.
pub struct Zones {
    /// `limit_req_zone`.
    pub requests: Vec<RequestZone>,
    /// `limit_conn_zone` of `http`.
    pub connections: Vec<ConnectionZone>,
    /// `limit_conn_zone` of `stream`.
    pub sessions: Vec<ConnectionZone>,
}

impl Zones {
    /// The zones of a configuration, with the states that they had in the one before.
    ///
    /// # Errors
    /// A zone had another key.
    pub fn new(config: &Config, before: Option<&Zones>) -> anyhow::Result<Zones> {
        let request = |zone: &model::RequestZone| {
            let known = before.and_then(|before| before.requests.iter().find(|known| known.name == zone.name));
            RequestZone::new(zone, known)
        };
        let connection = |zone: &model::ConnectionZone, before: &[ConnectionZone]| {
            ConnectionZone::new(zone, before.iter().find(|known| known.name == zone.name))
        };
        let of_http = before.map_or(&[][..], |before| &before.connections);
        let of_stream = before.map_or(&[][..], |before| &before.sessions);
        Ok(Zones {
            requests: config.http.request_zones.iter().map(request).collect::<Result<_, _>>()?,
            connections: config
                .http
                .connection_zones
                .iter()
                .map(|zone| connection(zone, of_http))
                .collect::<Result<_, _>>()?,
            sessions: config
                .stream
                .connection_zones
                .iter()
                .map(|zone| connection(zone, of_stream))
                .collect::<Result<_, _>>()?,
        })
    }

    /// What the zone of this name has decided so far; `None` without one.
    pub fn decisions(&self, name: &str) -> Option<Decisions> {
        let requests = self.requests.iter().map(|zone| (&zone.name, zone.counts()));
        let connections = self.connections.iter().chain(&self.sessions).map(|zone| (&zone.name, zone.counts()));
        requests.chain(connections).find(|(known, _)| *known == name).map(|(_, counts)| counts.sum())
    }
}
