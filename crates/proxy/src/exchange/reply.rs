//! The response to the client: its head, and what of it has gone out.

use balanza_message::{Fields, Span};

use crate::downstream::Rate;
use crate::filters::Chain;

/// The head and the trailers of the response to the client, less what its protocol adds.
#[derive(Default)]
pub struct Reply {
    /// The server's reason phrase, in the text of its response; else the usual one of the status.
    pub reason: Option<Span>,
    /// The fields.
    pub fields: Fields,
    /// What the client is told of the body's length; it may be that of a body that does not follow.
    pub length: Option<u64>,
    /// The length of the content, whether the client is told or not, until a filter changes it.
    pub content_length: Option<u64>,
    /// A server has composed it.
    pub is_proxied: bool,
    /// It is not to be sent: there is no such range of its body.
    pub unsatisfiable: bool,
    /// The Vary field names Accept-Encoding.
    pub varies: bool,
    /// The protocol that the connection changes to, in the text of the server's response.
    pub upgrade: Option<Span>,
    /// The trailers.
    pub trailers: Fields,
}

impl Reply {
    /// Forgets everything, and keeps the room.
    pub fn clear(&mut self) {
        let Reply { reason, fields, length, content_length, is_proxied, unsatisfiable, varies, upgrade, trailers } =
            self;
        (*reason, *length, *content_length, *upgrade) = (None, None, None, None);
        (*is_proxied, *unsatisfiable, *varies) = (false, false, false);
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
    /// What changes the body on its way.
    pub filters: Option<Box<Chain>>,
    /// The rate limit.
    pub rate: Rate,
    /// The rate limit was worked out, or set by the server or by `set $limit_rate`.
    pub rate_known: bool,
    /// The bytes before it holds were worked out.
    pub after_known: bool,
    /// The client did not read in time.
    pub timed_out: bool,
    /// The connection is to be closed without an answer.
    pub dropped: bool,
}

impl Sent {
    /// Sets the rate limit of this response, in place of `limit_rate`.
    pub fn set_rate(&mut self, limit: u64) {
        self.rate.limit = limit;
        self.rate_known = true;
    }

    /// Forgets the response, and keeps the room.
    pub fn clear(&mut self) {
        self.text.clear();
        *self = Sent { text: std::mem::take(&mut self.text), ..Sent::default() };
    }
}
