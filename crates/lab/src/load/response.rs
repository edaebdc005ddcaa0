//! Answers as they arrive: HTTP/1.1 read strictly, in pieces of any size, without the proxy's own parser, whose mistakes
//! it has to notice.

use std::ops::Range;

/// Longest head, and longest trailer of a chunked body.
const HEAD_MAX: usize = 64 * 1024;

/// Longest line with the size of a chunk.
const SIZE_LINE_MAX: usize = 4096;

/// The answer is not HTTP/1.1 as every recipient must read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// Reads answer after answer; keeps its memory.
#[derive(Debug, Default)]
pub(super) struct Reader {
    state: State,
    /// The head so far, then the whole; while a trailer is read, `line` has it.
    head: Vec<u8>,
    line: Vec<u8>,
    status: u16,
    keep_alive: bool,
    server: Option<Range<usize>>,
    bytes: u64,
    /// Of HEAD: there is no body, whatever the head says.
    bodiless: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Head,
    Length(u64),
    UntilClose,
    ChunkSize,
    ChunkData(u64),
    ChunkEnd,
    Trailer,
    Complete,
}

impl Reader {
    /// Gets ready for the next answer, of HEAD or of another method.
    pub fn reset(&mut self, bodiless: bool) {
        self.bodiless = bodiless;
        self.state = State::Head;
        self.head.clear();
        self.line.clear();
        self.server = None;
        self.bytes = 0;
    }

    /// Takes bytes and says how many of them belong to this answer: fewer than all only if it is complete.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<usize, Malformed> {
        let mut at = 0;
        while at < bytes.len() && self.state != State::Complete {
            at += self.step(&bytes[at..])?;
        }
        self.bytes += at as u64;
        Ok(at)
    }

    fn step(&mut self, bytes: &[u8]) -> Result<usize, Malformed> {
        match self.state {
            State::Head => {
                let taken = take_block(&mut self.head, bytes, HEAD_MAX)?;
                if self.head.ends_with(b"\r\n\r\n") {
                    self.parse_head()?;
                }
                Ok(taken)
            }
            State::Length(left) => {
                let taken = left.min(bytes.len() as u64);
                self.state = if taken == left { State::Complete } else { State::Length(left - taken) };
                Ok(taken as usize)
            }
            State::UntilClose => Ok(bytes.len()),
            State::ChunkSize => {
                let taken = take_line(&mut self.line, bytes, SIZE_LINE_MAX)?;
                if let Some(line) = self.line.strip_suffix(b"\r\n") {
                    let size = chunk_size(line)?;
                    self.state = if size == 0 { State::Trailer } else { State::ChunkData(size) };
                    self.line.clear();
                }
                Ok(taken)
            }
            State::ChunkData(left) => {
                let taken = left.min(bytes.len() as u64);
                self.state = if taken == left { State::ChunkEnd } else { State::ChunkData(left - taken) };
                Ok(taken as usize)
            }
            State::ChunkEnd => {
                let taken = take_line(&mut self.line, bytes, 2)?;
                if self.line == b"\r\n" {
                    self.state = State::ChunkSize;
                    self.line.clear();
                }
                Ok(taken)
            }
            State::Trailer => {
                let start = self.line.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
                let taken = take_line(&mut self.line, bytes, HEAD_MAX)?;
                match self.line[start..].strip_suffix(b"\r\n") {
                    Some(b"") => self.state = State::Complete,
                    Some(field) => {
                        split_field(field)?;
                    }
                    None => {}
                }
                Ok(taken)
            }
            State::Complete => Ok(0),
        }
    }

    /// The peer has closed: whether the answer is complete by that.
    pub fn closed(&mut self) -> bool {
        if self.state == State::UntilClose {
            self.state = State::Complete;
        }
        self.is_complete()
    }

    /// Whether the answer is there as a whole.
    pub fn is_complete(&self) -> bool {
        self.state == State::Complete
    }

    /// Whether a byte of it has come.
    pub fn has_begun(&self) -> bool {
        self.bytes > 0
    }

    /// Bytes of the answer so far, head included.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The status of a complete answer.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// Whether the server takes another request on the connection.
    pub fn keeps_alive(&self) -> bool {
        self.keep_alive
    }

    /// The server's name in `X-Server`.
    pub fn server(&self) -> Option<&[u8]> {
        self.server.clone().map(|range| &self.head[range])
    }

    fn parse_head(&mut self) -> Result<(), Malformed> {
        let text = &self.head[..self.head.len() - 2];
        let end = line_end(text, 0)?;
        let (minor, status) = status_line(&text[..end])?;
        let (mut length, mut coded, mut chunked) = (None, false, false);
        let (mut close, mut stay) = (false, false);
        self.server = None;
        let mut at = end + 2;
        while at < text.len() {
            let end = line_end(text, at)?;
            let (name, value) = split_field(&text[at..end])?;
            if name.eq_ignore_ascii_case(b"content-length") {
                let stated = decimal(value)?;
                if length.is_some_and(|length| length != stated) {
                    return Err(Malformed);
                }
                length = Some(stated);
            } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
                // Nothing but one "chunked" was asked for.
                if coded || !value.eq_ignore_ascii_case(b"chunked") {
                    return Err(Malformed);
                }
                (coded, chunked) = (true, true);
            } else if name.eq_ignore_ascii_case(b"connection") {
                for token in value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii) {
                    close |= token.eq_ignore_ascii_case(b"close");
                    stay |= token.eq_ignore_ascii_case(b"keep-alive");
                }
            } else if name.eq_ignore_ascii_case(b"x-server") {
                // The value is a part of the line: it ends where the line does, without the white space after it.
                let line = &text[at..end];
                let before = line.len() - line.trim_ascii_end().len();
                self.server = Some(end - before - value.len()..end - before);
            }
            at = end + 2;
        }
        if chunked && (length.is_some() || minor == 0) {
            return Err(Malformed);
        }
        if status == 101 {
            return Err(Malformed);
        }
        if status < 200 {
            // Something provisional: the answer is still to come.
            self.head.clear();
            self.server = None;
            return Ok(());
        }
        self.status = status;
        self.keep_alive = !close && (minor == 1 || stay);
        self.state = match (status, chunked, length) {
            _ if self.bodiless => State::Complete,
            (204 | 304, ..) | (_, false, Some(0)) => State::Complete,
            (_, true, _) => State::ChunkSize,
            (_, false, Some(length)) => State::Length(length),
            (_, false, None) => {
                self.keep_alive = false;
                State::UntilClose
            }
        };
        Ok(())
    }
}

