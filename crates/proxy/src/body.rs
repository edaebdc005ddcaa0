//! The request's body: read from the client, decoded, held in the input buffer, in memory or in a file.

use std::io::{self, Write};
use std::ops::Range;
use std::task::{Context, Poll, ready};

use balanza_config::model::{BodyFiles, Settings};
use balanza_http1::{Body, ChunkedDecoder};
use balanza_message::Length;
use balanza_net::buffer::{self, Buffer};
use balanza_net::memory::{self, Held, Pressure};

use crate::downstream::Downstream;
use crate::temporary::{self, TempFile};

/// With less room than this behind what is kept, a body moves out of the input buffer.
pub const LEAST_SPACE: usize = 4096;

/// Why a body could not be read.
#[derive(Debug)]
pub enum BodyError {
    /// The client closed or reset the connection.
    Closed,
    /// Its chunks are malformed.
    Malformed(&'static str),
    /// More bytes than `client_max_body_size`.
    TooLarge,
    /// It did not come in time.
    TimedOut,
    /// A temporary file could not be written.
    File(io::Error),
    /// It would have to be kept in memory, and memory is short.
    NoMemory,
}

/// A request's body.
#[derive(Default)]
pub struct RequestBody {
    /// Bytes from the client behind the request's head: its body, or what was pipelined.
    pub input: Option<Buffer>,
    framing: Framing,
    decoder: ChunkedDecoder,
    /// Payload bytes read so far.
    pub received: u64,
    /// Bytes read from the connection for the body.
    pub wire: u64,
    /// Where the body whole is, once it was buffered.
    pub store: Store,
    /// The body was read whole into `store`.
    pub buffered: bool,
    /// Pieces of the body went to a server unbuffered: it cannot be sent again.
    pub consumed: bool,
    /// What `store` has in memory.
    held: Held,
    /// `100 Continue` was sent, or the client did not ask for it.
    pub continued: bool,
}

#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum Framing {
    #[default]
    Finished,
    Length(u64),
    Chunked,
    /// It ends where its stream of HTTP/2 does.
    Stream,
}

/// Where a buffered body is.
#[derive(Default)]
pub enum Store {
    /// Not buffered (yet), or empty.
    #[default]
    Nowhere,
    /// In the input buffer.
    Input(Range<usize>),
    /// In memory.
    Memory(Vec<u8>),
    /// In a file that goes with the request.
    File(TempFile),
}

impl Store {
    /// Bytes held.
    pub fn len(&self) -> u64 {
        match self {
            Store::Nowhere => 0,
            Store::Input(range) => range.len() as u64,
            Store::Memory(bytes) => bytes.len() as u64,
            Store::File(temporary) => temporary.file.metadata().map_or(0, |metadata| metadata.len()),
        }
    }
}

impl RequestBody {
    /// A body that is still to be read.
    pub fn begin(&mut self, body: Body, expects_continue: bool) {
        self.reset();
        self.framing = match body {
            Body::None | Body::Length(0) => Framing::Finished,
            Body::Length(length) => Framing::Length(length),
            Body::Chunked | Body::UntilClose => Framing::Chunked,
        };
        self.continued = !expects_continue;
    }

    /// The body of a stream of HTTP/2 that is still to be read.
    pub fn begin_stream(&mut self, length: Length) {
        self.reset();
        self.framing = match length {
            Length::None | Length::Known(0) => Framing::Finished,
            Length::Known(length) => Framing::Length(length),
            Length::Unknown => Framing::Stream,
        };
        self.input = (self.framing != Framing::Finished).then(Buffer::take);
    }

    /// The same body for another request. It must have been buffered.
    ///
    /// # Errors
    /// Its file cannot be shared.
    pub fn share(&self) -> io::Result<RequestBody> {
        let store = match &self.store {
            Store::Nowhere => Store::Nowhere,
            Store::Input(range) => Store::Memory(self.input_bytes()[range.clone()].to_vec()),
            Store::Memory(bytes) => Store::Memory(bytes.clone()),
            Store::File(temporary) => Store::File(temporary.share()?),
        };
        let mut body =
            RequestBody { received: self.received, buffered: true, continued: true, ..RequestBody::default() };
        if let Store::Memory(bytes) = &store {
            body.held.set(bytes.capacity());
        }
        body.store = store;
        Ok(body)
    }

