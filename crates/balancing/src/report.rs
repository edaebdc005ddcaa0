//! The result of a request, as the caller reports it.

use crate::Nanos;

/// How a request ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Outcome {
    /// Success: its times count in the averages.
    Success,
    /// Counts towards `max_fails`: NGINX's `error`, `timeout`, `invalid_header` and the 5xx of `proxy_next_upstream`.
    Failure,
    /// Another response with status 5xx or 429: it does not count towards `max_fails`. For algorithms that use load or
    /// latency it counts like a failure, because errors are often answered fast and would attract requests.
    ErrorResponse,
    /// None of these: the client closed the connection, or the request was retried after a 403 or 404.
    #[default]
    Neutral,
}

impl Outcome {
    /// The outcome of a request whose response was forwarded to the client.
    pub fn of_status(status: u16) -> Outcome {
        if status >= 500 || status == 429 { Outcome::ErrorResponse } else { Outcome::Success }
    }
}

/// The result of a request to a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// How it ended.
    pub outcome: Outcome,
    /// From the choice of the server to the response's header.
    pub header_time: Option<Nanos>,
    /// From the choice of the server to the response's last byte, or to the end of a failed attempt. Only the times of
    /// successes count in the averages.
    pub last_byte_time: Option<Nanos>,
    /// Bytes of the response.
    pub bytes: u64,
}

impl Report {
    pub(crate) fn failed(&self) -> bool {
        self.outcome == Outcome::Failure
    }

    /// Whether the request counts against the server, for algorithms that use load or latency.
    pub(crate) fn speaks_against(&self) -> bool {
        matches!(self.outcome, Outcome::Failure | Outcome::ErrorResponse)
    }
}
