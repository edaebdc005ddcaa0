//! HTTP/1.1 messages as a state machine without I/O.
//!
//! Heads are parsed into structs that are reused from message to message and hold [`Span`]s into the caller's buffer,
//! so that nothing is allocated once they have grown to their working size. What RFC 9110 and RFC 9112 call ambiguous
//! is refused: a message is accepted only if every recipient must read it the same way.
//!
//! ```
//! use balanza_http1::{Body, Header, Limits, Parsed, RequestHead};
//!
//! let buf = b"POST /cart?id=7 HTTP/1.1\r\nHost: shop.example\r\nContent-Length: 3\r\n\r\nabc";
//! let mut head = RequestHead::default();
//! let Parsed::Complete(len) = head.parse(buf, &Limits::default()).unwrap() else { panic!("all of it is there") };
//! assert_eq!(&buf[len..], b"abc");
//! assert_eq!(head.path.of(buf), b"/cart");
//! assert_eq!(head.find(Header::Host).unwrap().value.of(buf), b"shop.example");
//! assert_eq!(head.body, Body::Length(3));
//! ```

#![forbid(unsafe_code)]
// A write to a standard error that is closed or full panics in these.
#![deny(clippy::print_stderr, clippy::print_stdout)]

mod chunked;
#[cfg(test)]
mod differential;
mod error;
mod framing;
mod lines;
mod request;
mod response;
mod scan;
mod swar;
mod trailers;
mod version;
mod write;

pub use balanza_message::{Field, Header, Limits, Method, RequestError, Span, Version};
pub use chunked::{ChunkedDecoder, Decoded, Step};
pub use error::{ChunkError, ResponseError};
pub use framing::Body;
pub use request::RequestHead;
pub use response::ResponseHead;
pub use trailers::Trailers;
pub use write::{
    write_chunk, write_chunk_head, write_framing, write_last_chunk, write_request_line, write_status_line,
};

/// What parsing the start of a buffer came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parsed {
    /// A whole head, of so many bytes; the body begins after them.
    Complete(usize),
    /// The head goes on: read more, and parse again from its start.
    Incomplete,
}
