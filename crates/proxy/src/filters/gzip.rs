//! Compression in gzip's format.

use std::cell::RefCell;

use balanza_net::memory::Held;
use flate2::{Compress, Compression, FlushCompress, Status};

use super::{Broken, Filter, Flow, Step};

/// Idle compressors that a thread keeps: to make one costs more than to compress a small page.
const KEPT: usize = 16;

/// What a compressor takes of memory, about.
const WEIGHT: usize = 270 * 1024;

struct Compressor {
    compress: Compress,
    level: u32,
    window: u8,
    _held: Held,
}

thread_local! {
    static IDLE: RefCell<Vec<Compressor>> = const { RefCell::new(Vec::new()) };
}

/// Compresses a body.
pub struct Gzip {
    compressor: Option<Compressor>,
    taken: u64,
    made: u64,
}

impl Gzip {
    /// A compressor of this level, 1 to 9, with a window of so many bits, 9 to 15.
    pub fn new(level: u32, window: u8) -> Gzip {
        let idle = IDLE.with_borrow_mut(|idle| {
            let found = idle.iter().rposition(|idle| (idle.level, idle.window) == (level, window));
            found.map(|index| idle.swap_remove(index))
        });
        let compressor = idle.unwrap_or_else(|| {
            let mut held = Held::default();
            held.set(WEIGHT);
            let compress = Compress::new_gzip(Compression::new(level.clamp(1, 9)), window.clamp(9, 15));
            Compressor { compress, level, window, _held: held }
        });
        Gzip { compressor: Some(compressor), taken: 0, made: 0 }
    }
}

impl Filter for Gzip {
    fn step(&mut self, input: &[u8], flow: Flow, out: &mut [u8]) -> Result<Step, Broken> {
        let Some(Compressor { compress, .. }) = &mut self.compressor else {
            return Ok(Step { taken: input.len(), made: 0, done: true });
        };
        let flush = match flow {
            Flow::More => FlushCompress::None,
            Flow::Flush => FlushCompress::Sync,
            Flow::End => FlushCompress::Finish,
        };
        let before = (compress.total_in(), compress.total_out());
        let status = compress.compress(input, out, flush).map_err(|_| Broken("deflate() failed"))?;
        let taken = (compress.total_in() - before.0) as usize;
        let made = (compress.total_out() - before.1) as usize;
        (self.taken, self.made) = (compress.total_in(), compress.total_out());
        let done = match flow {
            Flow::More => taken == input.len(),
            Flow::Flush => taken == input.len() && made < out.len(),
            Flow::End => status == Status::StreamEnd,
        };
        if done && flow == Flow::End {
            self.retire();
        }
        Ok(Step { taken, made, done })
    }

    fn totals(&self) -> Option<(u64, u64)> {
        Some((self.taken, self.made))
    }
}

impl Gzip {
    /// Leaves the compressor to another body.
    fn retire(&mut self) {
        let Some(mut compressor) = self.compressor.take() else { return };
        compressor.compress.reset();
        // At the end of a thread there may be nothing left to put it into.
        let _ = IDLE.try_with(|idle| {
            if let Ok(mut idle) = idle.try_borrow_mut()
                && idle.len() < KEPT
            {
                idle.push(compressor);
            }
        });
    }
}

impl Drop for Gzip {
    fn drop(&mut self) {
        self.retire();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::tests::run;
    use super::super::{Chain, Gunzip, Pulled};
    use super::*;
    use balanza_net::buffer::Buffer;

    proptest! {
        /// What was compressed comes back, however it was cut, at every level and window, and the totals are those.
        #[test]
        fn what_is_compressed_comes_back(
            seed in proptest::collection::vec(any::<u8>(), 1..300),
            times in 0usize..900,
            cuts in proptest::collection::vec(any::<usize>(), 0..6),
            level in 1u32..10,
            window in 9u8..16,
            flushes: bool,
        ) {
            let body = seed.repeat(times);
            let flow = if flushes { Flow::Flush } else { Flow::More };
            let mut gzip = Chain::default();
            gzip.add(Gzip::new(level, window));
            let packed = run(&mut gzip, &body, &cuts, flow).unwrap();
            prop_assert_eq!(gzip.totals(), Some((body.len() as u64, packed.len() as u64)));
            let mut gunzip = Chain::default();
            gunzip.add(Gunzip::default());
            prop_assert_eq!(run(&mut gunzip, &packed, &cuts, flow).unwrap(), body);
        }
    }

    #[test]
    fn a_flush_lets_everything_out() {
        let mut chain = Chain::default();
        chain.add(Gzip::new(1, 15));
        chain.add(Gunzip::default());
        for part in [&b"one"[..], b"two", b""] {
            chain.push(Buffer::holding(part), Flow::Flush);
            let mut out = Vec::new();
            while let Pulled::Piece(piece) = chain.pull().unwrap() {
                out.extend_from_slice(piece.unread());
            }
            assert_eq!(out, part);
        }
    }
}
