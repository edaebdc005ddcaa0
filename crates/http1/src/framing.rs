//! What the fields of a head say about the message's body and about the connection.

use crate::{Span, Version};
use balanza_message::Length;
use balanza_message::bytes::{decimal, list};
use balanza_message::words::Pattern;

const KEEP_ALIVE: Pattern = Pattern::new("keep-alive");
const CLOSE: Pattern = Pattern::new("close");

/// How a body is delimited.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub enum Body {
    /// There is none.
    #[default]
    None,
    /// So many bytes.
    Length(u64),
    /// Chunks, to be read by `ChunkedDecoder`.
    Chunked,
    /// Responses only: up to the end of the connection.
    UntilClose,
}

impl Body {
    /// What is known of its length.
    pub fn length(self) -> Length {
        match self {
            Body::None => Length::None,
            Body::Length(length) => Length::Known(length),
            Body::Chunked | Body::UntilClose => Length::Unknown,
        }
    }
}

/// Gathers what the fields say, one by one.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Framing {
    pub(crate) content_length: Option<u64>,
    pub(crate) chunked: bool,
    close: bool,
    keep_alive: bool,
    upgrade: bool,
}

impl Framing {
    /// Takes in a Content-Length. A repeated one is refused even if it says the same: no sender has a reason for it.
    #[inline]
    pub(crate) fn content_length(&mut self, value: &[u8]) -> Result<(), &'static str> {
        if self.content_length.is_some() {
            return Err("repeated Content-Length");
        }
        self.content_length = Some(decimal(value).ok_or("invalid Content-Length")?);
        Ok(())
    }

    /// Takes in a Transfer-Encoding, which must be the one word `chunked`.
    pub(crate) fn transfer_encoding(&mut self, value: &[u8]) -> Result<(), &'static str> {
        if self.chunked {
            return Err("repeated Transfer-Encoding");
        }
        if !value.eq_ignore_ascii_case(b"chunked") {
            return Err("unknown Transfer-Encoding");
        }
        self.chunked = true;
        Ok(())
    }

    /// Takes in a Connection field; the field names it nominates go to `names`.
    #[inline]
    pub(crate) fn connection(&mut self, buf: &[u8], value: Span, names: &mut Vec<Span>) {
        let text = value.of(buf);
        // The usual value, without parsing the list.
        if KEEP_ALIVE.matches(text) {
            self.keep_alive = true;
        } else if CLOSE.matches(text) {
            self.close = true;
        } else {
            self.connection_list(buf, text, names);
        }
    }

    #[cold]
    fn connection_list(&mut self, buf: &[u8], value: &[u8], names: &mut Vec<Span>) {
        for option in list(value) {
            if option.eq_ignore_ascii_case(b"close") {
                self.close = true;
            } else if option.eq_ignore_ascii_case(b"keep-alive") {
                self.keep_alive = true;
            } else {
                self.upgrade |= option.eq_ignore_ascii_case(b"upgrade");
                names.push(Span::within(buf, option));
            }
        }
    }

    /// Refuses what two recipients could delimit differently.
    #[inline]
    pub(crate) fn check(&self, version: Version) -> Result<(), &'static str> {
        if self.chunked {
            if self.content_length.is_some() {
                return Err("both Content-Length and Transfer-Encoding");
            }
            if version == Version::Http10 {
                return Err("Transfer-Encoding in HTTP/1.0");
            }
        }
        Ok(())
    }

    /// Whether the connection stays open after this message (RFC 9112, 9.3).
    #[inline]
    pub(crate) fn keeps_alive(&self, version: Version) -> bool {
        !self.close && (version == Version::Http11 || self.keep_alive)
    }

    /// Whether an Upgrade field is meant: it counts only in HTTP/1.1 and nominated by Connection (RFC 9110, 7.8).
    #[inline]
    pub(crate) fn upgrades(&self, version: Version) -> bool {
        self.upgrade && version == Version::Http11
    }
}
