//! Requests.

use crate::{Field, Header, Length, Method, Span, Version};

/// A request's head. Spans lie in [`Request::text`].
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// All that the spans lie in.
    pub text: Vec<u8>,
    /// The method.
    pub method: Method,
    /// The method as sent.
    pub method_name: Span,
    /// The request line, without its end: `$request`.
    pub line: Span,
    /// The target without scheme and authority: `$request_uri`. Where `empty_path` is set, a "/" belongs in front.
    pub origin: Span,
    /// Whether the target has no path, as in `http://example.com?query`.
    pub empty_path: bool,
    /// The path as sent, up to the query or fragment; never empty; "*" in the asterisk form.
    pub path: Span,
    /// Whether the path is its own normal form: no escapes, empty segments, or segments that begin with a dot.
    pub plain_path: bool,
    /// What follows the "?", up to a fragment.
    pub query: Option<Span>,
    /// The version of the protocol that it came by.
    pub version: Version,
    /// The name of the host that is asked for, without port and final dot.
    pub host: Option<Span>,
    /// Whether `host` may have capitals.
    pub host_capitals: bool,
    /// The fields, in order.
    pub fields: Vec<Field>,
    /// The set of [`Header::bit`] of the fields.
    pub has: u64,
    /// Names of fields that are for the next hop only.
    pub nominated: Vec<Span>,
    /// The protocol that the connection is to change to.
    pub upgrade: Option<Span>,
    /// The body.
    pub body: Length,
    /// Whether the client waits for 100 before it sends the body.
    pub expect_continue: bool,
}

impl Request {
    /// Forgets everything, and keeps the room.
    pub fn clear(&mut self) {
        let Request { mut text, mut fields, mut nominated, .. } = std::mem::take(self);
        text.clear();
        fields.clear();
        nominated.clear();
        *self = Request { text, fields, nominated, ..Request::default() };
    }

    /// A piece of the head.
    #[inline]
    pub fn of(&self, span: Span) -> &[u8] {
        span.of(&self.text)
    }

    /// The value of the first field of this name.
    #[inline]
    pub fn find(&self, header: Header) -> Option<&[u8]> {
        if !header.is_in(self.has) {
            return None;
        }
        self.fields.iter().find(|field| field.header == header).map(|field| field.value.of(&self.text))
    }

    /// Whether a field of this name is for the next hop only.
    pub fn nominates(&self, name: &[u8]) -> bool {
        self.nominated.iter().any(|nominated| nominated.of(&self.text).eq_ignore_ascii_case(name))
    }

    /// Room in bytes.
    pub fn capacity(&self) -> usize {
        self.text.capacity() + self.fields.capacity() * size_of::<Field>()
    }
}
