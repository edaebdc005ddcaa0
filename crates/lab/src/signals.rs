//! The signals that end a command: Ctrl-C, TERM, a closed terminal, Ctrl-\.

use std::future::poll_fn;
use std::io;
use std::task::Poll;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Holds the handlers; from its creation on none of these signals kills the process.
pub(crate) struct EndSignals([Signal; 4]);

impl EndSignals {
    /// Installs the handlers. Must be called inside a tokio runtime.
    pub(crate) fn install() -> io::Result<Self> {
        Ok(Self([
            signal(SignalKind::interrupt())?,
            signal(SignalKind::terminate())?,
            signal(SignalKind::hangup())?,
            signal(SignalKind::quit())?,
        ]))
    }

    /// Waits for the first of them.
    pub(crate) async fn recv(&mut self) {
        poll_fn(|cx| {
            if self.0.iter_mut().any(|signal| signal.poll_recv(cx).is_ready()) {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
    }
}
