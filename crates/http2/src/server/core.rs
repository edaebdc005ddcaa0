//! A connection without its transport. Its input is the client's bytes; its output is requests and the bytes of frames.

mod control;
mod heads;

use std::collections::VecDeque;
use std::task::Waker;

use super::Settings;
use super::flow::{self, Receiving, Sending};
use super::frame::{self, Reason, flag, kind, setting};
use super::head::Head;
use super::output::Output;
use super::streams::{Key, Streams, watch};
use crate::hpack::Decoder;

/// How many streams are remembered at least after we have reset them: frames for them may still arrive.
const REMEMBERED: usize = 256;

/// Stream errors caused by the client, minus its valid requests, above which the connection is closed.
const FAULTS: u32 = 1024;

/// CONTINUATION frames of a head that are allowed in addition to those that its size requires.
const CONTINUATIONS: usize = 8;

/// The least free space that is used for a DATA frame. Smaller frames are not worth their cost.
pub const WORTHWHILE: usize = 1024;

/// The content of the PING whose acknowledgment shows that the client has received our first GOAWAY.
const PING: [u8; 8] = *b"goodbye.";

/// Why the connection has to be closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fatal {
    pub reason: Reason,
    pub text: &'static str,
}

const fn fatal(reason: Reason, text: &'static str) -> Fatal {
    Fatal { reason, text }
}

const fn protocol(text: &'static str) -> Fatal {
    fatal(Reason::ProtocolError, text)
}

const WRONG_SIZE: Fatal = fatal(Reason::FrameSizeError, "client sent http2 frame of invalid size");
const WRONG_STREAM: Fatal = protocol("client sent http2 frame on a stream that it may not be on");

/// A request that has been received, and its stream.
pub struct Arrived {
    pub head: Head,
    /// Nothing follows the head.
    pub ends: bool,
    pub key: Key,
    pub id: u32,
}

/// The stage of closing the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    No,
    /// The client has been told to send no more requests; this was its last stream then.
    Told(u32),
    /// The client has been told the last stream that is processed.
    Last,
    /// No request is served any more.
    Over,
}

/// What a header block is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Request,
    Trailers,
    /// A request above the limit of concurrent ones.
    Refused,
    /// A block that is dropped. The decoder has to read it, because it may change the dynamic table.
    Ignored,
}

/// A head or trailers of which more is expected.
struct Block {
    stream: u32,
    purpose: Purpose,
    ends: bool,
    head: Head,
    /// The beginning of a field whose rest has not arrived.
    rest: Vec<u8>,
    frames: usize,
}

/// A DATA frame that is being received.
struct Data {
    stream: u32,
    /// Bytes of the body that have not arrived.
    left: usize,
    /// Bytes of padding that have not arrived.
    padding: usize,
    ends: bool,
    /// Whether the bytes are delivered to a request.
    wanted: bool,
}

/// The state of a connection.
pub struct Core {
    settings: Settings,
    /// The client's first SETTINGS have been received. Every other frame before them is an error.
    begun: bool,
    /// The client has acknowledged our SETTINGS.
    settled: bool,
    /// The client has announced its limit for the dynamic table, and has not yet been told that we use none.
    table_due: bool,
    ending: Ending,
    error: Option<Fatal>,
    /// The highest stream number of the client.
    last: u32,
    faults: u32,
    decoder: Decoder,
    block: Option<Box<Block>>,
    data: Option<Data>,
    pub streams: Streams,
    /// Streams that wait in line for their turn to send.
    line: VecDeque<Key>,
    /// How many streams have a turn that they have not used.
    turns: u32,
    given_up: VecDeque<u32>,
    /// The initial window of each stream, as set by the client.
    window: u32,
    pub sending: Sending,
    receiving: Receiving,
    pub output: Output,
}

impl Core {
    /// Creates the state of a connection whose preface has been read.
    pub fn new(settings: Settings) -> Core {
        let all = settings.streams.saturating_mul(settings.window).clamp(flow::INITIAL, flow::MOST as u32);
        let mut core = Core {
            settings,
            begun: false,
            settled: false,
            table_due: false,
            ending: Ending::No,
            error: None,
            last: 0,
            faults: 0,
            decoder: Decoder::default(),
            block: None,
            data: None,
            streams: Streams::default(),
            line: VecDeque::new(),
            turns: 0,
            given_up: VecDeque::new(),
            window: flow::INITIAL,
            sending: Sending::new(flow::INITIAL),
            receiving: Receiving::new(all),
            output: Output::default(),
        };
        core.introduce(all);
        core
    }

