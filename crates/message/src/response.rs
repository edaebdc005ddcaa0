//! Responses.

use crate::{Field, Header, Length, Span};

/// A response's head. Spans lie in [`Response::text`].
#[derive(Debug, Clone, Default)]
pub struct Response {
    /// All that the spans lie in.
    pub text: Vec<u8>,
    /// The status, 100 to 599.
    pub status: u16,
    /// The reason phrase, possibly empty.
    pub reason: Span,
    /// The fields, in order.
    pub fields: Vec<Field>,
    /// The set of [`Header::bit`] of the fields.
    pub has: u64,
    /// Names of fields that are for the next hop only.
    pub nominated: Vec<Span>,
    /// The protocol that the connection changes to.
    pub upgrade: Option<Span>,
    /// The body.
    pub body: Length,
    /// The length as sent, also where no body follows: in answers to HEAD and in 304.
    pub content_length: Option<u64>,
}

impl Response {
    /// Forgets everything, and keeps the room.
    pub fn clear(&mut self) {
        let Response { mut text, mut fields, mut nominated, .. } = std::mem::take(self);
        text.clear();
        fields.clear();
        nominated.clear();
        *self = Response { text, fields, nominated, ..Response::default() };
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
