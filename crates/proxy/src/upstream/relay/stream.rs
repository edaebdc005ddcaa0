//! Relays a response that comes by HTTP/2, while its request may still be sent.

use std::task::{Context, Poll};

use balanza_net::buffer::Buffer;
use balanza_net::clock::{self, Nanos};

use super::super::line::Line;
use super::super::talk::Talk;
use super::{Received, Relay, RelayError};
use crate::body::BodyError;
use crate::exchange::Exchange;

impl Relay {
    /// Reads from a server that speaks HTTP/2.
    pub(super) fn poll_stream(
        &mut self,
        cx: &mut Context<'_>,
        talk: &mut Talk,
        mut piece: Buffer,
        most: usize,
        x: &mut Exchange,
    ) -> Result<Received, RelayError> {
        match talk.poll_recv(cx, &mut piece, most, &mut x.upstream.trailers) {
            Poll::Pending => return Ok(Received::Nothing),
            Poll::Ready(Err(error)) => return Err(RelayError::Stream(error)),
            Poll::Ready(Ok(0)) => {
                self.source.end();
                return Ok(Received::All);
            }
            Poll::Ready(Ok(_)) => {}
        }
        self.decode(&mut piece, x)?;
        self.pass_on(x, piece)?;
        Ok(Received::Some)
    }

    /// Sends the rest of a request whose response has begun; returns when the wait for the client or the server ends.
    pub(super) fn poll_request(
        cx: &mut Context<'_>,
        x: &mut Exchange,
        server: &mut Option<Line>,
    ) -> Result<Nanos, RelayError> {
        let Some(Line::Http2(talk)) = server else { return Ok(Nanos::MAX) };
        if talk.sent {
            return Ok(Nanos::MAX);
        }
        match talk.poll_request(cx, x) {
            Poll::Ready(result) => {
                result.map_err(RelayError::Request)?;
                x.upstream.sent_whole = !talk.refused;
                Ok(Nanos::MAX)
            }
            Poll::Pending if clock::now() < talk.deadline => Ok(talk.deadline),
            Poll::Pending if talk.awaits_client => Err(RelayError::Request(BodyError::TimedOut)),
            Poll::Pending => Err(RelayError::ServerTimedOut),
        }
    }
}
