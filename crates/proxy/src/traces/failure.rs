//! Why a collector does not have a message, and what is to be done about it.

use std::time::Duration;

/// A reason, as far as the log tells reasons apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// No connection, or one that was lost.
    Connection,
    /// No answer in time.
    Time,
    /// An answer that cannot be read.
    Answer,
    /// A status of HTTP.
    Http(u16),
    /// A status of gRPC.
    Grpc(u16),
    /// The collector has taken a part of the spans.
    Rejected,
    /// Too many spans waited.
    Crowded,
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// The spans are lost.
    Drop,
    /// To be sent on another connection: one that was kept is over, and the collector has not looked at the message.
    Reconnect,
    /// To be sent again later, after this time if the collector says one.
    Later(Option<Duration>),
}

/// Why a collector does not have a message.
#[derive(Debug, PartialEq, Eq)]
pub struct Failure {
    pub kind: Kind,
    /// In words.
    pub why: String,
    pub then: Then,
}

impl Failure {
    /// One that another attempt would not change.
    pub fn new(kind: Kind, why: impl Into<String>) -> Failure {
        Failure { kind, why: why.into(), then: Then::Drop }
    }

    /// A status of HTTP other than success, with what the answer says of it. `wait` is the time in Retry-After.
    pub fn of_status(status: u16, said: &str, wait: Option<Duration>) -> Failure {
        let said: String = said.chars().take(200).collect();
        let colon = if said.is_empty() { "" } else { ": " };
        let then = if matches!(status, 429 | 502 | 503 | 504) { Then::Later(wait) } else { Then::Drop };
        Failure {
            kind: Kind::Http(status),
            why: format!("the collector answers with status {status}{colon}{said}"),
            then,
        }
    }
}