/// Moves bytes into `head` up to and with the empty line that ends it, and says how many.
fn take_block(head: &mut Vec<u8>, bytes: &[u8], most: usize) -> Result<usize, Malformed> {
    let before = head.len();
    let mut at = 0;
    while let Some(position) = bytes[at..].iter().position(|&byte| byte == b'\n') {
        head.extend_from_slice(&bytes[at..at + position + 1]);
        at += position + 1;
        if head.len() > most {
            return Err(Malformed);
        }
        if head.ends_with(b"\r\n\r\n") {
            return Ok(head.len() - before);
        }
    }
    head.extend_from_slice(&bytes[at..]);
    if head.len() > most { Err(Malformed) } else { Ok(bytes.len()) }
}

/// Moves bytes into `line` up to and with the next line feed, and says how many.
fn take_line(line: &mut Vec<u8>, bytes: &[u8], most: usize) -> Result<usize, Malformed> {
    let taken = bytes.iter().position(|&byte| byte == b'\n').map_or(bytes.len(), |position| position + 1);
    line.extend_from_slice(&bytes[..taken]);
    let bare = line.ends_with(b"\n") && !line.ends_with(b"\r\n");
    if line.len() > most || bare { Err(Malformed) } else { Ok(taken) }
}

/// Where the line that begins at `from` ends: its CR LF. No other CR, LF or NUL is allowed.
fn line_end(text: &[u8], from: usize) -> Result<usize, Malformed> {
    let end = from + text[from..].iter().position(|byte| matches!(byte, b'\r' | b'\n' | 0)).ok_or(Malformed)?;
    if text[end..].starts_with(b"\r\n") { Ok(end) } else { Err(Malformed) }
}

/// `HTTP/1.1 200 OK`: the minor version and the status.
fn status_line(line: &[u8]) -> Result<(u8, u16), Malformed> {
    let rest = line.strip_prefix(b"HTTP/1.").ok_or(Malformed)?;
    let [minor @ (b'0' | b'1'), b' ', status @ ..] = rest else { return Err(Malformed) };
    let [a @ b'1'..=b'5', b @ b'0'..=b'9', c @ b'0'..=b'9', reason @ ..] = status else { return Err(Malformed) };
    if !(reason.is_empty() || reason[0] == b' ') || reason.iter().any(|&byte| is_control(byte)) {
        return Err(Malformed);
    }
    let digit = |byte: u8| u16::from(byte - b'0');
    Ok((minor - b'0', digit(*a) * 100 + digit(*b) * 10 + digit(*c)))
}

/// Name and value of a field. A line that begins with white space continued the one before, long ago.
fn split_field(line: &[u8]) -> Result<(&[u8], &[u8]), Malformed> {
    let colon = line.iter().position(|&byte| byte == b':').ok_or(Malformed)?;
    let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
    let is_token = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    if name.is_empty() || !name.iter().all(is_token) || value.iter().any(|&byte| is_control(byte)) {
        return Err(Malformed);
    }
    Ok((name, value))
}

fn is_control(byte: u8) -> bool {
    byte.is_ascii_control() && byte != b'\t'
}

fn decimal(text: &[u8]) -> Result<u64, Malformed> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return Err(Malformed);
    }
    std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).ok_or(Malformed)
}

/// The size in front of a chunk; extensions are nobody's business here.
fn chunk_size(line: &[u8]) -> Result<u64, Malformed> {
    let digits = line.iter().position(|byte| !byte.is_ascii_hexdigit()).unwrap_or(line.len());
    let (size, extension) = line.split_at(digits);
    let extension = extension.trim_ascii_start();
    if !(1..=16).contains(&size.len())
        || !(extension.is_empty() || extension[0] == b';')
        || extension.iter().any(|&byte| is_control(byte))
    {
        return Err(Malformed);
    }
    std::str::from_utf8(size).ok().and_then(|text| u64::from_str_radix(text, 16).ok()).ok_or(Malformed)
}

#[cfg(test)]
mod tests;
