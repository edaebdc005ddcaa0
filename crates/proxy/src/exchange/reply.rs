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
    /// The body goes out in chunks.
    pub chunked: bool,
    /// Trailers end the body.
    pub trailers: bool,
    /// What changes the body on its way.
    pub filters: Option<Box<Chain>>,
    /// The rate limit.
    pub rate: Rate,
    /// The rate limit was worked out, or set by the server or by `set $limit_rate`.
    rate_known: bool,
    /// The bytes before it holds were worked out.
    after_known: bool,
    /// The response went out completely.
    complete: bool,
    /// The connection may serve another request after this one.
    keeps_connection: bool,
    /// The client did not read in time.
    timed_out: bool,
    /// The connection is to be closed without a response.
    drops_connection: bool,
}

impl Sent {
    /// Forgets the response, and keeps the room.
    pub fn clear(&mut self) {
        self.text.clear();
        *self = Sent { text: std::mem::take(&mut self.text), ..Sent::default() };
    }

    /// Sets the rate limit of this response, in place of `limit_rate`.
    pub fn set_rate(&mut self, limit: u64) {
        self.rate.limit = limit;
        self.rate_known = true;
    }

    /// Whether the response has a rate limit already, or none.
    pub fn has_rate(&self) -> bool {
        self.rate_known
    }

    /// Sets the bytes that go out before the rate limit holds.
    pub fn set_rate_after(&mut self, bytes: u64) {
        self.rate.after = bytes;
        self.after_known = true;
    }

    /// Whether the bytes that go out before the rate limit holds were worked out.
    pub fn has_rate_after(&self) -> bool {
        self.after_known
    }

    /// The client's wish to go on using its connection, before anything else is known.
    pub fn offer_connection(&mut self, wanted: bool) {
        self.keeps_connection = wanted;
    }

    /// The connection ends with this response.
    pub fn end_connection(&mut self) {
        self.keeps_connection = false;
    }

    /// Whether the connection may serve another request after this one.
    pub fn keeps_connection(&self) -> bool {
        self.keeps_connection
    }

    /// The connection ends without a response.
    pub fn drop_connection(&mut self) {
        self.keeps_connection = false;
        self.drops_connection = true;
    }

    /// Whether the connection ends without a response.
    pub fn drops_connection(&self) -> bool {
        self.drops_connection
    }

    /// Nothing more of the response goes out.
    pub fn finish(&mut self, completely: bool) {
        self.complete = completely;
    }

    /// The response ends before its time, and its connection with it.
    pub fn abort(&mut self) {
        self.keeps_connection = false;
        self.complete = false;
    }

    /// Whether the response went out completely.
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// The client did not read in time.
    pub fn time_out(&mut self) {
        self.timed_out = true;
    }

    /// Whether the client did not read in time.
    pub fn timed_out(&self) -> bool {
        self.timed_out
    }
}
