//! Places in the caller's buffer.

use crate::Header;

/// A range of bytes in the buffer that was parsed.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Debug)]
pub struct Span {
    /// The first byte.
    pub start: u32,
    /// Past the last byte.
    pub end: u32,
}

impl Span {
    /// The span of `start..end`. Heads are bounded far below 4 GiB, so offsets fit.
    #[inline]
    pub fn new(start: usize, end: usize) -> Span {
        debug_assert!(start <= end && end <= u32::MAX as usize);
        Span { start: start as u32, end: end as u32 }
    }

    /// The span of a slice that was cut from `buf`.
    #[inline]
    pub fn within(buf: &[u8], part: &[u8]) -> Span {
        let start = part.as_ptr() as usize - buf.as_ptr() as usize;
        Span::new(start, start + part.len())
    }

    /// The bytes, of the buffer that was parsed (or of an equal one). Panics if `buf` is shorter.
    #[inline]
    pub fn of<'a>(&self, buf: &'a [u8]) -> &'a [u8] {
        &buf[self.start as usize..self.end as usize]
    }

    /// Length in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        (self.end - self.start) as usize
    }

    /// Whether there is nothing in it.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// The same bytes in a buffer that has `by` bytes more in front.
    #[inline]
    pub fn shifted(&self, by: u32) -> Span {
        Span { start: self.start + by, end: self.end + by }
    }
}

/// A field of a head.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Field {
    /// The name as sent.
    pub name: Span,
    /// The value, without the white space around it.
    pub value: Span,
    /// Which field it is.
    pub header: Header,
}

impl Field {
    /// Appends a field's line to a text, as HTTP/1 has it, and returns where its parts lie. Neither name nor value may have
    /// a line end.
    #[inline]
    pub fn write(text: &mut Vec<u8>, header: Header, name: &[u8], value: &[u8]) -> Field {
        let begin = text.len();
        text.reserve(name.len() + value.len() + 4);
        text.extend_from_slice(name);
        text.extend_from_slice(b": ");
        text.extend_from_slice(value);
        text.extend_from_slice(b"\r\n");
        Field::of_line(header, begin, name.len(), value.len())
    }

    /// The field of a line that was written this way and begins at `begin`, with the lengths of its parts.
    #[inline]
    pub(crate) fn of_line(header: Header, begin: usize, name: usize, value: usize) -> Field {
        let at = begin + name + 2;
        Field { name: Span::new(begin, begin + name), value: Span::new(at, at + value), header }
    }
}
