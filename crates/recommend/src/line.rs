//! One line of a log: where the values stand.

use std::borrow::Cow;

use memchr::memmem::Finder;
use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, Visitor};

use crate::format::{Escape, Format, Piece, Shape, VARIABLES, Variable, variable};

/// So many places are tried before a line counts as one of another format.
const STEPS: u32 = 2_000;

/// The values of a line as they stand there, by [`Variable`].
#[derive(Default, Debug)]
pub struct Values<'a>([Option<Cow<'a, [u8]>>; VARIABLES]);

impl<'a> Values<'a> {
    /// The value of a variable; an empty one or `-` is none.
    pub fn get(&self, variable: Variable) -> Option<&[u8]> {
        self.0[variable as usize].as_deref().filter(|value| !value.is_empty() && *value != b"-")
    }

    fn clear(&mut self) {
        self.0 = Default::default();
    }

    fn set(&mut self, variable: Variable, value: Cow<'a, [u8]>) {
        self.0[variable as usize] = Some(value);
    }
}

/// Reads lines of one format.
pub struct Splitter {
    format: Format,
    /// Of the texts among the pieces.
    finders: Vec<Option<Finder<'static>>>,
}

impl Splitter {
    /// A splitter for lines of this format.
    pub fn new(format: &Format) -> Splitter {
        let finder = |piece: &Piece| match piece {
            Piece::Text(text) => Some(Finder::new(text).into_owned()),
            Piece::Value(..) => None,
        };
        Splitter { finders: format.pieces.iter().map(finder).collect(), format: format.clone() }
    }

    /// Finds the values of a line, without its end. False if the line is not one of this format.
    pub fn split<'a>(&self, line: &'a [u8], values: &mut Values<'a>) -> bool {
        values.clear();
        if self.format.json {
            let mut reader = serde_json::Deserializer::from_slice(line);
            return Object(values).deserialize(&mut reader).is_ok() && reader.end().is_ok();
        }
        let mut steps = STEPS;
        self.from(0, line, 0, values, &mut steps)
    }

    /// Matches the pieces from `piece` on with the line from `at` on.
    fn from<'a>(&self, piece: usize, line: &'a [u8], at: usize, values: &mut Values<'a>, steps: &mut u32) -> bool {
        let Some(steps_left) = steps.checked_sub(1) else { return false };
        *steps = steps_left;
        let (variable, shape) = match self.format.pieces.get(piece) {
            None => return at == line.len(),
            Some(Piece::Text(text)) => {
                return line[at..].starts_with(text) && self.from(piece + 1, line, at + text.len(), values, steps);
            }
            Some(Piece::Value(variable, shape)) => (*variable, *shape),
        };
        let keep = |values: &mut Values<'a>, end: usize| {
            if let Some(variable) = variable {
                values.set(variable, Cow::Borrowed(&line[at..end]));
            }
        };
        let Some(Some(finder)) = self.finders.get(piece + 1) else {
            keep(values, line.len());
            return true;
        };
        let text = finder.needle();
        let fixed = match shape {
            Shape::Free => None,
            Shape::List => Some(list_end(line, at, text)),
            Shape::Local => Some(at + 26).filter(|end| *end <= line.len()),
        };
        if let Some(end) = fixed
            && line[end..].starts_with(text)
        {
            keep(values, end);
            if self.from(piece + 2, line, end + text.len(), values, steps) {
                return true;
            }
        }
        let mut from = at;
        while let Some(found) = finder.find(&line[from..]) {
            let end = from + found;
            from = end + 1;
            if self.is_escaped(line, at, end) {
                continue;
            }
            keep(values, end);
            if self.from(piece + 2, line, end + text.len(), values, steps) {
                return true;
            }
            if *steps == 0 {
                return false;
            }
        }
        false
    }

    /// Whether the byte at `end` belongs to a value that begins at `from`: it follows a backslash of JSON.
    fn is_escaped(&self, line: &[u8], from: usize, end: usize) -> bool {
        let backslashes = line[from..end].iter().rev().take_while(|byte| **byte == b'\\').count();
        self.format.escape == Escape::Json && backslashes % 2 == 1
    }
}

