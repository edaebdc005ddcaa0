//! HTTP/2 over Balanza's transports, with Balanza's message types.
//!
//! For clients, Balanza has its own frames, HPACK, flow control and stream states: an idle connection holds no buffer,
//! a head is read directly into a [`Request`](balanza_message::Request), and a response's head is written directly from
//! [`Fields`](balanza_message::Fields). For servers, to which there are few connections, the `h2` crate is used. No
//! other crate of Balanza uses it.

#![forbid(unsafe_code)]
// These macros panic if standard error is closed or full.
#![deny(clippy::print_stderr, clippy::print_stdout)]

mod body;
pub mod client;
mod fields;
mod hpack;
mod io;
mod meter;
mod response;
pub mod server;

/// Entry points for fuzzing.
#[cfg(feature = "fuzzing")]
pub mod fuzzing {
    pub use crate::hpack::{Decoder, Invalid, field};
    pub use crate::server::probe::run;
}

/// The connection preface that a client sends first (RFC 9113, 3.4).
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
