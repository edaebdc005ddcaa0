//! Heads of requests and trailers: HEADERS and CONTINUATION.

use super::{Arrived, Block, CONTINUATIONS, Core, Ending, Fatal, Purpose, WRONG_SIZE, WRONG_STREAM, fatal, protocol};
use crate::server::flow::{self, Receiving, Sending};
use crate::server::frame::{self, Reason, flag};
use crate::server::head::{Fault, Head};
use crate::server::streams::Stream;

impl Core {
    pub(super) fn receive_headers(&mut self, head: frame::Head, payload: &[u8]) -> Result<Option<Arrived>, Fatal> {
        let mut fragment =
            frame::unpadded(head, payload).ok_or(protocol("client sent padding longer than its frame"))?;
        let mut depends_on_itself = false;
        if head.has(flag::PRIORITY) {
            let (&[a, b, c, d, _], rest) = fragment.split_first_chunk::<5>().ok_or(WRONG_SIZE)?;
            depends_on_itself = frame::number([a, b, c, d]) == head.stream;
            fragment = rest;
        }
        let (id, ends) = (head.stream, head.has(flag::END_STREAM));
        let mut purpose = self.purpose(id, ends)?;
        if depends_on_itself {
            self.stream_error(id, Reason::ProtocolError)?;
            purpose = Purpose::Ignored;
        }
        let most = if purpose == Purpose::Ignored { 0 } else { self.settings.head as usize };
        let fields = Head::new(most, purpose == Purpose::Trailers);
        let mut block = Block { stream: id, purpose, ends, head: fields, rest: Vec::new(), frames: 0 };
        self.decoder.begin();
        let is_last = head.has(flag::END_HEADERS);
        self.decode(&mut block, fragment, is_last)?;
        if is_last {
            return self.end_block(block);
        }
        self.block = Some(Box::new(block));
        Ok(None)
    }

    pub(super) fn receive_continuation(&mut self, head: frame::Head, payload: &[u8]) -> Result<Option<Arrived>, Fatal> {
        let Some(mut block) = self.block.take() else { return Ok(None) };
        block.frames += 1;
        if block.frames > CONTINUATIONS + 2 * self.settings.head as usize / frame::MOST {
            return Err(fatal(Reason::EnhanceYourCalm, "client sent too many CONTINUATION frames"));
        }
        let is_last = head.has(flag::END_HEADERS);
        self.decode(&mut block, payload, is_last)?;
        if is_last {
            return self.end_block(*block);
        }
        self.block = Some(block);
        Ok(None)
    }

    /// What a header block on this stream is, by the state of the stream (RFC 9113, 5.1).
    pub(super) fn purpose(&mut self, id: u32, ends: bool) -> Result<Purpose, Fatal> {
        if id.is_multiple_of(2) {
            return Err(WRONG_STREAM);
        }
        if id > self.last {
            // A client that begins so many more acknowledges no PING. It may repeat what we ignore from here on: the numbers
            // of those streams are above that of GOAWAY.
            if let Ending::Told(then) = self.ending
                && (id - then) / 2 > self.settings.streams.saturating_mul(2)
            {
                self.tell_last();
            }
            if self.ending == Ending::Last {
                return Ok(Purpose::Ignored);
            }
            self.last = id;
            return Ok(if self.streams.open < self.settings.streams { Purpose::Request } else { Purpose::Refused });
        }
        let Some(stream) = self.streams.of(id) else {
            return match self.given_up.contains(&id) {
                true => Ok(Purpose::Ignored),
                false if id == self.last => {
                    Err(fatal(Reason::StreamClosed, "client sent HEADERS frame on a closed stream"))
                }
                false => Err(protocol("client sent HEADERS frame on a stream below the last")),
            };
        };
        match (stream.reset, stream.received, ends) {
            (false, false, true) => return Ok(Purpose::Trailers),
            (false, false, false) => self.stream_error(id, Reason::ProtocolError)?,
            _ if self.given_up.contains(&id) => {}
            _ => self.stream_error(id, Reason::StreamClosed)?,
        }
        Ok(Purpose::Ignored)
    }

