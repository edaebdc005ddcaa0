//! Sockets, pipes and deadlines of a worker: everything that knows the event loop.

pub mod pipe;
pub mod socket;
pub mod timer;
pub mod watch;
