//! HTTP/2 over a transport of Balanza's, in its messages.
//!
//! Frames, HPACK, flow control and the states of streams are those of the `h2` crate, which nothing else of Balanza
//! sees. Here are the connection as the event loop drives it, and the way from a head of HTTP/2 to a
//! [`Request`](balanza_message::Request) and from [`Fields`](balanza_message::Fields) back.

#![forbid(unsafe_code)]
// A write to a standard error that is closed or full panics in these.
#![deny(clippy::print_stderr, clippy::print_stdout)]

mod body;
pub mod client;
mod fields;
mod io;
mod request;
mod response;
pub mod server;

/// What a client sends first (RFC 9113, 3.4).
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
