//! HTTP messages as data that no protocol owns.
//!
//! A [`Request`] and a [`Response`] hold their own text and are reused from message to message, so that nothing is
//! allocated once they have grown to their working size. A protocol (`balanza-http1`) fills them from the bytes of a
//! connection and writes them as such; everything between two connections sees nothing else.
//!
//! ```
//! use balanza_message::{Fields, Header};
//!
//! let mut fields = Fields::default();
//! fields.push(b"Content-Type", b"text/plain");
//! fields.push(b"X-Request-ID", b"7");
//! assert_eq!(fields.find(Header::ContentType), Some(&b"text/plain"[..]));
//! assert_eq!(fields.lines(), b"Content-Type: text/plain\r\nX-Request-ID: 7\r\n");
//! ```

#![forbid(unsafe_code)]
// A write to a standard error that is closed or full panics in these.
#![deny(clippy::print_stderr, clippy::print_stdout)]

pub mod admission;
pub mod bytes;
mod fields;
mod header;
pub mod host;
mod method;
mod number;
mod request;
mod response;
mod span;
pub mod target;
pub mod uri;
pub mod words;

pub use admission::{Limits, RequestError};
pub use bytes::{decimal, hex_digit, is_token, list};
pub use fields::Fields;
pub use header::Header;
pub use host::{Authority, parse_authority};
pub use method::{Method, Version};
pub use number::{push_decimal, push_hex, write_decimal, write_hex};
pub use request::Request;
pub use response::Response;
pub use span::{Field, Span};

/// What is known of a body's length before it comes.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub enum Length {
    /// There is no body.
    #[default]
    None,
    /// So many bytes.
    Known(u64),
    /// It ends where its protocol says so.
    Unknown,
}
