//! A network in memory and a clock that jumps, for tests of what uses this crate. Only with the feature `simulation`.
//!
//! [`run`] gives a thread a network, an event loop and a virtual time that begins at the same moment in each run. Time
//! stands still while anything can run; then it jumps to the next deadline. Everything that a network may decide (when
//! bytes arrive, in which pieces, how much a socket takes, the order of events) is drawn from a seed, so the same seed
//! gives the same run.
//!
//! A [`Transport`] that [`connect`](crate::transport::connect) or [`Peer::dial`] makes is one end of a connection, at the
//! level of system calls: it is registered with the event loop and told of events as a socket is, edge by edge. The other
//! end is a [`Peer`], which plays a client or a server.

mod peer;
#[cfg(test)]
mod tests;

use std::rc::Rc;

pub use self::peer::{Listener, Peer};
use crate::clock::virtual_time;
use crate::event_loop;
use crate::network::Network;
pub use crate::network::{Conditions, Random, Reception, Trace};

/// Runs `main` and the tasks that it spawns on this thread's event loop until `main` has ended or panicked; all other tasks
/// are dropped then. Returns what the run noted.
///
/// # Panics
/// The system has no descriptors for a runtime.
pub fn run(seed: u64, conditions: Conditions, main: impl Future<Output = ()> + 'static) -> Trace {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build_local(Default::default())
        .expect("a runtime");
    runtime.block_on(async {
        virtual_time::begin();
        let network = Rc::new(Network::new(seed, conditions));
        network.install();
        event_loop::spawn(Rc::clone(&network).deliver());
        // The event loop catches a panic of `main`, and must not wait for its end then.
        let (ended, end) = tokio::sync::oneshot::channel::<()>();
        event_loop::spawn(async move {
            let _ended = ended;
            main.await;
        });
        event_loop::run(async { drop(end.await) }).await.expect("an event loop");
        Network::uninstall();
        virtual_time::end();
        network.take_trace()
    })
}

/// Adds an event to the trace, with its time.
pub fn note(event: std::fmt::Arguments<'_>) {
    Network::with(|network| network.note(event));
}

/// Connections of which one end or the other is open.
pub fn open_ends() -> usize {
    Network::with(Network::open_ends).unwrap_or(0)
}
