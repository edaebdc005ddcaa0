//! Places for connections, used again and again.

use super::connection::{Connection, State};
use super::response::Reader;

/// A place for a connection. What events and deadlines mean is told by the generation, which changes with the connection.
#[derive(Debug, Default)]
pub(super) struct Slot {
    pub connection: Option<Connection>,
    pub reader: Reader,
    generation: u32,
    /// For when the slot's deadline is in the heap: one entry at a time, moved when it comes up.
    pub armed: Option<u64>,
}

impl Slot {
    /// The connection, if it is still the one that an event is about.
    pub fn connection_of(&mut self, generation: u32) -> Option<(&mut Connection, &mut Reader)> {
        self.connection.as_mut().filter(|_| self.generation == generation).map(|found| (found, &mut self.reader))
    }
}

/// All places.
#[derive(Debug, Default)]
pub(super) struct Slots {
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Connections that wait for the peer to close them.
    closing: u32,
}

impl Slots {
    /// Connections that are there. One whose last answer has come does not count: a client with few descriptors would
    /// close it now.
    pub fn live(&self) -> u32 {
        (self.slots.len() - self.free.len()) as u32 - self.closing
    }

    /// A free place; the name for its events is [`name`](Self::name).
    pub fn take(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            (self.slots.len() - 1) as u32
        })
    }

    /// What the events of the slot's present connection are called.
    pub fn name(&self, slot: u32) -> u64 {
        u64::from(self.slots[slot as usize].generation) << 32 | u64::from(slot)
    }

    /// Slot and generation of a name.
    pub fn of_name(name: u64) -> (u32, u32) {
        (name as u32, (name >> 32) as u32)
    }

    /// Leaves it to the peer to close the connection.
    pub fn leave(&mut self, slot: u32) {
        if let Some(connection) = &mut self[slot].connection {
            connection.state = State::Closing;
            self.closing += 1;
        }
    }

    /// Closes the connection in a slot. The answer stays in the slot's reader until the next one is read.
    pub fn close(&mut self, slot: u32) -> Option<Connection> {
        let place = &mut self.slots[slot as usize];
        let connection = place.connection.take()?;
        // The highest bit is the timer's.
        place.generation = place.generation.wrapping_add(1) & 0x7fff_ffff;
        self.free.push(slot);
        if matches!(connection.state, State::Closing) {
            self.closing -= 1;
        }
        Some(connection)
    }
}

impl std::ops::Index<u32> for Slots {
    type Output = Slot;

    fn index(&self, slot: u32) -> &Slot {
        &self.slots[slot as usize]
    }
}

impl std::ops::IndexMut<u32> for Slots {
    fn index_mut(&mut self, slot: u32) -> &mut Slot {
        &mut self.slots[slot as usize]
    }
}