/// The end of a list of attempts: tokens without spaces, with `, ` or ` : ` between, before `text`.
fn list_end(line: &[u8], from: usize, text: &[u8]) -> usize {
    let mut at = from;
    loop {
        let rest = &line[at..];
        let is_end = |i: usize| matches!(rest[i], b' ' | b',') || (rest[i] == text[0] && rest[i..].starts_with(text));
        at += (0..rest.len()).find(|i| is_end(*i)).unwrap_or(rest.len());
        let rest = &line[at..];
        // A list goes on only where another token follows.
        let separator = [&b", "[..], b" : "].into_iter().find(|separator| rest.starts_with(separator));
        match separator {
            Some(separator) if at > from && text != separator => at += separator.len(),
            _ => return at,
        }
    }
}

/// A value of an escaped log as its bytes: `\x22` and what JSON has.
pub fn unescaped<'a>(value: &'a [u8], escape: Escape) -> Cow<'a, [u8]> {
    if escape == Escape::None || memchr::memchr(b'\\', value).is_none() {
        return Cow::Borrowed(value);
    }
    let hex = |digits: &[u8]| u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok();
    let mut out = Vec::with_capacity(value.len());
    let mut at = 0;
    while at < value.len() {
        let (byte, taken) = match (value[at], escape, value.get(at + 1)) {
            (b'\\', Escape::Default, Some(b'x')) => match value.get(at + 2..at + 4).and_then(hex) {
                Some(code) => (code as u8, 4),
                None => (b'\\', 1),
            },
            (b'\\', Escape::Json, Some(letter)) => match letter {
                b'n' => (b'\n', 2),
                b'r' => (b'\r', 2),
                b't' => (b'\t', 2),
                b'b' => (8, 2),
                b'f' => (12, 2),
                // NGINX writes control characters only so.
                b'u' => match value.get(at + 2..at + 6).and_then(hex) {
                    Some(code) if code < 256 => (code as u8, 6),
                    _ => (b'\\', 1),
                },
                _ => (*letter, 2),
            },
            (byte, ..) => (byte, 1),
        };
        out.push(byte);
        at += taken;
    }
    Cow::Owned(out)
}

/// An object of JSON whose members are variables.
struct Object<'v, 'a>(&'v mut Values<'a>);

impl<'a> DeserializeSeed<'a> for Object<'_, 'a> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'a>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'a> Visitor<'a> for Object<'_, 'a> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<Text<'a>>()? {
            let name = key.0.strip_prefix(b"$").unwrap_or(&key.0);
            match variable(name) {
                Some(variable) => self.0.set(variable, map.next_value::<Text<'a>>()?.0),
                None => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
}

/// A string or a number of JSON as text.
struct Text<'a>(Cow<'a, [u8]>);

impl<'a> serde::Deserialize<'a> for Text<'a> {
    fn deserialize<D: serde::Deserializer<'a>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;
        impl<'a> Visitor<'a> for Any {
            type Value = Text<'a>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a string or a number")
            }

            fn visit_borrowed_str<E>(self, text: &'a str) -> Result<Text<'a>, E> {
                Ok(Text(Cow::Borrowed(text.as_bytes())))
            }

            fn visit_str<E>(self, text: &str) -> Result<Text<'a>, E> {
                Ok(Text(Cow::Owned(text.as_bytes().to_vec())))
            }

            fn visit_u64<E>(self, number: u64) -> Result<Text<'a>, E> {
                Ok(Text(Cow::Owned(number.to_string().into_bytes())))
            }

            fn visit_i64<E>(self, number: i64) -> Result<Text<'a>, E> {
                Ok(Text(Cow::Owned(number.to_string().into_bytes())))
            }

            fn visit_f64<E>(self, number: f64) -> Result<Text<'a>, E> {
                Ok(Text(Cow::Owned(format!("{number:.6}").into_bytes())))
            }

            fn visit_bool<E>(self, _: bool) -> Result<Text<'a>, E> {
                Ok(Text(Cow::Borrowed(b"")))
            }

            fn visit_unit<E>(self) -> Result<Text<'a>, E> {
                Ok(Text(Cow::Borrowed(b"")))
            }
        }
        deserializer.deserialize_any(Any)
    }
}
