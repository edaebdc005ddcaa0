//! Datagrams of many clients over one socket, and of one client to a server.
//!
//! A [`port::Port`] receives in batches and sends in batches: what the tasks of one turn of the event loop have for
//! clients leaves in one system call, and equal datagrams of one client as one run that the kernel divides. A
//! [`connected::Connected`] is a socket of one session to one server, so that the kernel tells which server has refused a
//! datagram. Either is read in runs that the kernel has joined while datagrams come in bulk.

pub mod connected;
pub mod joining;
pub mod port;
mod segments;

use std::cell::RefCell;

/// The longest datagram.
pub const LONGEST: usize = 65_535;

/// Datagrams that are received at once.
const BATCH: usize = 32;

thread_local! {
    /// Where datagrams are received. Only the pages that were written to take memory.
    static SPACE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Lends the thread's space for a batch of datagrams.
fn with_space<T>(act: impl FnOnce(&mut [u8]) -> T) -> T {
    let mut space = SPACE.take();
    if space.is_empty() {
        space = vec![0; BATCH * LONGEST];
    }
    let result = act(&mut space);
    SPACE.set(space);
    result
}
