//! Where responses of subrequests are put between the pieces of a body, in the order in which they were asked for.

use std::collections::VecDeque;
use std::rc::Rc;
use std::task::Context;

use super::{Broken, Flow, Piece, TAIL_ROOM};
use crate::insertion::{Receiver, Taken};
use crate::ssi;

/// A body goes on while a subrequest is answered, until so many bytes wait behind it …
const MOST_BYTES: usize = 64 * 1024;
/// … or so many subrequests of the body …
const MOST_BESIDE: usize = 16;
/// … or so many of its request, those of its subrequests included.
const MOST_RUNNING: usize = 64;

/// What waits for its turn.
enum Entry {
    Piece(Piece),
    /// The response of a subrequest.
    Response(Receiver),
    /// One that becomes the value of a variable.
    Value(Receiver, Value),
}

/// A value that comes from a subrequest.
pub struct Value {
    /// The variable.
    pub name: Vec<u8>,
    /// What has come of it.
    pub bytes: Vec<u8>,
}

/// What is next behind a joint.
pub(super) enum Next {
    Piece(Piece),
    /// More of the body is needed.
    Body,
    /// A subrequest has not come so far.
    Waiting,
    /// This URI is to be asked now.
    Add(Box<[u8]>),
    /// All has gone by.
    Ended,
}

/// The place where responses of subrequests are put into a body.
pub struct Joint {
    entries: VecDeque<Entry>,
    /// Bytes in pieces that wait.
    bytes: usize,
    /// Subrequests among what waits.
    beside: usize,
    /// URIs whose responses stand before and after the body.
    before: Option<Box<[u8]>>,
    after: Option<Box<[u8]>>,
    /// The body does not go on before all that waits has gone by.
    holds: bool,
    body_ended: bool,
    ended: bool,
    common: Rc<ssi::Common>,
}

impl Joint {
    /// A joint of a body with responses before and after it.
    pub fn new(common: Rc<ssi::Common>, before: Option<Box<[u8]>>, after: Option<Box<[u8]>>) -> Joint {
        let entries = VecDeque::new();
        let (bytes, beside, holds, body_ended, ended) = (0, 0, false, false, false);
        Joint { entries, bytes, beside, before, after, holds, body_ended, ended, common }
    }

    /// Puts the response of a subrequest here, or makes it the value of a variable. With `holds` the body waits for it.
    pub fn insert(&mut self, response: Receiver, value: Option<Value>, holds: bool) {
        self.beside += 1;
        self.holds |= holds;
        self.entries.push_back(match value {
            None => Entry::Response(response),
            Some(value) => Entry::Value(response, value),
        });
    }

    /// Wakes this task when the subrequest that is waited for has something.
    pub fn wake(&self, cx: &Context<'_>) {
        if let Some(Entry::Response(response) | Entry::Value(response, _)) = self.entries.front() {
            response.wake(cx);
        }
    }

    /// Takes a piece of the body.
    pub(super) fn take(&mut self, piece: Piece) {
        self.body_ended |= piece.flow == Flow::End;
        let bytes = piece.bytes.unread();
        self.bytes += bytes.len();
        if let Some(Entry::Piece(last)) = self.entries.back_mut()
            && last.flow == piece.flow
            && last.bytes.space().len() > bytes.len() + TAIL_ROOM
        {
            // Small pieces share a buffer, so that memory is bounded by what is in it.
            last.bytes.space()[..bytes.len()].copy_from_slice(bytes);
            last.bytes.end += bytes.len();
            return;
        }
        if !piece.bytes.is_empty() || piece.flow == Flow::Flush {
            let flow = if piece.flow == Flow::End { Flow::More } else { piece.flow };
            self.entries.push_back(Entry::Piece(Piece { flow, ..piece }));
        }
    }

    /// What is next.
    pub(super) fn next(&mut self) -> Result<Next, Broken> {
        if let Some(uri) = self.before.take() {
            return Ok(Next::Add(uri));
        }
        while let Some(entry) = self.entries.front_mut() {
            let ended = match entry {
                Entry::Piece(_) => {
                    let Some(Entry::Piece(piece)) = self.entries.pop_front() else { break };
                    self.bytes -= piece.bytes.unread().len();
                    return Ok(Next::Piece(piece));
                }
                Entry::Response(response) => match response.take() {
                    Taken::Piece(bytes) => return Ok(Next::Piece(Piece { bytes, flow: Flow::More })),
                    Taken::Nothing => false,
                    Taken::End => true,
                    Taken::Broken => return Err(Broken("a subrequest was cut off")),
                },
                Entry::Value(response, value) => match response.take() {
                    Taken::Piece(bytes) => {
                        if value.bytes.len() + bytes.unread().len() > response.most() {
                            return Err(Broken("too big subrequest response"));
                        }
                        value.bytes.extend_from_slice(bytes.unread());
                        continue;
                    }
                    Taken::Nothing => false,
                    Taken::End => {
                        if response.status() < 300 {
                            self.common.set(&value.name, std::mem::take(&mut value.bytes));
                        }
                        true
                    }
                    Taken::Broken => return Err(Broken("a subrequest was cut off")),
                },
            };
            if !ended {
                return Ok(if self.goes_on() { Next::Body } else { Next::Waiting });
            }
            self.entries.pop_front();
            self.beside -= 1;
        }
        self.holds = false;
        if !self.body_ended {
            return Ok(Next::Body);
        }
        if let Some(uri) = self.after.take() {
            return Ok(Next::Add(uri));
        }
        Ok(if std::mem::replace(&mut self.ended, true) { Next::Body } else { Next::Ended })
    }

    /// Whether something is waited for.
    pub(super) fn waits(&self) -> bool {
        !self.entries.is_empty()
    }

    /// Whether the body goes on while a subrequest is answered, so that others begin beside it.
    fn goes_on(&self) -> bool {
        !self.holds
            && !self.body_ended
            && self.bytes < MOST_BYTES
            && self.beside < MOST_BESIDE
            && self.common.running.get() < MOST_RUNNING
    }
}
