//! Passes a body through the filters of its response.

use balanza_net::buffer::Buffer;

use super::{PIECES, Relay, RelayError};
use crate::exchange::Exchange;
use crate::filters::Chain;

impl Relay {
    /// Sends what has come through the filters, as far as there is room for what they make; false while they hold more.
    /// Ends the body once they have ended it.
    pub(super) fn filter(&mut self, x: &mut Exchange, piece: Option<Buffer>) -> Result<bool, RelayError> {
        if self.discards || self.ended {
            return Ok(true);
        }
        let Some(mut chain) = x.sent.filters.take() else { return Ok(true) };
        let result = self.filter_by(&mut chain, piece);
        x.sent.filters = Some(chain);
        let done = result?;
        if done && self.filter_ended {
            self.ended = true;
            if self.chunked {
                self.end(x)?;
            }
        }
        Ok(done)
    }

    fn filter_by(&mut self, chain: &mut Chain, piece: Option<Buffer>) -> Result<bool, RelayError> {
        if let (Some(piece), Some(flow)) = (piece, self.filtered)
            && !piece.is_empty()
        {
            chain.push(piece, flow);
        }
        if self.source.is_finished() && !self.filter_ending {
            self.filter_ending = true;
            chain.end();
        }
        for _ in 0..PIECES {
            if !self.queue.has_room(|| self.is_stalled()) {
                return Ok(false);
            }
            match chain.pull().map_err(|broken| RelayError::Broken(broken.0))? {
                Some(piece) => self.push(piece)?,
                None => {
                    self.filter_ended = chain.has_ended();
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }
}