    /// Sends our SETTINGS and the connection's window.
    fn introduce(&mut self, all: u32) {
        let settings = [
            (setting::MAX_CONCURRENT_STREAMS, self.settings.streams),
            (setting::INITIAL_WINDOW_SIZE, self.settings.window),
            (setting::MAX_HEADER_LIST_SIZE, self.settings.head),
            (setting::ENABLE_CONNECT_PROTOCOL, 1),
        ];
        let mut payload = Vec::with_capacity(6 * settings.len());
        for (name, value) in settings {
            payload.extend_from_slice(&name.to_be_bytes());
            payload.extend_from_slice(&value.to_be_bytes());
        }
        self.output.frame(kind::SETTINGS, 0, 0, &payload);
        if all > flow::INITIAL {
            self.output.window_update(0, all - flow::INITIAL);
        }
    }

    /// Processes received bytes, up to the next request. Returns how many were processed; pass the remaining ones
    /// again, followed by new ones.
    ///
    /// # Errors
    /// The connection has to be closed.
    pub fn receive(&mut self, input: &[u8]) -> Result<(usize, Option<Arrived>), Fatal> {
        let mut at = 0;
        loop {
            let rest = &input[at..];
            if self.data.is_some() {
                let read = self.receive_data(rest)?;
                at += read;
                if self.data.is_some() {
                    return Ok((at, None));
                }
                continue;
            }
            let Some(head) = frame::Head::read(rest) else { return Ok((at, None)) };
            self.check_order(head)?;
            if head.kind == kind::DATA {
                let Some(in_front) = self.begin_data(head, rest)? else { return Ok((at, None)) };
                at += in_front;
                continue;
            }
            let Some(payload) = rest.get(frame::HEAD..frame::HEAD + head.length) else { return Ok((at, None)) };
            at += frame::HEAD + head.length;
            let arrived = self.receive_frame(head, payload)?;
            if arrived.is_some() || self.output.is_congested() || self.is_over() {
                return Ok((at, arrived));
            }
        }
    }

    fn check_order(&self, head: frame::Head) -> Result<(), Fatal> {
        if head.length > frame::MOST {
            return Err(WRONG_SIZE);
        }
        if !self.begun && (head.kind != kind::SETTINGS || head.has(flag::ACK)) {
            return Err(protocol("client sent another http2 frame before SETTINGS"));
        }
        let continues = head.kind == kind::CONTINUATION;
        match &self.block {
            Some(block) if !continues || head.stream != block.stream => {
                Err(protocol("client sent another http2 frame inside a header block"))
            }
            None if continues => Err(protocol("client sent CONTINUATION frame outside a header block")),
            _ => Ok(()),
        }
    }

    fn receive_frame(&mut self, head: frame::Head, payload: &[u8]) -> Result<Option<Arrived>, Fatal> {
        let of_connection = matches!(head.kind, kind::SETTINGS | kind::PING | kind::GOAWAY);
        let of_stream = matches!(head.kind, kind::HEADERS | kind::PRIORITY | kind::RST_STREAM | kind::CONTINUATION);
        if of_connection && head.stream != 0 || of_stream && head.stream == 0 {
            return Err(WRONG_STREAM);
        }
        match head.kind {
            kind::HEADERS => return self.receive_headers(head, payload),
            kind::CONTINUATION => return self.receive_continuation(head, payload),
            kind::PRIORITY => self.receive_priority(head, payload)?,
            kind::RST_STREAM => self.receive_reset(head, payload)?,
            kind::SETTINGS => self.receive_settings(head, payload)?,
            kind::PUSH_PROMISE => return Err(protocol("client sent PUSH_PROMISE frame")),
            kind::PING => self.receive_ping(head, payload)?,
            kind::GOAWAY if payload.len() < 8 => return Err(WRONG_SIZE),
            kind::WINDOW_UPDATE => self.receive_window_update(head, payload)?,
            _ => {}
        }
        Ok(None)
    }

    /// Resets a stream because of an error of the client.
    fn stream_error(&mut self, id: u32, reason: Reason) -> Result<(), Fatal> {
        self.give_up(id, reason);
        self.blame()
    }

    /// Counts an error of the client.
    fn blame(&mut self) -> Result<(), Fatal> {
        self.faults += 1;
        if self.faults > FAULTS {
            return Err(fatal(Reason::EnhanceYourCalm, "http2 flood detected"));
        }
        Ok(())
    }

    /// Resets a stream.
    pub fn give_up(&mut self, id: u32, reason: Reason) {
        self.output.reset(id, reason);
        self.remember(id);
        self.mark_reset(id);
    }

