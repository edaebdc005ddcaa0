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
    /// Gets ready for the next answer.
    pub fn reset(&mut self) {
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
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What came of a text, fed in pieces that end at `cuts`: bytes taken, status, bytes of the answer, keep-alive, server.
    fn read(text: &[u8], cuts: &[usize]) -> Result<(usize, bool, u16, bool, Option<String>), Malformed> {
        let mut reader = Reader::default();
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (text.len() + 1)).collect();
        cuts.extend([0, text.len()]);
        cuts.sort_unstable();
        let mut taken = 0;
        for piece in cuts.windows(2) {
            taken += reader.feed(&text[piece[0]..piece[1]])?;
            if reader.is_complete() {
                break;
            }
        }
        assert_eq!(reader.bytes(), taken as u64);
        let server = reader.server().map(|name| String::from_utf8_lossy(name).into_owned());
        let complete = reader.is_complete();
        Ok((taken, complete, if complete { reader.status() } else { 0 }, complete && reader.keeps_alive(), server))
    }

    fn whole(text: &str) -> Option<(u16, bool)> {
        let (taken, complete, status, keeps_alive, _) = read(text.as_bytes(), &[]).ok()?;
        (complete && taken == text.len()).then_some((status, keeps_alive))
    }

    #[test]
    fn answers_of_every_framing_are_read() {
        for (text, expected) in [
            ("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", (200, true)),
            ("HTTP/1.1 200\r\ncontent-length:0\r\n\r\n", (200, true)),
            ("HTTP/1.1 502 Bad Gateway\r\nContent-Length: 1\r\nConnection: Foo, close\r\n\r\nx", (502, false)),
            ("HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\nx", (200, false)),
            ("HTTP/1.0 200 OK\r\nContent-Length: 1\r\nConnection: keep-alive\r\n\r\nx", (200, true)),
            ("HTTP/1.1 204 No Content\r\n\r\n", (204, true)),
            ("HTTP/1.1 304 Not Modified\r\nContent-Length: 10\r\n\r\n", (304, true)),
            ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nab", (200, true)),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n1A;x=y\r\n01234567890123456789012345\r\n0\r\n\r\n",
                (200, true),
            ),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n0\r\nX-Sum: 1\r\nY: 2\r\n\r\n", (200, true)),
            (
                "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
                (404, true),
            ),
        ] {
            assert_eq!(whole(text), Some(expected), "{text:?}");
        }
    }

    #[test]
    fn what_can_be_read_in_two_ways_is_refused() {
        for text in [
            "HTTP/2 200 OK\r\n\r\n",
            "HTTP/1.1 20 OK\r\n\r\n",
            "HTTP/1.1 2000 OK\r\n\r\n",
            "HTTP/1.1 600 OK\r\n\r\n",
            "HTTP/1.1 101 Switching Protocols\r\n\r\n",
            "SSH-2.0-OpenSSH\r\n\r\n",
            "HTTP/1.1 200 OK\nContent-Length: 0\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 0\nX: y\r\n\r\n",
            "HTTP/1.1 200 OK\r\nX: a\rb\r\n\r\n",
            "HTTP/1.1 200 OK\r\nX: a\0b\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
            "HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\na",
            "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\na",
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            "HTTP/1.1 200 OK\r\nX : y\r\n\r\n",
            "HTTP/1.1 200 OK\r\nX: y\r\n folded\r\n\r\n",
            "HTTP/1.1 200 OK\r\n: y\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nabcg\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\nx\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nxy\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n11111111111111111\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nno field\r\n\r\n",
        ] {
            assert_eq!(read(text.as_bytes(), &[]), Err(Malformed), "{text:?}");
        }
        let endless = format!("HTTP/1.1 200 OK\r\nX: {}", "x".repeat(HEAD_MAX));
        assert_eq!(read(endless.as_bytes(), &[]), Err(Malformed));
        let lines = format!("HTTP/1.1 200 OK\r\n{}", "X: y\r\n".repeat(HEAD_MAX / 6));
        assert_eq!(read(lines.as_bytes(), &[]), Err(Malformed));
    }

    #[test]
    fn an_answer_may_end_with_its_connection() {
        let mut reader = Reader::default();
        reader.feed(b"HTTP/1.1 200 OK\r\n\r\nabc").unwrap();
        assert!(!reader.is_complete());
        assert!(reader.closed() && !reader.keeps_alive());

        let mut reader = Reader::default();
        reader.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nabc").unwrap();
        assert!(!reader.closed());
        let mut reader = Reader::default();
        reader.feed(b"HTTP/1.1 200 OK\r\n").unwrap();
        assert!(!reader.closed());
    }

    #[test]
    fn the_server_says_its_name() {
        for (field, name) in [
            ("X-Server: web-1\r\n", Some("web-1")),
            ("x-server:\t web 1 \t\r\n", Some("web 1")),
            ("X-Server:\r\n", Some("")),
            ("", None),
        ] {
            let text = format!("HTTP/1.1 200 OK\r\n{field}Content-Length: 0\r\n\r\n");
            assert_eq!(read(text.as_bytes(), &[]).unwrap().4.as_deref(), name, "{field:?}");
        }
    }

    #[test]
    fn a_reader_can_be_used_again() {
        let text =
            b"HTTP/1.1 200 OK\r\nX-Server: a\r\nContent-Length: 1\r\n\r\nxHTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n";
        let mut reader = Reader::default();
        let first = reader.feed(text).unwrap();
        assert_eq!((reader.status(), reader.server()), (200, Some(&b"a"[..])));
        assert!(first < text.len(), "the rest is not of this answer");
        reader.reset();
        assert_eq!(reader.feed(&text[first..]), Ok(text.len() - first));
        assert_eq!((reader.status(), reader.server(), reader.is_complete()), (404, None, true));
    }

    fn field() -> impl Strategy<Value = String> {
        prop_oneof![
            Just("X-Server: s1\r\n".to_owned()),
            Just("Connection: close\r\n".to_owned()),
            Just("Transfer-Encoding: chunked\r\n".to_owned()),
            Just("Bad field\r\n".to_owned()),
            (0u32..12).prop_map(|length| format!("Content-Length: {length}\r\n")),
        ]
    }

    fn answer() -> impl Strategy<Value = Vec<u8>> {
        let status = prop_oneof![Just(100u16), Just(200), Just(204), Just(503)];
        let body = prop_oneof![
            prop::collection::vec(any::<u8>(), 0..16),
            prop::collection::vec(1usize..20, 0..4).prop_map(|sizes| {
                let chunks = sizes.iter().map(|&size| format!("{size:x}\r\n{}\r\n", "c".repeat(size)));
                (chunks.collect::<String>() + "0\r\nT: 1\r\n\r\n").into_bytes()
            }),
        ];
        (status, prop::collection::vec(field(), 0..3), body).prop_map(|(status, fields, body)| {
            let mut text = format!("HTTP/1.1 {status} Reason\r\n{}\r\n", fields.concat()).into_bytes();
            text.extend(body);
            text
        })
    }

    proptest! {
        #[test]
        fn how_the_bytes_are_cut_makes_no_difference(
            text in answer(),
            cuts in prop::collection::vec(any::<usize>(), 0..12),
        ) {
            let one_by_one: Vec<usize> = (0..text.len()).collect();
            prop_assert_eq!(read(&text, &cuts), read(&text, &[]));
            prop_assert_eq!(read(&text, &one_by_one), read(&text, &[]));
        }

        #[test]
        fn nothing_makes_it_panic(text in prop::collection::vec(any::<u8>(), 0..200), cuts in prop::collection::vec(any::<usize>(), 0..4)) {
            let _ = read(&text, &cuts);
        }
    }
}