    /// Decodes fields. Fields that exceed the limit are decoded and dropped.
    pub(super) fn decode(&mut self, block: &mut Block, piece: &[u8], is_last: bool) -> Result<(), Fatal> {
        const INVALID: Fatal = fatal(Reason::CompressionError, "client sent invalid header block");
        let Head { text, known } = &mut block.head;
        let wanted = known.is_good();
        let mut add = |text: &mut Vec<u8>, begin: usize, name_end: usize| {
            known.add(text, begin, name_end);
            known.is_good()
        };
        if block.rest.is_empty() {
            let read = self.decoder.decode(piece, text, wanted, &mut add).map_err(|_| INVALID)?;
            block.rest.extend_from_slice(&piece[read..]);
        } else {
            block.rest.extend_from_slice(piece);
            let read = self.decoder.decode(&block.rest, text, wanted, &mut add).map_err(|_| INVALID)?;
            block.rest.drain(..read);
        }
        let left = block.rest.len();
        if is_last && left > 0 {
            return Err(INVALID);
        }
        if left > self.settings.head as usize {
            return Err(fatal(Reason::EnhanceYourCalm, "client sent too large header field"));
        }
        Ok(())
    }

    pub(super) fn end_block(&mut self, mut block: Block) -> Result<Option<Arrived>, Fatal> {
        let id = block.stream;
        match block.purpose {
            Purpose::Ignored => {}
            Purpose::Refused => self.stream_error(id, Reason::RefusedStream)?,
            Purpose::Trailers => self.end_with_trailers(id, &mut block.head)?,
            Purpose::Request => match block.head.finish(block.ends) {
                Ok(()) => return self.begin_stream(block).map(Some),
                Err(Fault::Malformed) => self.stream_error(id, Reason::ProtocolError)?,
                Err(Fault::TooLarge) => self.answer_too_large(id, block.ends)?,
            },
        }
        Ok(None)
    }

    pub(super) fn begin_stream(&mut self, block: Block) -> Result<Arrived, Fatal> {
        let Block { stream: id, ends, head, .. } = block;
        // Requests that were reset count until their tasks have ended.
        if self.streams.len() >= self.settings.streams.saturating_mul(2) as usize {
            return Err(fatal(Reason::EnhanceYourCalm, "http2 flood detected"));
        }
        self.faults = self.faults.saturating_sub(1);
        let most = if self.settled { self.settings.window } else { self.settings.window.max(flow::INITIAL) };
        let (receiving, sending) = (Receiving::new(most), Sending::new(self.window));
        let stream = Stream::new(id, ends, head.content_length(), receiving, sending);
        let key = self.streams.insert(stream);
        Ok(Arrived { head, ends, key, id })
    }

    pub(super) fn end_with_trailers(&mut self, id: u32, head: &mut Head) -> Result<(), Fatal> {
        if head.finish(true).is_err() {
            return self.stream_error(id, Reason::ProtocolError);
        }
        if let Some(stream) = self.streams.of(id) {
            stream.trailers = Some(Box::new(head.trailers()));
        }
        self.end_request(id)
    }

    /// Notes that a request has been received completely.
    pub(super) fn end_request(&mut self, id: u32) -> Result<(), Fatal> {
        let Some(key) = self.streams.find(id) else { return Ok(()) };
        let Some(stream) = self.streams.at(key) else { return Ok(()) };
        if stream.expected.is_some_and(|left| left > 0) {
            return self.stream_error(id, Reason::ProtocolError);
        }
        stream.received = true;
        stream.wake_reader();
        self.streams.settle(key);
        Ok(())
    }

    pub(super) fn answer_too_large(&mut self, id: u32, ends: bool) -> Result<(), Fatal> {
        let mut block = Vec::new();
        self.begin_block(&mut block);
        crate::hpack::status(&mut block, 431);
        self.output.block(id, &block, true);
        if !ends {
            self.output.reset(id, Reason::NoError);
        }
        self.remember(id);
        self.blame()
    }

    /// Begins a header block. Call it before every block that is sent.
    pub fn begin_block(&mut self, block: &mut Vec<u8>) {
        if std::mem::take(&mut self.table_due) {
            crate::hpack::size_update(block);
        }
    }
}
