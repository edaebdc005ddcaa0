//! Bytes in and out of a worker, and everything that knows its event loop.
//!
//! A [`transport::Transport`] is a stream of bytes to a client or a server. It reads into [`buffer::Buffer`]s and has a
//! name for everything else that is done with a stream, so that no caller needs its descriptor. [`event_loop`] runs the
//! tasks of one thread; [`timer`] and [`alarm`] have its deadlines. [`memory`] counts what all of this takes.

#![deny(unsafe_code)]
// A write to a standard error that is closed or full panics in these.
#![deny(clippy::print_stderr, clippy::print_stdout)]

pub mod alarm;
pub mod buffer;
pub mod clock;
pub mod datagram;
pub mod event_loop;
pub mod half;
pub mod hang_up;
pub mod listening;
pub mod memory;
#[cfg(feature = "simulation")]
mod network;
pub mod pipe;
mod retry;
pub mod shortage;
#[cfg(feature = "simulation")]
pub mod simulation;
mod socket;
pub mod timer;
pub mod tls;
pub mod transport;
pub mod udp;
mod watch;