    fn remember(&mut self, id: u32) {
        if self.given_up.len() >= REMEMBERED.max(2 * self.settings.streams as usize) {
            self.given_up.pop_front();
        }
        self.given_up.push_back(id);
    }

    /// Marks a stream as reset and wakes the tasks that wait for it.
    fn mark_reset(&mut self, id: u32) {
        let Some(key) = self.streams.find(id) else { return };
        let Some(stream) = self.streams.at(key) else { return };
        stream.reset = true;
        let unread = stream.unread().len();
        stream.read(unread);
        stream.wake_reader();
        stream.wake_writer();
        self.end_turn(key);
        self.streams.settle(key);
        self.credit(unread);
    }

    /// Removes a stream from the table when its request's task has ended.
    pub fn close(&mut self, key: Key) {
        let Some(stream) = self.streams.at(key) else { return };
        let (id, unread) = (stream.id, stream.unread().len());
        let reason = match (stream.reset, stream.sent, stream.received) {
            (true, ..) | (_, true, true) => None,
            // The response is complete, so the rest of the request is not needed.
            (_, true, false) => Some(Reason::NoError),
            (_, false, _) => Some(Reason::Cancel),
        };
        if self.ending != Ending::Over {
            if let Some(reason) = reason {
                self.output.reset(id, reason);
                self.remember(id);
            }
            self.credit(unread);
        }
        self.end_turn(key);
        if self.streams.at(key).is_some_and(|stream| stream.in_line) {
            self.line.retain(|&other| other != key);
        }
        self.streams.remove(key);
        if self.streams.len() == 0 {
            self.line = VecDeque::new();
        }
    }

    /// Notes that the whole response of a stream has been sent.
    pub fn finish(&mut self, key: Key) {
        if let Some(stream) = self.streams.at(key) {
            stream.sent = true;
        }
        self.end_turn(key);
        self.streams.settle(key);
    }

    /// Notes that `length` bytes of a body have been read, so that the client may send as many again.
    pub fn release(&mut self, key: Key, length: usize) {
        let is_dead = self.is_dead();
        let Some(stream) = self.streams.at(key) else { return };
        stream.read(length);
        if is_dead {
            return;
        }
        if !stream.received
            && let Some(by) = stream.receiving.give_back(length as u32)
        {
            self.output.window_update(stream.id, by);
        }
        self.credit(length);
    }

    /// Lets the client send `length` more bytes on the connection.
    pub fn credit(&mut self, length: usize) {
        if let Some(by) = self.receiving.give_back(length as u32) {
            self.output.window_update(0, by);
        }
    }

    /// Begins a DATA frame and returns the length of its header and padding length; none if these have not arrived.
    fn begin_data(&mut self, head: frame::Head, bytes: &[u8]) -> Result<Option<usize>, Fatal> {
        let padded = usize::from(head.has(flag::PADDED));
        let padding = match (padded, bytes.get(frame::HEAD)) {
            (0, _) => 0,
            _ if head.length == 0 => return Err(WRONG_SIZE),
            (_, None) => return Ok(None),
            (_, Some(&padding)) => padding.into(),
        };
        let Some(left) = (head.length - padded).checked_sub(padding) else {
            return Err(protocol("client sent padding longer than its frame"));
        };
        if !self.receiving.take(head.length as u32) {
            return Err(fatal(Reason::FlowControlError, "client violated connection flow control"));
        }
        let wanted = self.admit_data(head, left)?;
        self.credit(if wanted { head.length - left } else { head.length });
        self.data = Some(Data { stream: head.stream, left, padding, ends: head.has(flag::END_STREAM), wanted });
        Ok(Some(frame::HEAD + padded))
    }

    /// Whether the body of a DATA frame belongs to a request.
    fn admit_data(&mut self, head: frame::Head, length: usize) -> Result<bool, Fatal> {
        let id = head.stream;
        if id.is_multiple_of(2) {
            return Err(WRONG_STREAM);
        }
        let given_up = &self.given_up;
        let ignores = || given_up.contains(&id);
        let Some(stream) = self.streams.of(id) else {
            if id > self.last && self.ending != Ending::Last {
                return Err(WRONG_STREAM);
            }
            if id <= self.last && !ignores() {
                self.stream_error(id, Reason::StreamClosed)?;
            }
            return Ok(false);
        };
        let reason = if stream.reset || stream.received {
            Some(Reason::StreamClosed)
        } else if !stream.receiving.take(head.length as u32) {
            Some(Reason::FlowControlError)
        } else if stream.expected.is_some_and(|left| left < length as u64) {
            Some(Reason::ProtocolError)
        } else {
            stream.expected = stream.expected.map(|left| left - length as u64);
            None
        };
        match reason {
            None => {
                if !head.has(flag::END_STREAM)
                    && let Some(by) = stream.receiving.give_back((head.length - length) as u32)
                {
                    self.output.window_update(id, by);
                }
                return Ok(true);
            }
            Some(_) if ignores() => {}
            Some(reason) => self.stream_error(id, reason)?,
        }
        Ok(false)
    }

