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

mod link;
mod network;
mod peer;
mod random;
#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::rc::Rc;

use tokio::time::Instant;

pub(crate) use self::link::End;
use self::network::Network;
pub(crate) use self::network::connect;
pub use self::network::{Conditions, Reception};
pub use self::peer::{Listener, Peer};
pub use self::random::Random;
use crate::clock::Nanos;
use crate::event_loop;

/// Virtual time at the beginning of a run.
const BEGIN: Nanos = 1_000_000_000_000;
/// Seconds since the Unix epoch at the beginning of a run.
const BEGIN_WALL: u64 = 1_767_225_600;

thread_local! {
    static BEGUN: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Virtual time, while a simulation runs on this thread.
pub(crate) fn now() -> Option<Nanos> {
    BEGUN.get().map(|begun| BEGIN + begun.elapsed().as_nanos() as Nanos)
}

/// Virtual time since the Unix epoch, while a simulation runs on this thread.
pub(crate) fn wall() -> Option<std::time::Duration> {
    BEGUN.get().map(|begun| std::time::Duration::from_secs(BEGIN_WALL) + begun.elapsed())
}

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
        BEGUN.set(Some(Instant::now()));
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
        BEGUN.set(None);
        network.take_trace()
    })
}

/// What happened in a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trace {
    /// A digest of all events: equal if and (nearly) only if the runs were the same.
    pub digest: u64,
    /// Number of events.
    pub events: u64,
    /// The events in words, with [`Conditions::keeps_trace`].
    pub lines: Vec<String>,
}

/// Adds an event to the trace, with its time.
pub fn note(event: std::fmt::Arguments<'_>) {
    Network::with(|network| network.note(event));
}

/// Connections of which one end or the other is open.
pub fn open_ends() -> usize {
    Network::with(Network::open_ends).unwrap_or(0)
}
