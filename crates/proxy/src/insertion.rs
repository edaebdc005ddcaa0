//! The way of a subrequest's response into the response of its request: a bounded queue of bytes between two tasks of a
//! thread.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use balanza_net::buffer::Buffer;
use balanza_net::memory::Held;

/// So many bytes wait for the request at most.
const MOST: usize = 60 * 1024;

#[derive(Default)]
struct Queue {
    bytes: Vec<u8>,
    held: Held,
    status: u16,
    /// Most bytes of a response that becomes a value.
    most: usize,
    /// Whether the response ended as it should, once it has ended.
    end: Option<bool>,
    /// The request has no use for it any more.
    unwanted: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

impl Queue {
    fn weigh(&mut self) {
        self.held.set(self.bytes.capacity());
    }
}

fn wake(waker: &mut Option<Waker>) {
    if let Some(waker) = waker.take() {
        waker.wake();
    }
}

/// The subrequest's end.
pub struct Sender(Rc<RefCell<Queue>>);

/// The request's end.
pub struct Receiver(Rc<RefCell<Queue>>);

/// What a request gets of a subrequest.
pub enum Taken {
    /// A piece of the body.
    Piece(Buffer),
    /// Nothing yet.
    Nothing,
    /// The body has ended.
    End,
    /// It was cut off.
    Broken,
}

/// A way from a subrequest to its request.
pub fn channel() -> (Sender, Receiver) {
    let queue = Rc::<RefCell<Queue>>::default();
    (Sender(Rc::clone(&queue)), Receiver(queue))
}

impl Sender {
    /// The response has this status.
    pub fn begin(&self, status: u16) {
        self.0.borrow_mut().status = status;
    }

    /// Sets the most bytes of a response that becomes a value.
    pub fn set_most(&self, most: usize) {
        self.0.borrow_mut().most = most;
    }

    /// Adds what there is room for.
    pub fn poll_send(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut queue = self.0.borrow_mut();
        if queue.unwanted {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let length = bytes.len().min(MOST.saturating_sub(queue.bytes.len()));
        if length == 0 && !bytes.is_empty() {
            queue.writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        queue.bytes.extend_from_slice(&bytes[..length]);
        queue.weigh();
        wake(&mut queue.reader);
        Poll::Ready(Ok(length))
    }

    /// Waits until the request has no use for the response any more.
    pub fn poll_unwanted(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut queue = self.0.borrow_mut();
        if queue.unwanted {
            return Poll::Ready(());
        }
        queue.writer = Some(cx.waker().clone());
        Poll::Pending
    }

    /// The response has ended: as it should, or it was cut off.
    pub fn end(&self, completed: bool) {
        let mut queue = self.0.borrow_mut();
        if queue.end.is_none() {
            queue.end = Some(completed);
        }
        wake(&mut queue.reader);
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.end(false);
    }
}

impl Receiver {
    /// The next piece.
    pub fn take(&self) -> Taken {
        let mut queue = self.0.borrow_mut();
        if !queue.bytes.is_empty() {
            let piece = Buffer::holding(&queue.bytes);
            queue.bytes.clear();
            wake(&mut queue.writer);
            return Taken::Piece(piece);
        }
        match queue.end {
            None => Taken::Nothing,
            Some(true) => Taken::End,
            Some(false) => Taken::Broken,
        }
    }

    /// The status of the response; 0 before it begins.
    pub fn status(&self) -> u16 {
        self.0.borrow().status
    }

    /// Most bytes of a response that becomes a value.
    pub fn most(&self) -> usize {
        self.0.borrow().most
    }

    /// Wakes this task when there is something to take.
    pub fn wake(&self, cx: &Context<'_>) {
        self.0.borrow_mut().reader = Some(cx.waker().clone());
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let mut queue = self.0.borrow_mut();
        queue.unwanted = true;
        queue.bytes = Vec::new();
        queue.weigh();
        wake(&mut queue.writer);
    }
}
