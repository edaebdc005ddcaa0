//! Sockets, pipes and deadlines of a worker: everything that knows the event loop.

pub mod event_loop;
pub mod half;
pub mod listening;
pub mod pipe;
pub mod shortage;
pub mod socket;
pub mod timer;
mod waker;
pub mod watch;
