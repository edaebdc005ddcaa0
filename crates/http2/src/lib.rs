//! HTTP/2 over a transport of Balanza's, in its messages.
//!
//! With clients, the frames, HPACK, flow control and the states of streams are our own: an idle connection holds no buffer,
//! and heads are read into a [`Request`](balanza_message::Request) and written from [`Fields`](balanza_message::Fields)
//! without another form between. With servers, of which there are few connections, they are those of the `h2` crate, which
//! nothing else of Balanza sees.

#![forbid(unsafe_code)]
// A write to a standard error that is closed or full panics in these.
#![deny(clippy::print_stderr, clippy::print_stdout)]

mod body;
pub mod client;
mod fields;
mod hpack;
mod io;
mod meter;
mod response;
pub mod server;

/// What fuzzing calls.
#[cfg(feature = "fuzzing")]
pub mod fuzzing {
    pub use crate::hpack::{Decoder, Invalid, field};
    pub use crate::server::probe::run;
}

/// What a client sends first (RFC 9113, 3.4).
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
