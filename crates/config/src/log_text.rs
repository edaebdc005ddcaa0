//! Text for lines of a log: what came from outside cannot end a line, begin one, or command the terminal that shows it.

use std::fmt::{self, Display, Write};

/// A value from outside in a message: quotes, backslashes and all bytes except printable ASCII become `\xNN`.
#[derive(Clone, Copy)]
pub struct Escaped<'a>(pub &'a [u8]);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.chunk_by(|a, b| is_plain(*a) == is_plain(*b)) {
            match std::str::from_utf8(chunk) {
                Ok(text) if is_plain(chunk[0]) => f.write_str(text)?,
                _ => write_hex(chunk, f)?,
            }
        }
        Ok(())
    }
}

fn is_plain(byte: u8) -> bool {
    matches!(byte, b' '..=b'~') && byte != b'"' && byte != b'\\'
}

fn write_hex(bytes: &[u8], out: &mut impl Write) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(out, "\\x{byte:02X}"))
}

/// A whole message for a log: control characters become `\xNN`, so that it stays one line.
pub struct OneLine<'a, T: ?Sized>(pub &'a T);

impl<T: Display + ?Sized> Display for OneLine<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(Filter(f), "{}", self.0)
    }
}

struct Filter<'a, 'f>(&'a mut fmt::Formatter<'f>);

impl Write for Filter<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut rest = text;
        while let Some(at) = rest.find(char::is_control) {
            let (before, from) = rest.split_at(at);
            self.0.write_str(before)?;
            let length = from.chars().next().map_or(0, char::len_utf8);
            write_hex(&from.as_bytes()[..length], self.0)?;
            rest = &from[length..];
        }
        self.0.write_str(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_escaped_as_in_the_access_log() {
        let shown = |bytes: &[u8]| Escaped(bytes).to_string();
        assert_eq!(shown(b"/a b~"), "/a b~");
        assert_eq!(shown(b"a\"b\\c\xc3\xa9\n\x1b[31m\x7f\0"), "a\\x22b\\x5Cc\\xC3\\xA9\\x0A\\x1B[31m\\x7F\\x00");
        assert_eq!(shown(b""), "");
    }

    #[test]
    fn messages_stay_one_line_and_keep_their_letters() {
        let shown = |text: &str| OneLine(text).to_string();
        assert_eq!(shown("open() \"/caf\u{e9}\" failed"), "open() \"/caf\u{e9}\" failed");
        assert_eq!(shown("a\r\nb\u{9b}31m\t"), "a\\x0D\\x0Ab\\xC2\\x9B31m\\x09");
        assert_eq!(OneLine(&format_args!("{}{}", "a\n", 'b')).to_string(), "a\\x0Ab");
    }
}
