//! Passes a body through the filters of its response.

use balanza_net::buffer::Buffer;

use super::{PIECES, Relay, RelayError};
use crate::exchange::Exchange;
use crate::filters::{Chain, Pulled};
use crate::response::insertions;

/// How far the filters have come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Filtered {
    /// They hold nothing that could go out.
    All,
    /// They hold more.
    Some,
    /// They wait for a subrequest.
    Waiting,
}

impl Relay {
    /// Sends what has come through the filters, as far as there is room for what they make. Ends the body once they have
    /// ended it.
    pub(super) fn filter(&mut self, x: &mut Exchange, piece: Option<Buffer>) -> Result<Filtered, RelayError> {
        if self.discards || self.ended {
            return Ok(Filtered::All);
        }
        let Some(mut chain) = x.sent.filters.take() else { return Ok(Filtered::All) };
        let result = self.filter_by(x, &mut chain, piece);
        x.sent.filters = Some(chain);
        let done = result?;
        if done == Filtered::All && self.filter_ended {
            self.ended = true;
            if self.chunked {
                self.end(x)?;
            }
        }
        Ok(done)
    }

    fn filter_by(
        &mut self,
        x: &mut Exchange,
        chain: &mut Chain,
        piece: Option<Buffer>,
    ) -> Result<Filtered, RelayError> {
        if let (Some(piece), Some(flow)) = (piece, self.filtered)
            && !piece.is_empty()
        {
            chain.push(piece, flow);
        }
        if self.source.is_finished() && !self.filter_ending {
            self.filter_ending = true;
            chain.end();
        }
        let mut pieces = 0;
        while pieces < PIECES {
            if !self.queue.has_room(|| self.is_stalled()) {
                return Ok(Filtered::Some);
            }
            match chain.pull().map_err(|broken| RelayError::Broken(broken.0))? {
                Pulled::Piece(piece) => {
                    pieces += 1;
                    self.push(piece)?;
                }
                Pulled::Due(due) => insertions::perform(x, chain, &due),
                Pulled::Add(uri) => insertions::add(x, chain, &uri),
                Pulled::Waiting => return Ok(Filtered::Waiting),
                Pulled::Nothing => {
                    self.filter_ended = chain.has_ended();
                    return Ok(Filtered::All);
                }
            }
        }
        Ok(Filtered::Some)
    }
}
