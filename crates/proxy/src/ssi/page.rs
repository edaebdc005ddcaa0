//! A page on its way to the client: its text, and the commands in it, one after the other.

use std::rc::Rc;

use super::Common;
use super::parser::{Command, Found, Parser};
use super::text::Encoding;

/// What the text of errors is unless a page says otherwise.
const ERROR: &[u8] = b"[an error occurred while processing the directive]";

/// So much text goes out before another command is performed: many small pieces would cost more.
const ENOUGH: usize = 16 * 1024;

/// A command that is to be performed before the page goes on.
#[derive(Debug, PartialEq, Eq)]
pub enum Due {
    /// A command.
    Command(Command),
    /// A malformed one, for this reason.
    Malformed(String),
}

/// A page.
pub struct Page {
    parser: Parser,
    /// What it has in common with others of the same request.
    pub(super) common: Rc<Common>,
    /// Text on its way out.
    pub(super) text: Vec<u8>,
    /// How much of it has gone out.
    written: usize,
    /// A command that waits.
    due: Option<Due>,
    /// Text goes to the client.
    pub(super) outputs: bool,
    /// Text goes to a block.
    pub(super) in_block: bool,
    /// A block had no more room.
    pub(super) block_is_full: bool,
    /// In an `if`.
    pub(super) condition: Condition,
    /// A branch of the `if` was chosen.
    pub(super) chosen: bool,
    pub(super) encoding: Encoding,
    pub(super) error: Vec<u8>,
    /// Errors leave no text.
    silent: bool,
}

/// Where a page is in an `if`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Condition {
    /// In none.
    None,
    /// Behind `if` or `elif`.
    If,
    /// Behind `else`.
    Else,
}

impl Page {
    /// The beginning of a page.
    pub fn new(value_length: usize, silent: bool, common: Rc<Common>) -> Page {
        Page {
            parser: Parser::new(value_length),
            common,
            text: Vec::new(),
            written: 0,
            due: None,
            outputs: true,
            in_block: false,
            block_is_full: false,
            condition: Condition::None,
            chosen: false,
            encoding: Encoding::Entity,
            error: ERROR.to_vec(),
            silent,
        }
    }

    /// Takes from a piece of the page up to the next command, and writes text that goes to the client. Tells how much
    /// was taken and written, and whether the piece is done.
    pub fn step(&mut self, piece: &[u8], ends: bool, out: &mut [u8]) -> (usize, usize, bool) {
        let (mut taken, mut done) = (0, false);
        while !done && self.due.is_none() && self.waiting() < ENOUGH {
            match self.parser.next(piece, &mut taken) {
                Found::Text(held, range) => {
                    self.take(held);
                    self.take(&piece[range]);
                }
                Found::Command(command) => self.due = Some(Due::Command(command)),
                Found::Malformed(reason) => self.due = Some(Due::Malformed(reason)),
                Found::Nothing => {
                    if ends {
                        let held = self.parser.end();
                        self.take(held);
                    }
                    done = true;
                }
            }
        }
        let made = if self.due_joins() { 0 } else { self.write(out) };
        (taken, made, done && self.text.is_empty())
    }

    /// The command that the page waits for. Text before it has gone out, or goes out together with its text.
    pub fn take_due(&mut self) -> Option<Due> {
        if self.text.is_empty() || self.due_joins() { self.due.take() } else { None }
    }

    /// Whether the command that waits only adds text to that which waits.
    fn due_joins(&self) -> bool {
        let inserts = |due: &Due| matches!(due, Due::Command(command) if command.name == b"include");
        self.waiting() < ENOUGH && self.due.as_ref().is_some_and(|due| !inserts(due))
    }

    /// Bytes of text that wait.
    fn waiting(&self) -> usize {
        self.text.len() - self.written
    }

    /// The command at hand has failed.
    pub fn fail(&mut self) {
        if !self.silent {
            self.text.extend_from_slice(&self.error);
        }
    }

    /// Takes text of the page.
    fn take(&mut self, text: &[u8]) {
        if self.outputs {
            self.text.extend_from_slice(text);
        } else if self.in_block {
            self.take_for_block(text);
        }
    }

    /// Adds to the block at hand.
    pub(super) fn take_for_block(&mut self, text: &[u8]) {
        self.block_is_full |= !self.common.add_to_block(text);
    }

    fn write(&mut self, out: &mut [u8]) -> usize {
        let rest = &self.text[self.written..];
        let length = rest.len().min(out.len());
        out[..length].copy_from_slice(&rest[..length]);
        self.written += length;
        if self.written == self.text.len() {
            self.text.clear();
            self.written = 0;
        }
        length
    }
}
