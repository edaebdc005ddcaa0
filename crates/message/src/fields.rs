//! The fields of a head or of a trailer section.

use crate::{Field, Header};

/// Fields in order, with the text they lie in. The text is lines as HTTP/1 has them, so that these are written in one
/// piece.
#[derive(Debug, Clone, Default)]
pub struct Fields {
    text: Vec<u8>,
    list: Vec<Field>,
}

impl Fields {
    /// Adds a field. Neither name nor value may have a line end.
    #[inline]
    pub fn push(&mut self, name: &[u8], value: &[u8]) {
        self.add(Header::recognise(name), name, value);
    }

    /// Adds a field whose name is known to be this one.
    #[inline]
    fn add(&mut self, header: Header, name: &[u8], value: &[u8]) {
        self.list.push(Field::write(&mut self.text, header, name, value));
    }

    /// Adds a field of another message, which lies in `text`. Written the usual way it is copied in one piece.
    #[inline]
    pub fn copy(&mut self, field: &Field, text: &[u8]) {
        let (name, value) = (field.name, field.value);
        let line = &text[name.start as usize..];
        let length = (value.end - name.start) as usize;
        let is_usual = value.start == name.end + 2
            && line.get(length..length + 2) == Some(b"\r\n")
            && line[name.len()..].starts_with(b": ");
        if is_usual {
            let begin = self.text.len();
            self.text.extend_from_slice(&line[..length + 2]);
            self.list.push(Field::of_line(field.header, begin, name.len(), value.len()));
        } else {
            self.add(field.header, name.of(text), value.of(text));
        }
    }

    /// Adds all fields of another list.
    pub fn append(&mut self, others: &Fields) {
        let by = self.text.len() as u32;
        self.text.extend_from_slice(&others.text);
        let shifted = |field: &Field| Field { name: field.name.shifted(by), value: field.value.shifted(by), ..*field };
        self.list.extend(others.list.iter().map(shifted));
    }

    /// The first field of this name.
    pub fn find(&self, header: Header) -> Option<&[u8]> {
        self.list.iter().find(|field| field.header == header).map(|field| field.value.of(&self.text))
    }

    /// Names and values, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.list.iter().map(|field| (field.name.of(&self.text), field.value.of(&self.text)))
    }

    /// The same with what is known of the names.
    pub fn known(&self) -> impl Iterator<Item = (Header, &[u8], &[u8])> {
        self.list.iter().map(|field| (field.header, field.name.of(&self.text), field.value.of(&self.text)))
    }

    /// All of them as lines.
    pub fn lines(&self) -> &[u8] {
        &self.text
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Changes the values of all fields of this name; one for which there is `None` is removed.
    pub fn change(&mut self, header: Header, mut change: impl FnMut(&[u8]) -> Option<Vec<u8>>) {
        if !self.list.iter().any(|field| field.header == header) {
            return;
        }
        let old = std::mem::take(self);
        for field in &old.list {
            if field.header != header {
                self.copy(field, &old.text);
            } else if let Some(value) = change(field.value.of(&old.text)) {
                self.add(header, field.name.of(&old.text), &value);
            }
        }
    }

    /// Removes all but the first `kept`.
    pub fn truncate(&mut self, kept: usize) {
        if let Some(first) = self.list.get(kept) {
            self.text.truncate(first.name.start as usize);
            self.list.truncate(kept);
        }
    }

    /// Removes all of them, and keeps their room.
    pub fn clear(&mut self) {
        self.text.clear();
        self.list.clear();
    }

    /// Room in bytes.
    pub fn capacity(&self) -> usize {
        self.text.capacity() + self.list.capacity() * size_of::<Field>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(fields: &Fields) -> Vec<(String, String)> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        fields.iter().map(|(name, value)| (text(name), text(value))).collect()
    }

    #[test]
    fn what_is_added_is_found() {
        let mut fields = Fields::default();
        fields.push(b"Server", b"balanza");
        fields.push(b"X-One", b"");
        fields.push(b"server", b"other");
        assert_eq!(fields.find(Header::Server), Some(&b"balanza"[..]));
        assert_eq!(fields.find(Header::Date), None);
        assert_eq!(fields.lines(), b"Server: balanza\r\nX-One: \r\nserver: other\r\n");
        fields.truncate(5);
        assert_eq!(fields.len(), 3);
        fields.truncate(1);
        assert_eq!((fields.lines(), fields.len()), (&b"Server: balanza\r\n"[..], 1));
        fields.clear();
        assert!(fields.is_empty() && fields.lines().is_empty());
    }

    #[test]
    fn fields_are_copied_however_they_were_written() {
        let span = |text: &[u8], part: &[u8]| {
            let at = text.windows(part.len()).position(|window| window == part).unwrap();
            crate::Span::new(at, at + part.len())
        };
        for text in [&b"Etag: \"7\"\r\n\r\n"[..], b"Etag:\"7\" \r\n", b"Etag: \"7\"\n", b"Etag: \"7\""] {
            let field = Field { name: span(text, b"Etag"), value: span(text, b"\"7\""), header: Header::Etag };
            let mut fields = Fields::default();
            fields.push(b"A", b"b");
            fields.copy(&field, text);
            assert_eq!(fields.lines(), b"A: b\r\nEtag: \"7\"\r\n");
            assert_eq!(fields.find(Header::Etag), Some(&b"\"7\""[..]));
        }
    }

    #[test]
    fn values_are_changed_and_fields_removed() {
        let mut fields = Fields::default();
        for (name, value) in [(&b"A"[..], &b"1"[..]), (b"ETag", b"\"x\""), (b"Vary", b"b"), (b"etag", b"")] {
            fields.push(name, value);
        }
        fields.change(Header::Etag, |value| Some([b"W/", value].concat()).filter(|_| !value.is_empty()));
        assert_eq!(fields.lines(), b"A: 1\r\nETag: W/\"x\"\r\nVary: b\r\n");
        fields.change(Header::Vary, |_| None);
        assert_eq!((fields.len(), fields.find(Header::Etag)), (2, Some(&b"W/\"x\""[..])));
    }

    #[test]
    fn lists_are_appended() {
        let mut first = Fields::default();
        first.push(b"A", b"1");
        let mut second = Fields::default();
        second.push(b"Vary", b"b");
        first.append(&second);
        assert_eq!(pairs(&first), [("A".into(), "1".into()), ("Vary".into(), "b".into())]);
        assert_eq!(first.find(Header::Vary), Some(&b"b"[..]));
    }
}
