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

    /// Replaces all fields of this name by one, which is not for the next hop only, or by none if the value is empty. Neither
    /// may have a line end.
    pub fn replace(&mut self, name: &[u8], value: &[u8]) {
        let text = &self.text;
        self.fields.retain(|field| !field.name.of(text).eq_ignore_ascii_case(name));
        self.nominated.retain(|nominated| !nominated.of(text).eq_ignore_ascii_case(name));
        let header = Header::recognise(name);
        self.has &= !header.bit();
        if value.is_empty() {
            return;
        }
        // A large head must not take twice its size.
        self.text.reserve_exact(name.len() + value.len() + 4);
        self.fields.push(Field::write(&mut self.text, header, name, value));
        self.has |= header.bit();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_replaced() {
        let mut request = Request { text: b"A: 1\r\nb: 2\r\na: 3\r\n".to_vec(), ..Request::default() };
        for begin in [0, 6, 12] {
            let (name, value) = (Span::new(begin, begin + 1), Span::new(begin + 3, begin + 4));
            request.fields.push(Field { name, value, header: Header::Other });
        }
        let pairs = |request: &Request| -> Vec<(String, String)> {
            let text = |span: Span| String::from_utf8_lossy(request.of(span)).into_owned();
            request.fields.iter().map(|field| (text(field.name), text(field.value))).collect()
        };
        let expected = |list: &[(&str, &str)]| -> Vec<(String, String)> {
            list.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()
        };
        request.nominated = vec![Span::new(0, 1), Span::new(6, 7)];
        request.replace(b"a", b"four");
        assert!(!request.nominates(b"a") && request.nominates(b"b"));
        assert_eq!(pairs(&request), expected(&[("b", "2"), ("a", "four")]));
        request.replace(b"B", b"");
        request.replace(b"host", b"x");
        assert_eq!(pairs(&request), expected(&[("a", "four"), ("host", "x")]));
        assert_eq!(request.find(Header::Host), Some(&b"x"[..]));
        request.replace(b"Host", b"");
        assert_eq!((request.find(Header::Host), request.fields.len()), (None, 1));
    }
}
