//! What changes a response's body on its way to the client: filters, one behind the other.
//!
//! A filter works like a compressor: it is shown bytes and room, and says how much it took and how much it wrote. So each
//! keeps a bounded state, a body is never in memory as a whole, and a filter that makes much of little is asked again when
//! the client has taken something. A [`Chain`] joins the filters; who sends the body pushes pieces into it and pulls
//! pieces out.

mod charset;
mod gunzip;
mod gzip;
mod part;
mod sub;

use std::collections::VecDeque;

use balanza_net::buffer::{self, Buffer};

pub use self::charset::Charset;
pub use self::gunzip::Gunzip;
pub use self::gzip::Gzip;
pub use self::part::Part;
pub use self::sub::{Pair, Sub};

/// Room that is left in front of the payload of a piece that a chain makes, for framing.
pub const HEAD_ROOM: usize = 24;

/// Room that is left behind it.
pub const TAIL_ROOM: usize = 2;

/// What follows the bytes that a filter is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// More bytes; what is kept back may go out together with them.
    More,
    /// More bytes, but it is not known when: what can go out goes out.
    Flush,
    /// Nothing.
    End,
}

/// What a filter did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// Bytes taken of the input.
    pub taken: usize,
    /// Bytes written.
    pub made: usize,
    /// All of the input was taken, and what follows it is dealt with. Else there was no room, and the filter is to be
    /// called again with the rest of the input.
    pub done: bool,
}

/// Why a body cannot be changed, for the error log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Broken(pub &'static str);

/// A change of a body.
pub trait Filter {
    /// Takes from `input` and writes to `out`, which has room for at least 1024 bytes.
    ///
    /// # Errors
    /// The body is malformed.
    fn step(&mut self, input: &[u8], flow: Flow, out: &mut [u8]) -> Result<Step, Broken>;

    /// Bytes that a compressor has taken and written.
    fn totals(&self) -> Option<(u64, u64)> {
        None
    }
}

struct Piece {
    bytes: Buffer,
    flow: Flow,
}

struct Stage {
    filter: Box<dyn Filter>,
    /// What the filter is still to take.
    input: Option<Piece>,
}

/// Filters in the order in which a body goes through them.
#[derive(Default)]
pub struct Chain {
    stages: Vec<Stage>,
    input: VecDeque<Piece>,
    ended: bool,
}

impl Chain {
    /// Adds a filter behind the others.
    pub fn add(&mut self, filter: impl Filter + 'static) {
        self.stages.push(Stage { filter: Box::new(filter), input: None });
    }

    /// Adds a filter before the others.
    pub fn add_first(&mut self, filter: impl Filter + 'static) {
        self.stages.insert(0, Stage { filter: Box::new(filter), input: None });
    }

    /// Whether it changes nothing.
    pub fn is_empty(&self) -> bool {
        self.stages.is_empty()
    }

    /// Adds a piece of the body. [`Chain::pull`] should have returned `None` before, so that memory is bounded.
    pub fn push(&mut self, bytes: Buffer, flow: Flow) {
        self.input.push_back(Piece { bytes, flow });
    }

    /// The body ends here.
    pub fn end(&mut self) {
        self.push(Buffer::take(), Flow::End);
    }

    /// The next piece for the client, with room around it; `None` when more of the body is needed, or all has come out.
    ///
    /// # Errors
    /// The body is malformed.
    pub fn pull(&mut self) -> Result<Option<Buffer>, Broken> {
        while let Some(piece) = self.produce(self.stages.len())? {
            self.ended |= piece.flow == Flow::End;
            if !piece.bytes.is_empty() {
                return Ok(Some(piece.bytes));
            }
        }
        Ok(None)
    }

    /// Whether the end of the body has come out.
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// Bytes that a compressor has taken and written.
    pub fn totals(&self) -> Option<(u64, u64)> {
        self.stages.iter().find_map(|stage| stage.filter.totals())
    }

    /// The next piece behind so many stages.
    fn produce(&mut self, stages: usize) -> Result<Option<Piece>, Broken> {
        let Some(index) = stages.checked_sub(1) else { return Ok(self.input.pop_front()) };
        loop {
            let mut input = match self.stages[index].input.take() {
                Some(input) => input,
                None => match self.produce(index)? {
                    Some(input) => input,
                    None => return Ok(None),
                },
            };
            let mut bytes = Buffer::take();
            let room = HEAD_ROOM..buffer::CAPACITY - TAIL_ROOM;
            let stage = &mut self.stages[index];
            let step = stage.filter.step(input.bytes.unread(), input.flow, &mut bytes.bytes_mut()[room])?;
            (bytes.start, bytes.end) = (HEAD_ROOM, HEAD_ROOM + step.made);
            input.bytes.start += step.taken;
            let flow = if step.done { input.flow } else { Flow::More };
            if !step.done {
                stage.input = Some(input);
            }
            if step.made > 0 || flow != Flow::More {
                return Ok(Some(Piece { bytes, flow }));
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// All that comes out of a chain when a body goes in cut at these places.
    pub fn run(chain: &mut Chain, body: &[u8], cuts: &[usize], flow: Flow) -> Result<Vec<u8>, Broken> {
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (body.len() + 1)).collect();
        cuts.sort_unstable();
        cuts.push(body.len());
        let mut out = Vec::new();
        let mut begin = 0;
        for cut in cuts {
            for part in body[begin..cut].chunks(buffer::CAPACITY) {
                chain.push(Buffer::holding(part), flow);
                while let Some(piece) = chain.pull()? {
                    assert!(piece.start >= HEAD_ROOM && piece.end + TAIL_ROOM <= buffer::CAPACITY);
                    out.extend_from_slice(piece.unread());
                }
            }
            begin = cut;
        }
        assert!(!chain.has_ended());
        chain.end();
        while let Some(piece) = chain.pull()? {
            out.extend_from_slice(piece.unread());
        }
        assert!(chain.has_ended());
        Ok(out)
    }

    /// Writes each byte so many times, a few bytes at a time.
    struct Repeat {
        times: usize,
        left: usize,
    }

    impl Filter for Repeat {
        fn step(&mut self, input: &[u8], _: Flow, out: &mut [u8]) -> Result<Step, Broken> {
            let (mut taken, mut made) = (0, 0);
            while let Some(byte) = input.get(taken) {
                if made == 7 {
                    return Ok(Step { taken, made, done: false });
                }
                out[made] = *byte;
                made += 1;
                self.left -= 1;
                if self.left == 0 {
                    taken += 1;
                    self.left = self.times;
                }
            }
            Ok(Step { taken, made, done: true })
        }
    }

    proptest! {
        /// Filters that need to be called again pass everything on, in order.
        #[test]
        fn a_chain_loses_nothing(
            body in proptest::collection::vec(any::<u8>(), 0..200),
            cuts in proptest::collection::vec(any::<usize>(), 0..6),
            first in 1usize..9,
            second in 1usize..9,
        ) {
            let mut chain = Chain::default();
            chain.add(Repeat { times: first, left: first });
            chain.add(Repeat { times: second, left: second });
            let expected: Vec<u8> = body.iter().flat_map(|byte| vec![*byte; first * second]).collect();
            prop_assert_eq!(run(&mut chain, &body, &cuts, Flow::More).unwrap(), expected);
        }
    }
}