    /// Processes the received part of a DATA frame.
    fn receive_data(&mut self, bytes: &[u8]) -> Result<usize, Fatal> {
        let Some(data) = &mut self.data else { return Ok(0) };
        let (id, ends, wanted) = (data.stream, data.ends, data.wanted);
        let length = data.left.min(bytes.len());
        let padding = data.padding.min(bytes.len() - length);
        data.left -= length;
        data.padding -= padding;
        let is_over = data.left == 0 && data.padding == 0;
        if is_over {
            self.data = None;
        }
        if wanted && length > 0 {
            match self.streams.of(id).filter(|stream| !stream.reset) {
                Some(stream) => {
                    stream.push(&bytes[..length]);
                    stream.wake_reader();
                }
                None => self.credit(length),
            }
        }
        if is_over && ends && wanted {
            self.end_request(id)?;
        }
        Ok(length + padding)
    }

    /// Puts a stream in line for its turn to send.
    pub fn stand_in_line(&mut self, key: Key, waker: &Waker) {
        self.end_turn(key);
        let Some(stream) = self.streams.at(key) else { return };
        watch(&mut stream.writer, waker);
        if !std::mem::replace(&mut stream.in_line, true) {
            self.line.push_back(key);
        }
    }

    /// Ends the turn of a stream that has used it or does not need it.
    pub fn end_turn(&mut self, key: Key) {
        if self.streams.at(key).is_some_and(|stream| std::mem::take(&mut stream.has_turn)) {
            self.turns -= 1;
        }
    }

    /// Whether other streams wait to send. `has_turn` says whether the calling stream has a turn.
    pub fn others_wait(&self, has_turn: bool) -> bool {
        !self.line.is_empty() || self.turns > u32::from(has_turn)
    }

    /// Gives turns to as many waiting streams as there is room for.
    pub fn give_turns(&mut self) {
        // With too little room a stream would go back in line at once.
        let mut room = if self.output.room() < WORTHWHILE { 0 } else { self.output.room().min(self.sending.room()) };
        while room > 0 {
            let Some(key) = self.line.pop_front() else { return };
            let Some(stream) = self.streams.at(key).filter(|stream| stream.in_line) else { continue };
            (stream.in_line, stream.has_turn) = (false, true);
            stream.wake_writer();
            self.turns += 1;
            room = room.saturating_sub(frame::MOST);
        }
    }

    /// Tells the client to send no more requests. The connection ends when all requests have been answered.
    pub fn end_gracefully(&mut self) {
        if self.ending == Ending::No {
            self.ending = Ending::Told(self.last);
            self.output.goaway(flow::MOST as u32, Reason::NoError);
            self.output.frame(kind::PING, 0, 0, &PING);
        }
    }

    /// Tells the client the last stream that is processed.
    fn tell_last(&mut self) {
        self.ending = Ending::Last;
        self.output.goaway(self.last, Reason::NoError);
    }

    /// Ends the connection now, with this reason in GOAWAY.
    pub fn end_abruptly(&mut self, reason: Reason) {
        if self.ending != Ending::Over {
            self.output.goaway(self.last, reason);
            self.give_up_all();
        }
    }

    /// Ends the connection now, because of an error of the client.
    pub fn fail(&mut self, fatal: Fatal) {
        self.error = Some(fatal);
        self.end_abruptly(fatal.reason);
    }

    /// Closes all streams and wakes the tasks that wait for them.
    pub fn give_up_all(&mut self) {
        self.ending = Ending::Over;
        (self.block, self.data) = (None, None);
        for stream in self.streams.all() {
            stream.wake_reader();
            stream.wake_writer();
        }
    }

    /// Whether nothing more is read.
    pub fn is_over(&self) -> bool {
        self.ending == Ending::Over || self.ending == Ending::Last && self.streams.open == 0
    }

    /// Whether streams can no longer send or receive.
    pub fn is_dead(&self) -> bool {
        self.ending == Ending::Over
    }

    /// The client's error that has ended the connection.
    pub fn error(&self) -> Option<Fatal> {
        self.error
    }
}

#[cfg(test)]
mod tests;
