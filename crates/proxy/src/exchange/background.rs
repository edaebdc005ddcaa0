//! Requests that go on beside the one that has begun them, which ends after them.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

/// How many requests go on beside another one.
#[derive(Default)]
pub struct Background {
    running: Cell<usize>,
    waker: RefCell<Option<Waker>>,
}

/// One of them, until this is dropped.
pub struct Running(Rc<Background>);

impl Background {
    /// Counts one more.
    pub fn begin(self: &Rc<Background>) -> Running {
        self.running.set(self.running.get() + 1);
        Running(Rc::clone(self))
    }

    /// Waits for the end of all.
    pub async fn wait(&self) {
        poll_fn(|cx| {
            if self.running.get() == 0 {
                return Poll::Ready(());
            }
            *self.waker.borrow_mut() = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.set(self.0.running.get() - 1);
        if let Some(waker) = self.0.waker.borrow_mut().take() {
            waker.wake();
        }
    }
}