    /// Forgets the request.
    pub fn clear(&mut self) {
        self.input = None;
        self.reset();
    }

    fn reset(&mut self) {
        let RequestBody { input: _, framing, decoder, received, wire, store, buffered, consumed, held, continued } =
            self;
        // A body may have been read without payload, or have failed at its first byte.
        if *framing == Framing::Chunked || *wire > 0 {
            decoder.reset();
        }
        *framing = Framing::Finished;
        (*received, *wire) = (0, 0);
        *store = Store::Nowhere;
        held.set(0);
        (*buffered, *consumed, *continued) = (false, false, true);
    }

    /// Bytes from the client, in which the pieces of a body are ranges.
    pub fn input_bytes(&self) -> &[u8] {
        self.input.as_ref().map_or(b"", Buffer::bytes)
    }

    /// Whether nothing that the client has sent is unread, as far as is known: a close then does not become a reset.
    pub fn heard_all(&self) -> bool {
        self.is_finished() && self.input.as_ref().is_none_or(Buffer::is_empty)
    }

    /// Whether everything was read.
    pub fn is_finished(&self) -> bool {
        self.framing == Framing::Finished
    }

    /// Whether its length is not known before its end.
    pub fn is_unbounded(&self) -> bool {
        matches!(self.framing, Framing::Chunked | Framing::Stream)
    }

    /// The length that is still to come, if known.
    pub fn remaining(&self) -> Option<u64> {
        match self.framing {
            Framing::Finished => Some(0),
            Framing::Length(length) => Some(length),
            Framing::Chunked | Framing::Stream => None,
        }
    }

    /// The trailers of a chunked body, once it is finished.
    pub fn decoder(&self) -> &ChunkedDecoder {
        &self.decoder
    }

    /// Takes payload out of what the buffer holds unread; `None` when more has to be read first.
    ///
    /// # Errors
    /// Malformed chunks.
    fn take(&mut self, input: &mut Buffer) -> Result<Option<Range<usize>>, BodyError> {
        let start = input.start;
        match self.framing {
            Framing::Finished => Ok(Some(start..start)),
            Framing::Length(remaining) => {
                let taken = (input.end - start).min(usize::try_from(remaining).unwrap_or(usize::MAX));
                if taken == 0 {
                    return Ok(None);
                }
                input.start += taken;
                self.received += taken as u64;
                self.wire += taken as u64;
                let left = remaining - taken as u64;
                self.framing = if left == 0 { Framing::Finished } else { Framing::Length(left) };
                Ok(Some(start..start + taken))
            }
            Framing::Stream => {
                let taken = input.end - start;
                input.start += taken;
                self.received += taken as u64;
                self.wire += taken as u64;
                Ok((taken > 0).then_some(start..start + taken))
            }
            Framing::Chunked => {
                let decoded =
                    self.decoder.decode(input.unread_mut()).map_err(|error| BodyError::Malformed(error.reason))?;
                input.start += decoded.consumed;
                self.received += decoded.produced as u64;
                self.wire += decoded.consumed as u64;
                if decoded.finished {
                    self.framing = Framing::Finished;
                }
                if decoded.produced == 0 && !decoded.finished {
                    return Ok(None);
                }
                Ok(Some(start..start + decoded.produced))
            }
        }
    }

