//! The wait for a server, in which the client may go away.

use std::task::{Context, Poll};
use std::time::Duration;

use balanza_net::clock::{self, Nanos};

use crate::downstream::Downstream;

/// After this time without a response, it is watched whether the client closes the connection; a faster response saves
/// this work.
const AFTER: Duration = Duration::from_millis(100);

/// Why a wait is over.
pub(super) enum Over {
    /// The deadline has passed.
    Late,
    /// The client has closed its connection.
    ClientGone,
}

/// Watches the client, from some time on.
pub(super) struct ClientWatch {
    from: Nanos,
    watching: bool,
}

impl ClientWatch {
    /// The wait begins.
    pub fn new() -> ClientWatch {
        ClientWatch { from: clock::after(AFTER), watching: false }
    }

    /// Waits until `deadline`, or until the client has gone if that `matters` now.
    pub fn poll(
        &mut self,
        cx: &mut Context<'_>,
        downstream: &mut Downstream,
        deadline: Nanos,
        matters: bool,
    ) -> Poll<Over> {
        let next = if matters && !self.watching { deadline.min(self.from) } else { deadline };
        if downstream.timer.poll_expired(cx, next) {
            if clock::now() >= deadline {
                return Poll::Ready(Over::Late);
            }
            self.watching = true;
            // Once more, for the timer of the deadline.
            cx.waker().wake_by_ref();
        }
        if self.watching && matters && downstream.poll_peer_closed(cx).is_ready() {
            return Poll::Ready(Over::ClientGone);
        }
        Poll::Pending
    }
}
