//! What an algorithm keeps of each server over a reload and a change of membership.

use crate::key::key_hash;
use crate::server::Slot;
use crate::server_state::Words;
use crate::tier::Tier;

/// The words of the servers' states that belong to an algorithm, four numbers a server, 0 at first. They stay as long as the
/// state does, until an algorithm with another name for its state takes the state over.
///
/// An earlier fleet then finds no words, but a write of its that is under way may still arrive. So an algorithm has to
/// recover from any number that it finds.
#[derive(Clone, Copy)]
pub(crate) struct Kept(u64);

impl Kept {
    /// Takes over the states of a tier's servers. `name` says what is kept: the algorithm, and the parameters without which
    /// the numbers mean nothing.
    pub fn new(name: &str, tier: &Tier) -> Kept {
        let owner = key_hash(name.as_bytes()).max(1);
        tier.slots.iter().for_each(|slot| slot.kept.give_words(owner));
        Kept(owner)
    }

    /// The words of a server; `None` if its state belongs to another algorithm now.
    #[inline]
    pub fn of<'a>(&self, slot: &'a Slot) -> Option<&'a Words> {
        slot.kept.words(self.0)
    }
}
