//! The response to the client: its head, and what of it has gone out.

use balanza_message::{Fields, Span};

use crate::downstream::Rate;

/// The head and the trailers of the response to the client, less what its protocol adds.
#[derive(Default)]
pub struct Reply {
    /// The server's reason phrase, in the text of its response; else the usual one of the status.
    pub reason: Option<Span>,
    /// The fields.
    pub fields: Fields,
    /// What the client is told of the body's length; it may be that of a body that does not follow.
    pub length: Option<u64>,
    /// The protocol that the connection changes to, in the text of the server's response.
    pub upgrade: Option<Span>,
    /// The trailers.
    pub trailers: Fields,
}

impl Reply {
    /// Forgets everything, and keeps the room.
    pub fn clear(&mut self) {
        let Reply { reason, fields, length, upgrade, trailers } = self;
        (*reason, *length, *upgrade) = (None, None, None);
        fields.clear();
        trailers.clear();
    }
}

/// What of the response has gone out, and how.
#[derive(Default)]
pub struct Sent {
    /// The head on its way, perhaps with a small body behind it.
    pub text: Vec<u8>,
    /// The head has gone out, or begun to.
    pub head: bool,
    /// Bytes sent to the client.
    pub bytes: u64,
    /// Bytes of the body sent to the client, with its framing.
    pub body_bytes: u64,
    /// The response went out completely.
    pub completed: bool,
    /// The connection may serve another request after this one.
    pub keep_alive: bool,
    /// The body goes out in chunks.
    pub chunked: bool,
    /// Trailers end the body.
    pub trailers: bool,
    /// The rate limit.
    pub rate: Rate,
    /// The rate limit was worked out, or set by the server.
    pub rate_known: bool,
    /// `set $limit_rate` has set its limit.
    pub rate_set: bool,
    /// The client did not read in time.
    pub timed_out: bool,
    /// The connection is to be closed without an answer.
    pub dropped: bool,
}

impl Sent {
    /// Forgets the response, and keeps the room.
    pub fn clear(&mut self) {
        self.text.clear();
        *self = Sent { text: std::mem::take(&mut self.text), ..Sent::default() };
    }
}
