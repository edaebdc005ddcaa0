//! The chunked transfer coding (RFC 9112, 7.1), read strictly.

use crate::{ChunkError, Trailers};
use balanza_message::bytes::{TOKEN, VALUE, hex_digit, is};

/// Bytes of extensions on one line.
const EXTENSION: usize = 256;
/// Bytes of extensions in one body: more than that is an attempt to keep us busy.
const EXTENSIONS: usize = 16 * 1024;
/// Digits of a size, leading zeros included.
const DIGITS: u8 = 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum State {
    /// Before the first digit of a size.
    #[default]
    Size,
    SizeDigits,
    Extension(Extension),
    SizeLf,
    Data,
    DataCr,
    DataLf,
    /// At the start of a line of the trailer section.
    Trailer,
    TrailerLine,
    TrailerLf,
    LastLf,
    Finished,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Extension {
    /// White space that must lead to a semicolon.
    BeforeSemicolon,
    BeforeName,
    Name,
    AfterName,
    BeforeValue,
    Value,
    Quoted,
    QuotedPair,
    AfterQuoted,
}

/// What [`ChunkedDecoder::step`] found at the start of its input: framing, then payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// Bytes of framing at the start.
    pub framing: usize,
    /// Bytes of payload after them.
    pub payload: usize,
    /// Whether the body ended; what follows belongs to the next message.
    pub finished: bool,
}

/// What [`ChunkedDecoder::decode`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decoded {
    /// Bytes of payload, moved to the start of the buffer.
    pub produced: usize,
    /// Bytes used up; less than all of them only if the body finished.
    pub consumed: usize,
    /// Whether the body ended.
    pub finished: bool,
}

/// Reads a chunked body, piece by piece as it arrives: the pieces may be cut anywhere.
#[derive(Debug, Clone, Default)]
pub struct ChunkedDecoder {
    state: State,
    digits: u8,
    remaining: u64,
    extension: usize,
    extensions: usize,
    trailers: Trailers,
}

impl ChunkedDecoder {
    /// Decodes in place: the payload is moved to the start of `buf`.
    pub fn decode(&mut self, buf: &mut [u8]) -> Result<Decoded, ChunkError> {
        let mut decoded = Decoded { produced: 0, consumed: 0, finished: false };
        while decoded.consumed < buf.len() && !decoded.finished {
            let step = self.step(&buf[decoded.consumed..])?;
            let payload = decoded.consumed + step.framing;
            if payload != decoded.produced {
                buf.copy_within(payload..payload + step.payload, decoded.produced);
            }
            decoded.produced += step.payload;
            decoded.consumed = payload + step.payload;
            decoded.finished = step.finished;
        }
        Ok(decoded)
    }

    /// Reads framing up to payload, and as much payload as there is; call it again with what follows. Nothing is moved.
    pub fn step(&mut self, input: &[u8]) -> Result<Step, ChunkError> {
        let mut at = 0;
        while self.state != State::Data {
            if self.state == State::Finished {
                return Ok(Step { framing: at, payload: 0, finished: true });
            }
            let Some(&b) = input.get(at) else { return Ok(Step { framing: at, payload: 0, finished: false }) };
            self.framing(b).map_err(|reason| ChunkError { reason })?;
            at += 1;
        }
        let payload = usize::try_from(self.remaining).unwrap_or(usize::MAX).min(input.len() - at);
        self.advance(payload as u64);
        Ok(Step { framing: at, payload, finished: false })
    }

    /// Bytes of the current chunk that are still to come: what can be moved without looking at it. 0 between chunks.
    pub fn remaining(&self) -> u64 {
        if self.state == State::Data { self.remaining } else { 0 }
    }

    /// Says that so many bytes of payload, at most [`remaining`](Self::remaining), were moved without `step`.
    pub fn advance(&mut self, payload: u64) {
        debug_assert!(payload <= self.remaining());
        self.remaining -= payload;
        if self.remaining == 0 {
            self.state = State::DataCr;
        }
    }

    /// Whether the body ended.
    pub fn is_finished(&self) -> bool {
        self.state == State::Finished
    }

