//! What an algorithm keeps of each server over a reload and a change of membership.

use crate::cell::{Cell, Words};
use crate::key::key_hash;
use crate::tier::Tier;

/// The words of the servers' cells that belong to an algorithm, four numbers a server, 0 at first. They stay as long as the
/// cell does, until an algorithm with another name for its state takes the cell over.
///
/// An earlier fleet then finds no words, but a write of its that is under way may still arrive. So an algorithm has to
/// recover from any number that it finds.
#[derive(Clone, Copy)]
pub(crate) struct Kept(u64);

impl Kept {
    /// Takes over the cells of a tier's servers. `name` says what is kept: the algorithm, and the parameters without which
    /// the numbers mean nothing.
    pub fn new(name: &str, tier: &Tier) -> Kept {
        let owner = key_hash(name.as_bytes()).max(1);
        tier.slots.iter().for_each(|slot| slot.cell.give_words(owner));
        Kept(owner)
    }

    /// The words of a server; `None` if its cell belongs to another algorithm now.
    #[inline]
    pub fn of<'a>(&self, cell: &'a Cell) -> Option<&'a Words> {
        cell.words(self.0)
    }
}
