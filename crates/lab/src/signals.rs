//! The signals that end a command: Ctrl-C, TERM, a closed terminal, Ctrl-\.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::Poll;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Holds the handlers; from its creation on none of these signals kills the process.
pub(crate) struct EndSignals([(SignalKind, Signal); 4]);

impl EndSignals {
    /// Installs the handlers. Must be called inside a tokio runtime.
    pub(crate) fn install() -> io::Result<Self> {
        let handled = |kind| Ok::<_, io::Error>((kind, signal(kind)?));
        Ok(Self([
            handled(SignalKind::interrupt())?,
            handled(SignalKind::terminate())?,
            handled(SignalKind::hangup())?,
            handled(SignalKind::quit())?,
        ]))
    }

    /// Waits for the first of them.
    pub(crate) async fn recv(&mut self) -> SignalKind {
        poll_fn(|cx| {
            let came = self.0.iter_mut().find_map(|(kind, signal)| signal.poll_recv(cx).is_ready().then_some(*kind));
            came.map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }
}

/// From now on, Ctrl-C, TERM, a closed terminal and Ctrl-\ set this flag and kill nobody: whoever works looks at it and
/// ends in order.
///
/// Errors: the kernel has no descriptors left for it.
pub fn flag() -> io::Result<Arc<AtomicBool>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let mut signals = {
        let _inside = runtime.enter();
        EndSignals::install()?
    };
    let flag = Arc::new(AtomicBool::new(false));
    let set = flag.clone();
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        runtime.block_on(signals.recv());
        set.store(true, Relaxed);
        // The handlers stay, so that a second one does not leave servers behind.
        runtime.block_on(std::future::pending::<()>());
    })?;
    Ok(flag)
}
