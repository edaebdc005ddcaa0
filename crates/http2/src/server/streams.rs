//! The streams of a connection: what is known of each, and the table they are in.

use std::collections::BTreeMap;
use std::task::Waker;

use balanza_message::Fields;

use super::flow::{Receiving, Sending};

/// A request and its response.
pub struct Stream {
    pub id: u32,
    /// The client has sent all of the request.
    pub received: bool,
    /// The response has been sent whole.
    pub sent: bool,
    /// The head of the response has been sent.
    pub head_sent: bool,
    /// Either side has given it up.
    pub reset: bool,
    /// It no longer counts as open.
    pub counted_out: bool,
    /// It waits in line for its turn to send.
    pub in_line: bool,
    /// It has its turn.
    pub has_turn: bool,
    /// What of the body has come and is not read, and how much of this is.
    body: Vec<u8>,
    body_read: usize,
    /// What has to come still, if the request says so.
    pub expected: Option<u64>,
    pub trailers: Option<Box<Fields>>,
    pub receiving: Receiving,
    pub sending: Sending,
    pub reader: Option<Waker>,
    pub writer: Option<Waker>,
}

impl Stream {
    /// One whose head has come.
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

    /// Neither side sends any more.
    pub fn is_over(&self) -> bool {
        self.reset || self.received && self.sent
    }

    /// What of the body has come and is not read.
    pub fn unread(&self) -> &[u8] {
        &self.body[self.body_read..]
    }

    /// More of the body has come.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.body_read > self.body.len() / 2 {
            self.body.drain(..self.body_read);
            self.body_read = 0;
        }
        self.body.extend_from_slice(bytes);
    }

    /// So much of the body has been read. Nothing is held for what is empty.
    pub fn read(&mut self, length: usize) {
        self.body_read += length;
        if self.body_read == self.body.len() {
            self.body = Vec::new();
            self.body_read = 0;
        }
    }

    /// Wakes who waits for the client.
    pub fn wake_reader(&mut self) {
        if let Some(waker) = self.reader.take() {
            waker.wake();
        }
    }

    /// Wakes who waits to send.
    pub fn wake_writer(&mut self) {
        if let Some(waker) = self.writer.take() {
            waker.wake();
        }
    }
}

/// Sets a waker, unless it is the same.
pub fn watch(place: &mut Option<Waker>, waker: &Waker) {
    if !place.as_ref().is_some_and(|old| old.will_wake(waker)) {
        *place = Some(waker.clone());
    }
}

/// The place of a stream in the table.
pub type Key = u32;

/// All streams that a request is served on.
#[derive(Default)]
pub struct Streams {
    places: Vec<Option<Box<Stream>>>,
    free: Vec<Key>,
    by_id: BTreeMap<u32, Key>,
    /// Those on which one side may still send.
    pub open: u32,
}

impl Streams {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Adds one that is open.
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

    /// The stream at a place.
    pub fn at(&mut self, key: Key) -> Option<&mut Stream> {
        self.places.get_mut(key as usize)?.as_deref_mut()
    }

    /// The place of a stream.
    pub fn find(&self, id: u32) -> Option<Key> {
        self.by_id.get(&id).copied()
    }

    /// The stream of this number.
    pub fn of(&mut self, id: u32) -> Option<&mut Stream> {
        self.at(self.find(id)?)
    }

    /// Takes note of a stream that may be over by now.
    pub fn settle(&mut self, key: Key) {
        let Some(stream) = self.at(key) else { return };
        if stream.is_over() && !std::mem::replace(&mut stream.counted_out, true) {
            self.open -= 1;
        }
    }

    /// Removes one. Without any there is no table.
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

    /// All of them.
    pub fn all(&mut self) -> impl Iterator<Item = &mut Stream> {
        self.places.iter_mut().filter_map(|place| place.as_deref_mut())
    }
}
