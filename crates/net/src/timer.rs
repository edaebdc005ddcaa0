//! One timer for each connection, armed as seldom as possible.
//!
//! A connection's deadline moves with every read and write. The timer in the event loop stays where it was, as
//! long as it does not fire too late; when it fires early it is set to the deadline of that moment.

use std::task::{Context, Poll};
use std::time::Duration;

use crate::clock::{self, Nanos};
use crate::event_loop::TimerEntry;

/// A connection's timer. All waits of the connection must happen in one task.
#[derive(Default)]
pub struct Timer {
    /// The timer in the event loop, once there was something to wait for.
    entry: Option<TimerEntry>,
    /// When that fires; 0 when it is not set.
    armed: Nanos,
}

impl Timer {
    /// Whether `deadline` has passed; if not, the task is woken when it has.
    pub fn poll_expired(&mut self, cx: &mut Context<'_>, deadline: Nanos) -> bool {
        if deadline == Nanos::MAX {
            return false;
        }
        // By the loop's clock it has not fired, and will not do so after the deadline: the task will be woken.
        if clock::recent() < self.armed && self.armed <= deadline {
            return false;
        }
        let now = clock::now();
        if now >= deadline {
            return true;
        }
        if self.armed == 0 || deadline < self.armed || now >= self.armed {
            self.entry.get_or_insert_with(TimerEntry::new).set(deadline, cx.waker());
            self.armed = deadline;
        }
        false
    }

    /// Waits for `duration`.
    pub async fn sleep(&mut self, duration: Duration) {
        let deadline = clock::after(duration);
        std::future::poll_fn(|cx| if self.poll_expired(cx, deadline) { Poll::Ready(()) } else { Poll::Pending }).await;
    }
}
