//! What changes a response's body on its way to the client: filters, one behind the other.
//!
//! A filter works like a compressor: it is shown bytes and room, and says how much it took and how much it wrote. So each
//! keeps a bounded state, a body is never in memory as a whole, and a filter that makes much of little is asked again when
//! the client has taken something. A [`Chain`] joins the filters; who sends the body pushes pieces into it and pulls
//! pieces out.

mod charset;
mod gunzip;
mod gzip;
mod joint;
mod part;
mod sub;

use std::collections::VecDeque;
use std::task::Context;

use balanza_net::buffer::{self, Buffer};

pub use self::charset::Charset;
pub use self::gunzip::Gunzip;
pub use self::gzip::Gzip;
use self::joint::Next;
pub use self::joint::{Joint, Value};
pub use self::part::Part;
pub use self::sub::{Pair, Sub};
use crate::ssi::{self, Page};

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

/// What a stage of a chain is.
enum Kind {
    Filter(Box<dyn Filter>),
    /// `ssi`.
    Page(Box<Page>),
    /// Behind it the body has the responses of subrequests in it.
    Joint(Box<Joint>),
}

/// What a chain came to.
pub enum Pulled {
    /// A piece for the client, with room around it.
    Piece(Buffer),
    /// A command of a page, which is to be performed before the next piece is pulled.
    Due(ssi::Due),
    /// This URI is to be asked, and its response to be inserted, before the next piece is pulled.
    Add(Box<[u8]>),
    /// A subrequest is waited for; see [`Chain::wake`].
    Waiting,
    /// More of the body is needed, or all has come out.
    Nothing,
}

/// What a stage came to.
enum Produced {
    Piece(Piece),
    Other(Pulled),
}