    /// The trailer fields that may be forwarded; complete when the body has finished.
    pub fn trailers(&self) -> &Trailers {
        &self.trailers
    }

    /// Makes it ready for the next body; keeps its buffers.
    pub fn reset(&mut self) {
        self.trailers.clear();
        let trailers = std::mem::take(&mut self.trailers);
        *self = ChunkedDecoder { trailers, ..ChunkedDecoder::default() };
    }

    /// Takes one byte of framing.
    fn framing(&mut self, b: u8) -> Result<(), &'static str> {
        self.state = match (self.state, b) {
            (State::Size, _) => {
                self.remaining = u64::from(hex_digit(b).ok_or("invalid chunk size")?);
                self.digits = 1;
                self.extension = 0;
                State::SizeDigits
            }
            (State::SizeDigits, b'\r') => State::SizeLf,
            (State::SizeDigits, b';') => State::Extension(Extension::BeforeName),
            (State::SizeDigits, b' ' | b'\t') => State::Extension(Extension::BeforeSemicolon),
            (State::SizeDigits, _) => {
                let digit = hex_digit(b).ok_or("invalid chunk size")?;
                if self.digits == DIGITS || self.remaining > i64::MAX as u64 >> 4 {
                    return Err("too large chunk size");
                }
                self.digits += 1;
                self.remaining = self.remaining << 4 | u64::from(digit);
                State::SizeDigits
            }
            (State::Extension(extension), _) => {
                self.extension += 1;
                self.extensions += 1;
                if self.extension > EXTENSION || self.extensions > EXTENSIONS {
                    return Err("too long chunk extensions");
                }
                extension.after(b).ok_or("invalid chunk extension")?
            }
            (State::SizeLf, b'\n') if self.remaining == 0 => State::Trailer,
            (State::SizeLf, b'\n') => State::Data,
            (State::DataCr, b'\r') => State::DataLf,
            (State::DataLf, b'\n') => State::Size,
            (State::DataCr | State::DataLf, _) => return Err("chunk longer than its size"),
            (State::Trailer, b'\r') => State::LastLf,
            (State::Trailer | State::TrailerLine, b'\n') => return Err("bare LF in the trailer section"),
            (State::TrailerLine, b'\r') => {
                self.trailers.push(b)?;
                State::TrailerLf
            }
            (State::Trailer | State::TrailerLine, _) => {
                self.trailers.push(b)?;
                State::TrailerLine
            }
            (State::TrailerLf, b'\n') => {
                self.trailers.push(b)?;
                State::Trailer
            }
            (State::LastLf, b'\n') => {
                self.trailers.finish()?;
                State::Finished
            }
            (State::SizeLf | State::TrailerLf | State::LastLf, _) => return Err("bare CR in chunk framing"),
            (State::Data | State::Finished, _) => self.state,
        };
        Ok(())
    }
}

impl Extension {
    /// The state after one more byte: `*( BWS ";" BWS name [ BWS "=" BWS ( token / quoted-string ) ] )`.
    fn after(self, b: u8) -> Option<State> {
        use Extension::*;
        let next = match (self, b) {
            (BeforeSemicolon, b' ' | b'\t') => BeforeSemicolon,
            (BeforeName, b' ' | b'\t') => BeforeName,
            (AfterName, b' ' | b'\t') => AfterName,
            (BeforeValue, b' ' | b'\t') => BeforeValue,
            (Name, b' ' | b'\t') => AfterName,
            (Value | AfterQuoted, b' ' | b'\t') => BeforeSemicolon,
            (BeforeSemicolon | Name | AfterName | Value | AfterQuoted, b';') => BeforeName,
            (Name | AfterName, b'=') => BeforeValue,
            (BeforeValue, b'"') => Quoted,
            (Name | Value | AfterQuoted, b'\r') => return Some(State::SizeLf),
            (BeforeName | Name, _) if is(b, TOKEN) => Name,
            (BeforeValue | Value, _) if is(b, TOKEN) => Value,
            (Quoted, b'"') => AfterQuoted,
            (Quoted, b'\\') => QuotedPair,
            (Quoted | QuotedPair, _) if is(b, VALUE) => Quoted,
            _ => return None,
        };
        Some(State::Extension(next))
    }
}
