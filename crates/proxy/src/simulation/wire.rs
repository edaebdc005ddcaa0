//! HTTP/1.1 as the simulated clients and servers speak it: written for these tests alone, so that it cannot share a mistake
//! with the proxy.

use std::time::Duration;

use balanza_net::simulation::{Peer, Random};

use super::plan::{Body, content};

/// A peer that waits for so long waits for something that will not come.
pub const PATIENCE: Duration = Duration::from_secs(900);

/// Why nothing more can be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    /// The other side has closed.
    End,
    /// The connection was reset.
    Reset,
    /// As much was read as was wanted.
    Limit,
    /// Nothing came for [`PATIENCE`].
    Silence,
    /// What came is not HTTP.
    Malformed(String),
}

/// A start line and fields, names in lower case.
#[derive(Debug, Clone)]
pub struct Head {
    pub start: String,
    fields: Vec<(String, String)>,
}

impl Head {
    /// The value of a field, if there is one.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(known, _)| known == name).map(|(_, value)| &value[..])
    }

    /// A field with a number.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.field(name).and_then(|value| value.parse().ok())
    }

    /// Whether the field lists this word.
    pub fn says(&self, name: &str, word: &str) -> bool {
        self.field(name).is_some_and(|value| value.split(',').any(|item| item.trim().eq_ignore_ascii_case(word)))
    }

    /// The status of a response.
    pub fn status(&self) -> Option<u16> {
        self.start.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()
    }

    /// How a body is delimited that is there.
    pub fn framing(&self) -> Framing {
        match (self.says("transfer-encoding", "chunked"), self.number("content-length")) {
            (true, _) => Framing::Chunked,
            (false, Some(length)) => Framing::Length(length as usize),
            (false, None) => Framing::UntilClose,
        }
    }
}

/// How a body is delimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    Length(usize),
    Chunked,
    UntilClose,
}

/// How fast one reads and writes.
pub struct Pace {
    random: Random,
    /// Pauses in a hundred pieces.
    pauses: u64,
}

impl Pace {
    pub fn new(random: Random, pauses: u64) -> Pace {
        Pace { random, pauses }
    }

    async fn pause(&mut self) {
        if self.random.percent(self.pauses) {
            let pause = self.random.size(200);
            tokio::time::sleep(Duration::from_millis(pause)).await;
        }
    }

    fn piece(&mut self, most: usize) -> usize {
        if self.random.percent(70) { most } else { self.random.size(most as u64) as usize }
    }

    /// Writes all of it; false if the connection does not take it.
    pub async fn write(&mut self, peer: &Peer, mut bytes: &[u8]) -> bool {
        while !bytes.is_empty() {
            self.pause().await;
            let piece = self.piece(bytes.len());
            match tokio::time::timeout(PATIENCE, peer.write(&bytes[..piece])).await {
                Ok(Ok(written)) => bytes = &bytes[written..],
                _ => return false,
            }
        }
        true
    }

    /// Writes the part of a body before `end` as it is framed, and what ends it if that is the whole.
    pub async fn write_body(&mut self, peer: &Peer, (id, sender): (u64, u64), body: Body, end: usize) -> bool {
        let mut from = 0;
        while from < end {
            let piece = self.piece((end - from).min(30_000));
            let mut bytes = content(id, sender, from, piece);
            if let Body::Chunked(_) = body {
                let extension = if self.random.percent(10) { ";a=b" } else { "" };
                bytes = [format!("{piece:x}{extension}\r\n").as_bytes(), &bytes, b"\r\n"].concat();
            }
            if !self.write(peer, &bytes).await {
                return false;
            }
            from += piece;
        }
        if let Body::Chunked(length) = body
            && length == end
        {
            let trailer = if self.random.percent(20) { "X-Trailer: 1\r\n" } else { "" };
            return self.write(peer, format!("0\r\n{trailer}\r\n").as_bytes()).await;
        }
        true
    }
}

