//! Request and response bodies on a connection to a server.

use std::io;
use std::task::{Context, Poll, ready};

use balanza_message::{Fields, Header};
use balanza_net::buffer::Buffer;
use bytes::{Buf as _, Bytes};
use h2::{RecvStream, SendStream};
use http::HeaderMap;

use crate::fields::NOT_IN_TRAILERS;
use crate::meter::Meter;

/// Why bytes could not be sent.
pub(crate) enum SendError {
    /// The stream accepts no more data.
    Closed,
    /// The stream or its connection has failed.
    Failed(h2::Error),
}

impl From<h2::Error> for SendError {
    fn from(error: h2::Error) -> SendError {
        SendError::Failed(error)
    }
}

impl From<SendError> for io::Error {
    fn from(error: SendError) -> io::Error {
        match error {
            SendError::Closed => io::ErrorKind::BrokenPipe.into(),
            SendError::Failed(error) => of(error),
        }
    }
}

/// Sends as many of these bytes as the peer's window allows, at most `most`; `ends` means that they end the body.
/// Returns how many were sent, and whether the stream has ended with them.
pub(crate) fn poll_send(
    out: &mut SendStream<Bytes>,
    cx: &mut Context<'_>,
    bytes: &[u8],
    most: usize,
    ends: bool,
) -> Poll<Result<(usize, bool), SendError>> {
    let wanted = bytes.len().min(most);
    if wanted == 0 {
        return Poll::Ready(Ok((0, false)));
    }
    out.reserve_capacity(wanted);
    while out.capacity() == 0 {
        match ready!(out.poll_capacity(cx)) {
            Some(capacity) => capacity?,
            None => return Poll::Ready(Err(SendError::Closed)),
        };
    }
    let length = out.capacity().min(wanted);
    let last = ends && length == bytes.len();
    out.send_data(Bytes::copy_from_slice(&bytes[..length]), last)?;
    Poll::Ready(Ok((length, last)))
}

/// Reads into the free space of a buffer, at most `most` bytes; 0 is the end of the body. `piece` holds bytes that were
/// received and not yet read.
pub(crate) fn poll_receive(
    body: &mut RecvStream,
    piece: &mut Bytes,
    meter: &Meter,
    cx: &mut Context<'_>,
    into: &mut Buffer,
    most: usize,
) -> Poll<Result<usize, h2::Error>> {
    while piece.is_empty() {
        match ready!(body.poll_data(cx)) {
            Some(next) => *piece = next?,
            None => return Poll::Ready(Ok(0)),
        }
    }
    let space = into.space();
    let length = space.len().min(piece.len()).min(most);
    piece.copy_to_slice(&mut space[..length]);
    into.end += length;
    meter.use_bytes(length);
    // The peer may send as many bytes again. A stream that has ended does not need this, so an error is ignored.
    let _ = body.flow_control().release_capacity(length);
    Poll::Ready(Ok(length))
}

/// Reads the trailers after a body that has been read to its end.
pub(crate) fn poll_trailers(
    body: &mut RecvStream,
    cx: &mut Context<'_>,
    to: &mut Fields,
) -> Poll<Result<(), h2::Error>> {
    // After a body of known length, an empty frame may follow that ends it.
    while let Some(piece) = ready!(body.poll_data(cx)) {
        let length = piece?.len();
        let _ = body.flow_control().release_capacity(length);
    }
    if let Some(trailers) = ready!(body.poll_trailers(cx))? {
        take_trailers(&trailers, to);
    }
    Poll::Ready(Ok(()))
}

/// Appends the trailers that may be passed on.
fn take_trailers(trailers: &HeaderMap, to: &mut Fields) {
    for (name, value) in trailers {
        let name = name.as_str().as_bytes();
        let header = Header::recognise(name);
        if !header.is_in(NOT_IN_TRAILERS) {
            to.push(name, value.as_bytes());
        }
    }
}

/// The error in the form that is reported for a connection.
pub(crate) fn of(error: h2::Error) -> io::Error {
    if error.is_io() {
        error.into_io().unwrap_or_else(|| io::ErrorKind::BrokenPipe.into())
    } else {
        io::Error::other(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trailers_that_could_be_taken_for_a_head_stay_behind() {
        let mut map = HeaderMap::new();
        for (name, value) in
            [("grpc-status", "0"), ("content-length", "7"), ("x-a-bin", "AA=="), ("authorization", "x")]
        {
            map.append(name, value.parse().unwrap());
        }
        let mut fields = Fields::default();
        take_trailers(&map, &mut fields);
        let expected: [(&[u8], &[u8]); 2] = [(b"grpc-status", b"0"), (b"x-a-bin", b"AA==")];
        assert_eq!(fields.iter().collect::<Vec<_>>(), expected);
    }
}
