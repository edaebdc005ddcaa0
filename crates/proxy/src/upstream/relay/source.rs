//! The body of a server's response as it arrives: takes its framing off.

use balanza_http1::{Body, ChunkedDecoder};
use balanza_message::Fields;
use balanza_net::buffer::Buffer;

/// From this length on a body goes through a pipe.
const SPLICE_FROM: u64 = 64 * 1024;

/// What is still to come of a body, and how it is delimited.
enum Rest {
    Length(u64),
    Chunked(Box<ChunkedDecoder>),
    UntilClose,
    Nothing,
}

/// The body of a server's response.
pub struct Source {
    rest: Rest,
    /// Bytes received, framing included.
    pub wire: u64,
    /// The server's connection is at the border of a response, with nothing behind it.
    pub clean: bool,
}

impl Source {
    /// A body that is delimited like this.
    pub fn new(body: Body) -> Source {
        let rest = match body {
            Body::None | Body::Length(0) => Rest::Nothing,
            Body::Length(length) => Rest::Length(length),
            Body::Chunked => Rest::Chunked(Box::default()),
            Body::UntilClose => Rest::UntilClose,
        };
        Source { rest, wire: 0, clean: false }
    }

    /// Whether the server has sent everything.
    pub fn is_finished(&self) -> bool {
        matches!(self.rest, Rest::Nothing)
    }

    /// How much to ask for: bytes beyond the length would show that the server does not keep to it.
    pub fn wanted(&self) -> usize {
        match self.rest {
            Rest::Length(left) => usize::try_from(left).unwrap_or(usize::MAX).saturating_add(1),
            _ => usize::MAX,
        }
    }

    /// The server has closed its side: true if that ends the body.
    pub fn end(&mut self) -> bool {
        let ends = matches!(self.rest, Rest::UntilClose);
        if ends {
            self.rest = Rest::Nothing;
        }
        ends
    }

    /// Takes the framing off what has arrived: afterwards the buffer holds payload alone.
    ///
    /// # Errors
    /// Chunks are malformed.
    pub fn decode(&mut self, input: &mut Buffer, trailers: &mut Fields) -> Result<(), &'static str> {
        let available = input.end - input.start;
        self.wire += available as u64;
        match &mut self.rest {
            Rest::Nothing => {
                self.clean = available == 0;
                input.end = input.start;
            }
            Rest::UntilClose => {}
            Rest::Length(left) => {
                let taken = (available as u64).min(*left);
                *left -= taken;
                if *left == 0 {
                    // Whatever follows was not asked for.
                    self.clean = taken == available as u64;
                    self.rest = Rest::Nothing;
                }
                input.end = input.start + taken as usize;
            }
            Rest::Chunked(decoder) => {
                let decoded = decoder.decode(input.unread_mut()).map_err(|error| error.reason)?;
                input.end = input.start + decoded.produced;
                if decoded.finished {
                    self.clean = decoded.consumed == available;
                    for (name, value) in decoder.trailers().iter() {
                        trailers.push(name, value);
                    }
                    self.rest = Rest::Nothing;
                }
            }
        }
        Ok(())
    }

    /// How much may go through a pipe: the rest of a large body of known length. One that was `begun` goes on.
    pub fn spliceable(&self, begun: bool) -> Option<usize> {
        match self.rest {
            Rest::Length(left) if left >= SPLICE_FROM || begun => Some(usize::try_from(left).unwrap_or(usize::MAX)),
            _ => None,
        }
    }

    /// So many bytes have gone through a pipe; true when these were the last.
    pub fn spliced(&mut self, moved: usize) -> bool {
        self.wire += moved as u64;
        if let Rest::Length(left) = &mut self.rest {
            *left -= moved as u64;
            if *left == 0 {
                self.rest = Rest::Nothing;
            }
        }
        self.is_finished()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The payload, whether the body has ended, and whether nothing follows it.
    fn decoded(body: Body, pieces: &[&[u8]]) -> (Vec<u8>, bool, bool) {
        let mut source = Source::new(body);
        let mut payload = Vec::new();
        for piece in pieces {
            let mut piece = Buffer::holding(piece);
            source.decode(&mut piece, &mut Fields::default()).unwrap();
            payload.extend_from_slice(piece.unread());
        }
        (payload, source.is_finished(), source.clean)
    }

    #[test]
    fn every_framing_ends_where_it_should() {
        assert_eq!(decoded(Body::Length(5), &[b"ab", b"cde"]), (b"abcde".to_vec(), true, true));
        assert_eq!(decoded(Body::Length(5), &[b"abcdefg"]), (b"abcde".to_vec(), true, false));
        assert_eq!(decoded(Body::Length(5), &[b"abcd"]), (b"abcd".to_vec(), false, false));
        assert_eq!(decoded(Body::None, &[b""]), (Vec::new(), true, true));
        assert_eq!(decoded(Body::None, &[b"more"]), (Vec::new(), true, false));
        assert_eq!(decoded(Body::Chunked, &[b"3\r\nab", b"c\r\n0\r\n", b"\r\n"]), (b"abc".to_vec(), true, true));
        assert_eq!(decoded(Body::Chunked, &[b"1\r\na\r\n0\r\n\r\nx"]), (b"a".to_vec(), true, false));
        assert_eq!(decoded(Body::UntilClose, &[b"ab", b"c"]), (b"abc".to_vec(), false, false));
        assert!(Source::new(Body::UntilClose).end());
        assert!(!Source::new(Body::Length(1)).end());
        assert!(!Source::new(Body::Chunked).end());
    }

    #[test]
    fn trailers_are_kept_and_malformed_chunks_refused() {
        let mut trailers = Fields::default();
        Source::new(Body::Chunked).decode(&mut Buffer::holding(b"0\r\nX-Sum: 7\r\n\r\n"), &mut trailers).unwrap();
        assert_eq!(trailers.iter().collect::<Vec<_>>(), [(&b"X-Sum"[..], &b"7"[..])]);
        assert!(Source::new(Body::Chunked).decode(&mut Buffer::holding(b"zz\r\n"), &mut trailers).is_err());
    }

    #[test]
    fn large_bodies_of_known_length_go_through_a_pipe() {
        assert_eq!(Source::new(Body::Length(SPLICE_FROM)).spliceable(false), Some(SPLICE_FROM as usize));
        assert_eq!(Source::new(Body::Length(SPLICE_FROM - 1)).spliceable(false), None);
        assert_eq!(Source::new(Body::Chunked).spliceable(true), None);
        let mut source = Source::new(Body::Length(SPLICE_FROM));
        assert!(!source.spliced(SPLICE_FROM as usize - 1));
        assert_eq!(source.spliceable(true), Some(1));
        assert!(source.spliced(1));
        assert_eq!(source.wire, SPLICE_FROM);
    }
}