/// Reads messages from a connection.
pub struct Reader<'a> {
    peer: &'a Peer,
    pace: Pace,
    unread: Vec<u8>,
    /// Bytes read so far.
    pub total: usize,
    /// No more than this is wanted.
    pub limit: usize,
}

impl<'a> Reader<'a> {
    pub fn new(peer: &'a Peer, pace: Pace) -> Reader<'a> {
        Reader { peer, pace, unread: Vec::new(), total: 0, limit: usize::MAX }
    }

    /// Whether something waits that was not asked for.
    pub fn has_unread(&self) -> bool {
        !self.unread.is_empty()
    }

    async fn more(&mut self) -> Result<(), Stop> {
        if self.total >= self.limit {
            return Err(Stop::Limit);
        }
        self.pace.pause().await;
        let mut bytes = vec![0; 60_000.min(self.limit - self.total)];
        match tokio::time::timeout(PATIENCE, self.peer.read(&mut bytes)).await {
            Err(_) => Err(Stop::Silence),
            Ok(Err(_)) => Err(Stop::Reset),
            Ok(Ok(0)) => Err(Stop::End),
            Ok(Ok(read)) => {
                self.total += read;
                self.unread.extend_from_slice(&bytes[..read]);
                Ok(())
            }
        }
    }

    /// Waits for the first byte of a message.
    pub async fn begin(&mut self) -> Result<(), Stop> {
        if self.unread.is_empty() { self.more().await } else { Ok(()) }
    }

    async fn line(&mut self) -> Result<String, Stop> {
        let end = loop {
            match self.unread.windows(2).position(|two| two == b"\r\n") {
                Some(end) => break end,
                None => self.more().await?,
            }
        };
        let line = String::from_utf8_lossy(&self.unread[..end]).into_owned();
        self.unread.drain(..end + 2);
        Ok(line)
    }

    /// A head.
    pub async fn head(&mut self) -> Result<Head, Stop> {
        let start = self.line().await?;
        Ok(Head { start, fields: self.fields().await? })
    }

    async fn fields(&mut self) -> Result<Vec<(String, String)>, Stop> {
        let mut fields = Vec::new();
        loop {
            let line = self.line().await?;
            if line.is_empty() {
                return Ok(fields);
            }
            let Some((name, value)) = line.split_once(':') else {
                return Err(Stop::Malformed(format!("no field: {line:?}")));
            };
            fields.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
    }

    /// A body, piece by piece, to its end. A body that the connection's end may end is complete then.
    pub async fn body(&mut self, framing: Framing, mut piece: impl FnMut(&[u8])) -> Result<(), Stop> {
        match framing {
            Framing::Length(length) => self.pieces(length, &mut piece).await,
            Framing::UntilClose => match self.pieces(usize::MAX, &mut piece).await {
                Err(Stop::End) => Ok(()),
                other => other,
            },
            Framing::Chunked => loop {
                let line = self.line().await?;
                let size = usize::from_str_radix(line.split(';').next().unwrap_or_default(), 16);
                let Ok(size) = size else { return Err(Stop::Malformed(format!("no chunk: {line:?}"))) };
                if size == 0 {
                    return self.fields().await.map(|_| ());
                }
                self.pieces(size, &mut piece).await?;
                if !self.line().await?.is_empty() {
                    return Err(Stop::Malformed("a chunk is longer than its size".to_owned()));
                }
            },
        }
    }

    async fn pieces(&mut self, mut left: usize, piece: &mut impl FnMut(&[u8])) -> Result<(), Stop> {
        while left > 0 {
            if self.unread.is_empty() {
                self.more().await?;
            }
            let taken = left.min(self.unread.len());
            piece(&self.unread[..taken]);
            self.unread.drain(..taken);
            left -= taken;
        }
        Ok(())
    }

    /// Reads until the connection ends, and tells what came and how it ended.
    pub async fn rest(&mut self) -> (Vec<u8>, Stop) {
        self.limit = usize::MAX;
        loop {
            if let Err(stop) = self.more().await {
                return (std::mem::take(&mut self.unread), stop);
            }
        }
    }
}
