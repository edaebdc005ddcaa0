//! Where connections come in.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::task::{Context, Poll, Waker};

use super::Reception;
use super::link::End;

/// An address that can be connected to.
pub struct Backlog {
    address: SocketAddr,
    manner: RefCell<Box<dyn FnMut() -> Reception>>,
    waiting: RefCell<VecDeque<End>>,
    waker: RefCell<Option<Waker>>,
}

impl Backlog {
    pub fn new(address: SocketAddr, manner: impl FnMut() -> Reception + 'static) -> Backlog {
        let (waiting, waker) = (RefCell::default(), RefCell::default());
        Backlog { address, manner: RefCell::new(Box::new(manner)), waiting, waker }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn reception(&self) -> Reception {
        (self.manner.borrow_mut())()
    }

    /// A connection comes in.
    pub fn come(&self, end: End) {
        self.waiting.borrow_mut().push_back(end);
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    /// Takes the next connection, or waits for it.
    pub fn poll_come(&self, cx: &mut Context<'_>) -> Poll<End> {
        match self.waiting.borrow_mut().pop_front() {
            Some(end) => Poll::Ready(end),
            None => {
                *self.waker.borrow_mut() = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    /// Resets those that wait.
    pub fn turn_away(&self) {
        for end in self.waiting.take() {
            end.reset_on_close();
        }
    }
}
