//! `health_check` and `match`.

use std::sync::Arc;
use std::time::Duration;

use crate::regex::Regex;
use crate::template::Template;

/// `health_check`: how the servers of an upstream are asked whether they work.
#[derive(Debug, Clone)]
pub struct HealthCheck {
    /// Which of the checks of its upstream.
    pub index: usize,
    /// The upstream: an index into those of its protocol.
    pub upstream: usize,
    /// `interval=` (5s): between two checks of a server.
    pub interval: Duration,
    /// `jitter=` (0): each check is delayed by a random time up to this.
    pub jitter: Duration,
    /// `fails=` (1): so many failed checks in a row make a server unhealthy.
    pub fails: u32,
    /// `passes=` (1): so many passed checks in a row make it healthy.
    pub passes: u32,
    /// `mandatory`: a server takes no requests before its first passed check.
    pub mandatory: bool,
    /// `persistent`: a server that was healthy stays so when the configuration is reloaded.
    pub persistent: bool,
    /// `port=`, instead of the server's own.
    pub port: Option<u16>,
    /// `keepalive_time=`: for how long a connection is used for further checks; none is without it.
    pub keepalive_time: Option<Duration>,
    /// What is asked.
    pub probe: Probe,
}

/// What a check asks, and what the right answer is.
#[derive(Debug, Clone)]
pub enum Probe {
    /// A request.
    Http {
        /// `uri=` (/).
        uri: Box<[u8]>,
        /// `match=`; without it a status from 200 to 399 is right.
        expected: Option<Arc<Match>>,
    },
    /// The health checking protocol of gRPC.
    Grpc {
        /// `grpc_service=`.
        service: Box<[u8]>,
        /// `grpc_status=` (0): the status that is right. For 0 the service must also be serving.
        status: u32,
    },
    /// A connection.
    Stream {
        /// `match=`; without it a connection is enough.
        expected: Option<Arc<StreamMatch>>,
    },
}

/// `match` of `http`. An answer is right if all of it holds.
#[derive(Debug, Clone, Default)]
pub struct Match {
    /// `status`.
    pub status: Option<StatusMatch>,
    /// `header`, in order.
    pub headers: Vec<HeaderMatch>,
    /// `body`, in order: an expression, and whether it must match.
    pub bodies: Vec<(Arc<Regex>, bool)>,
    /// `require`: none of the values may be empty or "0".
    pub required: Vec<Template>,
}

/// `status [!] CODE|FIRST-LAST …`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatusMatch {
    /// The statuses, first and last.
    pub ranges: Vec<(u16, u16)>,
    /// `!`: none of them.
    pub negated: bool,
}

impl StatusMatch {
    /// Whether it holds.
    pub fn holds(&self, status: u16) -> bool {
        self.ranges.iter().any(|(first, last)| (*first..=*last).contains(&status)) != self.negated
    }
}

/// `header`.
#[derive(Debug, Clone)]
pub struct HeaderMatch {
    /// The field's name.
    pub name: Box<[u8]>,
    /// What its value must be.
    pub value: ValueMatch,
    /// `!`, `!=`, `!~`: no field of this name is so.
    pub negated: bool,
}

/// The value of a field.
#[derive(Debug, Clone)]
pub enum ValueMatch {
    /// Anything: there is such a field.
    Any,
    /// `=`.
    Is(Box<[u8]>),
    /// `~`, `~*`.
    Regex(Arc<Regex>),
}

/// `match` of `stream`.
#[derive(Debug, Clone, Default)]
pub struct StreamMatch {
    /// `send`.
    pub send: Vec<u8>,
    /// `expect`.
    pub expect: Option<Expected>,
}

/// What a server must send.
#[derive(Debug, Clone)]
pub enum Expected {
    /// These bytes first.
    Bytes(Vec<u8>),
    /// Something that matches.
    Regex(Arc<Regex>),
}