struct Stage {
    kind: Kind,
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
        self.stages.push(Stage { kind: Kind::Filter(Box::new(filter)), input: None });
    }

    /// Adds a page behind the others. A joint is to follow.
    pub fn add_page(&mut self, page: Page) {
        self.stages.push(Stage { kind: Kind::Page(Box::new(page)), input: None });
    }

    /// Adds a joint behind the others, at most one.
    pub fn add_joint(&mut self, joint: Joint) {
        self.stages.push(Stage { kind: Kind::Joint(Box::new(joint)), input: None });
    }

    /// The page.
    pub fn page(&mut self) -> Option<&mut Page> {
        self.stages.iter_mut().find_map(|stage| match &mut stage.kind {
            Kind::Page(page) => Some(&mut **page),
            _ => None,
        })
    }

    /// The joint.
    pub fn joint(&mut self) -> Option<&mut Joint> {
        self.stages.iter_mut().find_map(|stage| match &mut stage.kind {
            Kind::Joint(joint) => Some(&mut **joint),
            _ => None,
        })
    }

    /// Wakes this task when the subrequest that is waited for has something.
    pub fn wake(&mut self, cx: &Context<'_>) {
        if let Some(joint) = self.joint() {
            joint.wake(cx);
        }
    }

    /// Adds a filter before the others.
    pub fn add_first(&mut self, filter: impl Filter + 'static) {
        self.stages.insert(0, Stage { kind: Kind::Filter(Box::new(filter)), input: None });
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

    /// What comes next.
    ///
    /// # Errors
    /// The body is malformed, or a subrequest has failed.
    pub fn pull(&mut self) -> Result<Pulled, Broken> {
        loop {
            let piece = match self.produce(self.stages.len())? {
                Produced::Piece(piece) => piece,
                Produced::Other(other) => return Ok(other),
            };
            self.ended |= piece.flow == Flow::End;
            if !piece.bytes.is_empty() {
                return Ok(Pulled::Piece(piece.bytes));
            }
        }
    }

    /// Whether the end of the body has come out.
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// Bytes that a compressor has taken and written.
    pub fn totals(&self) -> Option<(u64, u64)> {
        self.stages.iter().find_map(|stage| match &stage.kind {
            Kind::Filter(filter) => filter.totals(),
            _ => None,
        })
    }

    /// What comes next behind so many stages.
    fn produce(&mut self, stages: usize) -> Result<Produced, Broken> {
        let Some(index) = stages.checked_sub(1) else {
            return Ok(self.input.pop_front().map_or(Produced::Other(Pulled::Nothing), Produced::Piece));
        };
        if matches!(self.stages[index].kind, Kind::Joint(_)) {
            return self.produce_joined(index);
        }
        loop {
            if let Kind::Page(page) = &mut self.stages[index].kind
                && let Some(due) = page.take_due()
            {
                return Ok(Produced::Other(Pulled::Due(due)));
            }
            let mut input = match self.stages[index].input.take() {
                Some(input) => input,
                None => match self.produce(index)? {
                    Produced::Piece(input) => input,
                    other => return Ok(other),
                },
            };
            let mut bytes = Buffer::take();
            let room = HEAD_ROOM..buffer::CAPACITY - TAIL_ROOM;
            let stage = &mut self.stages[index];
            let out = &mut bytes.bytes_mut()[room];
            let step = match &mut stage.kind {
                Kind::Filter(filter) => filter.step(input.bytes.unread(), input.flow, out)?,
                Kind::Page(page) => {
                    let (taken, made, done) = page.step(input.bytes.unread(), input.flow == Flow::End, out);
                    Step { taken, made, done }
                }
                Kind::Joint(_) => Step { taken: input.bytes.unread().len(), made: 0, done: true },
            };
            (bytes.start, bytes.end) = (HEAD_ROOM, HEAD_ROOM + step.made);
            input.bytes.start += step.taken;
            let flow = if step.done { input.flow } else { Flow::More };
            if !step.done {
                stage.input = Some(input);
            }
            if step.made > 0 || flow != Flow::More {
                return Ok(Produced::Piece(Piece { bytes, flow }));
            }
        }
    }

    /// What comes next behind a joint.
    fn produce_joined(&mut self, index: usize) -> Result<Produced, Broken> {
        loop {
            let Kind::Joint(joint) = &mut self.stages[index].kind else { return Ok(Produced::Other(Pulled::Nothing)) };
            match joint.next()? {
                Next::Piece(piece) => return Ok(Produced::Piece(with_room(piece))),
                Next::Waiting => return Ok(Produced::Other(Pulled::Waiting)),
                Next::Add(uri) => return Ok(Produced::Other(Pulled::Add(uri))),
                Next::Ended => return Ok(Produced::Piece(Piece { bytes: Buffer::take(), flow: Flow::End })),
                Next::Body => {}
            }
            let waits = joint.waits();
            match self.produce(index)? {
                Produced::Piece(piece) => {
                    if let Kind::Joint(joint) = &mut self.stages[index].kind {
                        joint.take(piece);
                    }
                }
                Produced::Other(Pulled::Nothing) if waits => return Ok(Produced::Other(Pulled::Waiting)),
                other => return Ok(other),
            }
        }
    }
}

/// A piece with room around it for framing.
fn with_room(piece: Piece) -> Piece {
    let bytes = piece.bytes.unread();
    if piece.bytes.start >= HEAD_ROOM && piece.bytes.end + TAIL_ROOM <= buffer::CAPACITY
        || bytes.len() > buffer::CAPACITY - HEAD_ROOM - TAIL_ROOM
    {
        return piece;
    }
    let mut moved = Buffer::take();
    (moved.start, moved.end) = (HEAD_ROOM, HEAD_ROOM + bytes.len());
    moved.unread_mut().copy_from_slice(bytes);
    Piece { bytes: moved, flow: piece.flow }
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
                while let Pulled::Piece(piece) = chain.pull()? {
                    assert!(piece.start >= HEAD_ROOM && piece.end + TAIL_ROOM <= buffer::CAPACITY);
                    out.extend_from_slice(piece.unread());
                }
            }
            begin = cut;
        }
        assert!(!chain.has_ended());
        chain.end();
        while let Pulled::Piece(piece) = chain.pull()? {
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
