//! What waits for the client: pieces in memory, and behind them a temporary file, in the order in which they came.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use balanza_config::model::TempPath;
use balanza_net::buffer::{self, Buffer};
use balanza_net::memory::{self, Pressure};

use crate::temporary;

/// A temporary file between server and client.
struct Spill {
    file: File,
    read: u64,
    written: u64,
}

/// Pieces on their way to a client.
pub struct Queue {
    pieces: VecDeque<Buffer>,
    /// Bytes in them.
    bytes: usize,
    /// How many bytes memory may hold.
    memory: usize,
    spill: Option<Spill>,
    /// Most bytes of the temporary file; 0 for none.
    spill_limit: u64,
    /// Where it is.
    place: Option<Arc<TempPath>>,
}

impl Queue {
    /// An empty queue with these limits.
    pub fn new(memory: usize, spill_limit: u64, place: Option<Arc<TempPath>>) -> Queue {
        Queue { pieces: VecDeque::new(), bytes: 0, memory: memory.max(1), spill: None, spill_limit, place }
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty() && !self.is_spilling()
    }

    /// Bytes that wait in memory.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether more may be read from the server: memory has room, or the client is slow and the file has.
    pub fn has_room(&self, is_slow: impl FnOnce() -> bool) -> bool {
        let written = self.spill.as_ref().map_or(0, |spill| spill.written);
        self.bytes < self.memory() || self.spill_limit > written && is_slow()
    }

    /// What memory may hold now.
    fn memory(&self) -> usize {
        if memory::pressure() < Pressure::Bodies { self.memory } else { self.memory.min(buffer::CAPACITY) }
    }

    fn is_spilling(&self) -> bool {
        self.spill.as_ref().is_some_and(|spill| spill.read < spill.written)
    }

    /// Adds a piece: in memory, or in the file once that has begun or memory is full.
    ///
    /// # Errors
    /// The temporary file failed.
    pub fn push(&mut self, piece: Buffer) -> io::Result<()> {
        if !self.is_spilling() && (self.bytes < self.memory() || self.spill_limit == 0) {
            self.keep(piece);
            return Ok(());
        }
        self.write(&piece)
    }

    /// Adds the last piece, which memory takes even if it is full.
    ///
    /// # Errors
    /// The temporary file failed.
    pub fn push_last(&mut self, piece: Buffer) -> io::Result<()> {
        if self.is_spilling() {
            return self.write(&piece);
        }
        self.keep(piece);
        Ok(())
    }

    /// Small pieces share a buffer, so that memory is bounded by what is in it.
    fn keep(&mut self, piece: Buffer) {
        let bytes = piece.unread();
        if bytes.is_empty() {
            return;
        }
        self.bytes += bytes.len();
        if let Some(last) = self.pieces.back_mut()
            && last.space().len() >= bytes.len()
        {
            last.space()[..bytes.len()].copy_from_slice(bytes);
            last.end += bytes.len();
            return;
        }
        self.pieces.push_back(piece);
    }

    fn write(&mut self, piece: &Buffer) -> io::Result<()> {
        let spill = match &mut self.spill {
            Some(spill) => spill,
            none => {
                let file = temporary::unnamed(self.place.as_deref())?;
                none.insert(Spill { file, read: 0, written: 0 })
            }
        };
        spill.file.write_all_at(piece.unread(), spill.written)?;
        spill.written += piece.unread().len() as u64;
        Ok(())
    }

    /// What goes out next; none if nothing waits.
    ///
    /// # Errors
    /// The temporary file failed.
    pub fn front(&mut self) -> io::Result<Option<&Buffer>> {
        if self.pieces.is_empty() {
            self.read_back()?;
        }
        Ok(self.pieces.front())
    }

    /// So many bytes of the front have gone out.
    pub fn consume(&mut self, sent: usize) {
        let Some(front) = self.pieces.front_mut() else { return };
        front.start += sent;
        self.bytes -= sent;
        if front.is_empty() {
            self.pieces.pop_front();
        }
    }

    /// Takes the next piece out of the file.
    fn read_back(&mut self) -> io::Result<()> {
        let Some(spill) = self.spill.as_mut().filter(|spill| spill.read < spill.written) else { return Ok(()) };
        let mut piece = Buffer::take();
        let wanted = (spill.written - spill.read).min(buffer::CAPACITY as u64) as usize;
        spill.file.read_exact_at(&mut piece.bytes_mut()[..wanted], spill.read)?;
        piece.end = wanted;
        spill.read += wanted as u64;
        if spill.read == spill.written {
            spill.file.set_len(0)?;
            (spill.read, spill.written) = (0, 0);
        }
        self.bytes += wanted;
        self.pieces.push_back(piece);
        Ok(())
    }

    /// Moves what waits in memory behind `text`, and tells how much it was.
    pub fn drain_into(&mut self, text: &mut Vec<u8>) -> usize {
        for piece in self.pieces.drain(..) {
            text.extend_from_slice(piece.unread());
        }
        std::mem::take(&mut self.bytes)
    }

    /// Discards what waits.
    pub fn clear(&mut self) {
        self.pieces.clear();
        self.bytes = 0;
        self.spill = None;
        self.spill_limit = 0;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Whatever goes in comes out, in order, with memory and file as small as can be.
        #[test]
        fn what_goes_in_comes_out(
            steps in proptest::collection::vec((any::<bool>(), 0usize..3_000), 1..60),
            memory in 1usize..5_000,
            spills: bool,
        ) {
            let mut queue = Queue::new(memory, if spills { 1 << 30 } else { 0 }, None);
            let (mut pushed, mut got) = (Vec::new(), Vec::new());
            for (push, size) in steps {
                if push {
                    let bytes: Vec<u8> = (0..size).map(|i| (pushed.len() + i) as u8).collect();
                    queue.push(Buffer::holding(&bytes)).unwrap();
                    pushed.extend_from_slice(&bytes);
                } else if let Some(front) = queue.front().unwrap() {
                    let taken = front.unread().len().min(size);
                    got.extend_from_slice(&front.unread()[..taken]);
                    queue.consume(taken);
                }
                // Memory may be exceeded by one piece, or by what was read back.
                prop_assert!(!spills || queue.bytes() < memory + buffer::CAPACITY);
            }
            while let Some(front) = queue.front().unwrap() {
                let bytes = front.unread().to_vec();
                queue.consume(bytes.len());
                got.extend_from_slice(&bytes);
            }
            prop_assert!(queue.is_empty());
            prop_assert_eq!(got, pushed);
        }
    }
}
