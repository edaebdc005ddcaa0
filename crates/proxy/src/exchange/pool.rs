//! The state of finished requests, kept for the next ones.

use std::cell::RefCell;

use super::Exchange;

/// A request's state with at least so many bytes is not reused.
const LARGE: usize = 32 * 1024;

/// How many are kept.
const COUNT: usize = 256;

/// The exchanges of a worker that are not in use.
#[derive(Default)]
pub struct Exchanges {
    #[expect(clippy::vec_box, reason = "moved from request to request, and large")]
    kept: RefCell<Vec<Box<Exchange>>>,
}

impl Exchanges {
    /// State for a request, reused from an earlier one.
    pub fn take(&self) -> Box<Exchange> {
        self.kept.borrow_mut().pop().unwrap_or_else(Exchange::boxed)
    }

    /// Returns the state of a finished request for reuse under this generation of the configuration.
    pub fn put_back(&self, mut exchange: Box<Exchange>, generation: u64) {
        let mut kept = self.kept.borrow_mut();
        if exchange.belongs_to(generation) && kept.len() < COUNT && exchange.texts() < LARGE {
            exchange.clear();
            kept.push(exchange);
        }
    }

    /// Frees half of them, after a peak.
    pub fn trim(&self) {
        let mut kept = self.kept.borrow_mut();
        let half = kept.len() / 2;
        kept.truncate(half);
    }

    /// Frees all of them: they would keep an old configuration.
    pub fn clear(&self) {
        self.kept.borrow_mut().clear();
    }
}
