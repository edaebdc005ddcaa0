//! One timer for each connection, armed as seldom as possible.
//!
//! A connection's deadline moves with every read and write. The timer in the event loop stays where it was, as
//! long as it does not fire too late; when it fires early it is set to the deadline of that moment.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep};

use crate::clock::{self, Nanos};

/// A connection's timer. All waits of the connection must happen in one task.
#[derive(Default)]
pub struct Timer {
    sleep: Option<Pin<Box<Sleep>>>,
    /// When the timer in the event loop fires; 0 when it is not set.
    armed: Nanos,
}

impl Timer {
    /// Whether `deadline` has passed; if not, the task is woken when it has.
    pub fn poll_expired(&mut self, cx: &mut Context<'_>, deadline: Nanos) -> bool {
        if deadline == Nanos::MAX {
            return false;
        }
        // While the timer has not fired, nothing after it can have passed.
        if self.armed != 0 && deadline >= self.armed && self.sleep.as_ref().is_some_and(|sleep| !sleep.is_elapsed()) {
            return false;
        }
        let now = clock::now();
        if now >= deadline {
            return true;
        }
        if self.armed == 0 || deadline < self.armed || now >= self.armed {
            self.arm(cx, now, deadline);
        }
        false
    }

    fn arm(&mut self, cx: &mut Context<'_>, now: Nanos, deadline: Nanos) {
        // The wheel counts milliseconds: one more makes sure that the deadline has passed when it fires.
        let at = Instant::now() + Duration::from_nanos(deadline - now) + Duration::from_millis(1);
        let sleep = match &mut self.sleep {
            Some(sleep) => {
                sleep.as_mut().reset(at);
                sleep
            }
            none => none.insert(Box::pin(tokio::time::sleep_until(at))),
        };
        self.armed = deadline;
        // A task that has used up its share of the event loop would not be registered, and would not be polled again.
        let sleep = std::pin::pin!(tokio::task::coop::unconstrained(sleep.as_mut()));
        if let Poll::Ready(()) = sleep.poll(cx) {
            cx.waker().wake_by_ref();
        }
    }

    /// Waits for `duration`.
    pub async fn sleep(&mut self, duration: Duration) {
        let deadline = clock::after(duration);
        std::future::poll_fn(|cx| if self.poll_expired(cx, deadline) { Poll::Ready(()) } else { Poll::Pending }).await;
    }
}
