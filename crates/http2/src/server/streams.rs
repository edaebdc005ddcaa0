//! The streams of a connection: the state of each, and their table.

use std::collections::BTreeMap;
use std::task::Waker;

use balanza_message::Fields;

use super::flow::{Receiving, Sending};

/// A request and its response.
pub struct Stream {
    pub id: u32,
    /// The whole request has been received.
    pub received: bool,
    /// The whole response has been sent.
    pub sent: bool,
    /// The head of the response has been sent.
    pub head_sent: bool,
    /// Either side has reset the stream.
    pub reset: bool,
    /// The stream is no longer counted as open.
    pub counted_out: bool,
    /// The stream waits in line for its turn to send.
    pub in_line: bool,
    /// The stream has its turn.
    pub has_turn: bool,
    /// Received bytes of the body, and how many of them have been read.
    body: Vec<u8>,
    body_read: usize,
    /// Bytes of the body that have not arrived, if the request has a Content-Length.
    pub expected: Option<u64>,
    pub trailers: Option<Box<Fields>>,
    pub receiving: Receiving,
    pub sending: Sending,
    pub reader: Option<Waker>,
    pub writer: Option<Waker>,
}

impl Stream {
    /// A stream whose request's head has been received.
    pub fn new(id: u32, received: bool, expected: Option<u64>, receiving: Receiving, sending: Sending) -> Stream {
        Stream {
            id,
            received,
            sent: false,
            head_sent: false,
            reset: false,
            counted_out: false,
            in_line: false,
            has_turn: false,
            body: Vec::new(),
            body_read: 0,
            expected,
            trailers: None,
            receiving,
            sending,
            reader: None,
            writer: None,
        }
    }

    /// Whether neither side sends any more.
    pub fn is_over(&self) -> bool {
        self.reset || self.received && self.sent
    }

    /// Bytes of the body that were received and not yet read.
    pub fn unread(&self) -> &[u8] {
        &self.body[self.body_read..]
    }

    /// Appends received bytes of the body.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.body_read > self.body.len() / 2 {
            self.body.drain(..self.body_read);
            self.body_read = 0;
        }
        self.body.extend_from_slice(bytes);
    }

    /// Notes that `length` bytes of the body have been read. An empty body holds no memory.
    pub fn read(&mut self, length: usize) {
        self.body_read += length;
        if self.body_read == self.body.len() {
            self.body = Vec::new();
            self.body_read = 0;
        }
    }

    /// Wakes the task that waits for the client.
    pub fn wake_reader(&mut self) {
        if let Some(waker) = self.reader.take() {
            waker.wake();
        }
    }

    /// Wakes the task that waits to send.
    pub fn wake_writer(&mut self) {
        if let Some(waker) = self.writer.take() {
            waker.wake();
        }
    }
}

/// Stores a waker unless the stored one wakes the same task.
pub fn watch(place: &mut Option<Waker>, waker: &Waker) {
    if !place.as_ref().is_some_and(|old| old.will_wake(waker)) {
        *place = Some(waker.clone());
    }
}

/// The index of a stream in the table.
pub type Key = u32;

/// All streams with a request that is being served.
#[derive(Default)]
pub struct Streams {
    places: Vec<Option<Box<Stream>>>,
    free: Vec<Key>,
    by_id: BTreeMap<u32, Key>,
    /// Streams on which at least one side may still send.
    pub open: u32,
}

impl Streams {
    /// The number of streams.
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Adds an open stream.
    pub fn insert(&mut self, stream: Stream) -> Key {
        let id = stream.id;
        let stream = Some(Box::new(stream));
        let key = match self.free.pop() {
            Some(key) => {
                self.places[key as usize] = stream;
                key
            }
            None => {
                self.places.push(stream);
                (self.places.len() - 1) as Key
            }
        };
        self.by_id.insert(id, key);
        self.open += 1;
        key
    }

    /// The stream at an index.
    pub fn at(&mut self, key: Key) -> Option<&mut Stream> {
        self.places.get_mut(key as usize)?.as_deref_mut()
    }

    /// The index of the stream with this number.
    pub fn find(&self, id: u32) -> Option<Key> {
        self.by_id.get(&id).copied()
    }

    /// The stream with this number.
    pub fn of(&mut self, id: u32) -> Option<&mut Stream> {
        self.at(self.find(id)?)
    }

    /// Counts a stream as closed if both sides have ended it.
    pub fn settle(&mut self, key: Key) {
        let Some(stream) = self.at(key) else { return };
        if stream.is_over() && !std::mem::replace(&mut stream.counted_out, true) {
            self.open -= 1;
        }
    }

    /// Removes a stream. When the last one is removed, the memory of the table is released.
    pub fn remove(&mut self, key: Key) -> Option<Box<Stream>> {
        let stream = self.places.get_mut(key as usize)?.take()?;
        if !stream.counted_out {
            self.open -= 1;
        }
        self.by_id.remove(&stream.id);
        if self.by_id.is_empty() {
            (self.places, self.free) = (Vec::new(), Vec::new());
        } else {
            self.free.push(key);
        }
        Some(stream)
    }

    /// All streams.
    pub fn all(&mut self) -> impl Iterator<Item = &mut Stream> {
        self.places.iter_mut().filter_map(|place| place.as_deref_mut())
    }
}