    /// Reads what has come already of a chunked body that nothing wants.
    ///
    /// # Errors
    /// Malformed chunks.
    pub fn skip_arrived(&mut self) -> Result<(), BodyError> {
        if self.framing != Framing::Chunked || self.buffered {
            return Ok(());
        }
        let Some(mut input) = self.input.take() else { return Ok(()) };
        let skipped = loop {
            match self.take(&mut input) {
                Ok(Some(_)) if self.framing == Framing::Chunked => {}
                Ok(_) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        self.input = Some(input);
        skipped
    }

    /// Keeps a body of known length that has come whole with the request's head; false for another one.
    pub fn keep_arrived(&mut self) -> bool {
        let Framing::Length(length) = self.framing else { return false };
        let Some(input) = &mut self.input else { return false };
        let Some(length) = usize::try_from(length).ok().filter(|length| *length <= input.unread().len()) else {
            return false;
        };
        self.store = Store::Input(input.start..input.start + length);
        input.start += length;
        self.received += length as u64;
        self.wire += length as u64;
        self.framing = Framing::Finished;
        self.buffered = true;
        true
    }

    /// The next piece of payload, as a range of the input buffer; empty at the end of the body.
    pub fn poll_piece(
        &mut self,
        cx: &mut Context<'_>,
        client: &mut Downstream,
    ) -> Poll<Result<Range<usize>, BodyError>> {
        // Behind what is kept the buffer may be overwritten.
        let window = self.window();
        let Some(mut input) = self.input.take() else { return Poll::Ready(Err(BodyError::Closed)) };
        let piece = self.poll_into(cx, client, &mut input, window);
        self.input = Some(input);
        piece
    }

    fn poll_into(
        &mut self,
        cx: &mut Context<'_>,
        client: &mut Downstream,
        input: &mut Buffer,
        window: usize,
    ) -> Poll<Result<Range<usize>, BodyError>> {
        loop {
            if let Some(piece) = self.take(input)? {
                return Poll::Ready(Ok(piece));
            }
            if input.is_empty() {
                input.start = window;
                input.end = window;
            } else if input.space().is_empty() {
                input.shift(window);
            }
            match ready!(client.poll_recv(cx, input)) {
                Ok(0) if self.framing == Framing::Stream => {
                    self.framing = Framing::Finished;
                    return Poll::Ready(Ok(window..window));
                }
                Ok(0) | Err(_) => return Poll::Ready(Err(BodyError::Closed)),
                Ok(_) => {}
            }
        }
    }

    /// Adds a piece to a body that is being buffered. In the input buffer pieces lie one behind the other; what grows past
    /// that is kept in memory up to `client_body_buffer_size`, then in a file. `client_body_in_file_only` puts all of it
    /// into the file.
    ///
    /// # Errors
    /// The file cannot be written, or memory is short.
    pub fn keep(&mut self, piece: Range<usize>, settings: &Settings) -> Result<(), BodyError> {
        if piece.is_empty() {
            return Ok(());
        }
        let most = settings.client_body_buffer_size;
        let create = || temporary::create(settings.client_body_temp_path.as_deref(), settings.client_body_files);
        let Some(input) = &self.input else { return Ok(()) };
        let bytes = &input.bytes()[piece.clone()];
        match &mut self.store {
            Store::Nowhere if settings.client_body_files != BodyFiles::Off => {
                let mut temporary = create().map_err(BodyError::File)?;
                temporary.file.write_all(bytes).map_err(BodyError::File)?;
                self.store = Store::File(temporary);
            }
            Store::Nowhere => self.store = Store::Input(piece),
            Store::Input(kept) if kept.end == piece.start && kept.len() + bytes.len() <= most => kept.end = piece.end,
            Store::Input(kept) => {
                let mut all = input.bytes()[kept.clone()].to_vec();
                all.extend_from_slice(bytes);
                self.store = Store::Memory(all);
            }
            Store::Memory(kept) => kept.extend_from_slice(bytes),
            Store::File(temporary) => temporary.file.write_all(bytes).map_err(BodyError::File)?,
        }
        if let Store::Input(kept) = &self.store
            && kept.end + LEAST_SPACE > buffer::CAPACITY
            && self.framing != Framing::Finished
        {
            self.store = Store::Memory(input.bytes()[kept.clone()].to_vec());
        }
        if let Store::Memory(kept) = &self.store {
            if kept.len() > most {
                let mut temporary = create().map_err(BodyError::File)?;
                temporary.file.write_all(kept).map_err(BodyError::File)?;
                self.held.set(0);
                self.store = Store::File(temporary);
            } else if memory::pressure() >= Pressure::Bodies {
                return Err(BodyError::NoMemory);
            } else {
                self.held.set(kept.capacity());
            }
        }
        Ok(())
    }

    /// Where the next piece may be read to without overwriting what is kept.
    fn window(&self) -> usize {
        match &self.store {
            Store::Input(kept) => kept.end,
            _ => 0,
        }
    }
}
