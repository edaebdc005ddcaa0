//! What a session of datagrams has counted, and what follows from it: NGINX's `proxy_requests` and `proxy_responses`.

use balanza_config::model::StreamServer;
use balanza_net::clock::Nanos;

/// How many datagrams a session is for.
#[derive(Clone, Copy, Default)]
pub struct Expected {
    /// Of the client; 0 is no limit.
    pub requests: u64,
    /// Of the server, for each of the client; none is no limit.
    pub responses: Option<u64>,
}

impl Expected {
    /// As a server is configured.
    pub fn of(server: &StreamServer) -> Expected {
        Expected { requests: server.requests.into(), responses: server.responses.map(u64::from) }
    }
}

/// The counts of one session.
#[derive(Clone, Copy, Default)]
pub struct Account {
    /// Datagrams of the client.
    pub requests: u64,
    /// Datagrams of the server.
    pub responses: u64,
    /// Bytes from the client.
    pub from_client: u64,
    /// Bytes to the client.
    pub to_client: u64,
    /// Bytes to the current server.
    pub to_server: u64,
    /// Bytes from the current server.
    pub from_server: u64,
    /// When a datagram came last.
    pub active: Nanos,
}

impl Account {
    /// The client has sent a datagram.
    pub fn request(&mut self, now: Nanos, bytes: usize) {
        self.run(now, 1, bytes);
    }

    /// The client has sent so many datagrams at once.
    pub fn run(&mut self, now: Nanos, count: usize, bytes: usize) {
        self.requests += count as u64;
        self.from_client += bytes as u64;
        self.active = now;
    }

    /// The server has sent a datagram.
    pub fn response(&mut self, now: Nanos, bytes: usize) {
        self.responses += 1;
        self.from_server += bytes as u64;
        self.to_client += bytes as u64;
        self.active = now;
    }

    /// The next datagram of the client begins another session.
    pub fn is_full(&self, expected: Expected) -> bool {
        expected.requests > 0 && self.requests >= expected.requests
    }

    /// The server has sent what it was expected to, so that a silence is no failure.
    pub fn is_answered(&self, expected: Expected) -> bool {
        expected.responses.is_none_or(|each| self.responses >= each.saturating_mul(self.requests))
    }

    /// Nothing is missing and nothing else is expected: the session ends.
    pub fn is_done(&self, expected: Expected) -> bool {
        let complete = expected.requests == 0 || self.is_full(expected);
        complete && expected.responses.is_some() && self.is_answered(expected)
    }

    /// When the session has been silent for too long.
    pub fn deadline(&self, timeout: Nanos) -> Nanos {
        self.active.saturating_add(timeout)
    }
}
