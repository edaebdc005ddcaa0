//! Server-side includes: the commands in a page, and what they do. Neither reads nor sends; what a command needs of its
//! request comes from a [`Host`].

mod command;
mod page;
pub mod parser;
#[cfg(test)]
mod tests;
mod text;

use std::cell::{Cell, RefCell};
use std::fmt::Arguments;

use balanza_config::regex::Captures;

pub use self::command::{Effect, Include};
pub use self::page::{Due, Page};
use crate::undecided::Undecided;

/// How `$date_local` and `$date_gmt` are written unless a page says otherwise.
pub const TIME_FORMAT: &[u8] = b"%A, %d-%b-%Y %H:%M:%S %Z";

/// Most bytes of all blocks (`<!--# block -->`) of a request.
const MOST_IN_BLOCKS: usize = 1 << 20;

/// What a request and its subrequests have in common.
#[derive(Default)]
pub struct Common {
    store: RefCell<Store>,
    /// Subrequests that are being answered.
    pub running: Cell<usize>,
}

#[derive(Default)]
struct Store {
    /// Names and values of `set`.
    variables: Vec<(Vec<u8>, Vec<u8>)>,
    /// Names and texts of `block`.
    blocks: Vec<(Vec<u8>, Vec<u8>)>,
    /// Groups of the last regular expression that matched.
    captures: Captures,
}

impl Common {
    /// Sets a variable. The name is in lower case.
    pub fn set(&self, name: &[u8], value: Vec<u8>) {
        let mut store = self.store.borrow_mut();
        match store.variables.iter_mut().find(|(known, _)| known == name) {
            Some((_, old)) => *old = value,
            None => store.variables.push((name.to_vec(), value)),
        }
    }

    /// The value of a variable of a page, or of a group.
    fn get(&self, name: &[u8]) -> Option<Vec<u8>> {
        let store = self.store.borrow();
        if let [digit @ b'0'..=b'9'] = name
            && let Some(group) = store.captures.group(usize::from(digit - b'0'))
        {
            return Some(group.to_vec());
        }
        store.variables.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone())
    }

    fn begin_block(&self, name: &[u8]) {
        self.store.borrow_mut().blocks.push((name.to_vec(), Vec::new()));
    }

    /// Adds to the block that was begun last; false if there is no room.
    fn add_to_block(&self, text: &[u8]) -> bool {
        let mut store = self.store.borrow_mut();
        let length: usize = store.blocks.iter().map(|(_, text)| text.len()).sum();
        if length + text.len() > MOST_IN_BLOCKS {
            return false;
        }
        if let Some((_, block)) = store.blocks.last_mut() {
            block.extend_from_slice(text);
        }
        true
    }

    fn block(&self, name: &[u8]) -> Option<Vec<u8>> {
        self.store.borrow().blocks.iter().find(|(known, _)| known == name).map(|(_, text)| text.clone())
    }
}

/// The request that a page answers.
pub trait Host {
    /// Appends the value of a variable of the configuration, by its name in lower case; false if there is none.
    ///
    /// # Errors
    /// A regular expression is undecided.
    fn variable(&mut self, name: &[u8], out: &mut Vec<u8>) -> Result<bool, Undecided>;
    /// Its path, which relative ones begin at.
    fn path(&self) -> &[u8];
    /// Sets how dates are written.
    fn set_time_format(&mut self, format: &[u8]);
    /// Logs an error.
    fn report(&self, message: Arguments<'_>);
}
