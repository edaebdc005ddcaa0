//! Large buffers from a pool of the worker: a connection holds one only while there is something in it.

use std::cell::RefCell;
use std::ops::Range;

use crate::memory;

/// Bytes in a buffer.
pub const CAPACITY: usize = 64 * 1024;

/// How many free buffers a worker keeps under load; the rest goes back to the allocator.
const KEPT: usize = 128;

/// How many it keeps for ever.
const KEPT_IDLE: usize = 4;

thread_local! {
    static FREE: RefCell<Vec<Box<[u8]>>> = const { RefCell::new(Vec::new()) };
}

#[cfg(feature = "simulation")]
thread_local! {
    static TAKEN: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// How many buffers of this thread are in use.
#[cfg(feature = "simulation")]
pub fn taken() -> usize {
    TAKEN.get()
}

/// Gives half of the free buffers back to the allocator. To be called once a second, so that a peak is forgotten.
pub fn trim() {
    FREE.with_borrow_mut(|free| {
        let kept = (free.len() / 2).max(KEPT_IDLE).min(free.len());
        memory::count(-(((free.len() - kept) * CAPACITY) as isize));
        free.truncate(kept);
    });
}

/// Gives all free buffers back, at the end of a thread.
pub fn release() {
    let free = FREE.take();
    memory::count(-((free.len() * CAPACITY) as isize));
}

/// A buffer with unread bytes at `start..end`. Goes back to the pool when dropped.
pub struct Buffer {
    data: Box<[u8]>,
    /// First unread byte.
    pub start: usize,
    /// End of the unread bytes.
    pub end: usize,
}

impl Buffer {
    /// An empty buffer.
    pub fn take() -> Buffer {
        #[cfg(feature = "simulation")]
        TAKEN.set(TAKEN.get() + 1);
        let data = FREE.with_borrow_mut(Vec::pop).unwrap_or_else(|| {
            memory::count(CAPACITY as isize);
            vec![0; CAPACITY].into_boxed_slice()
        });
        Buffer { data, start: 0, end: 0 }
    }

    /// A buffer with these bytes, at most [`CAPACITY`] of them.
    ///
    /// # Panics
    /// There are more.
    pub fn holding(bytes: &[u8]) -> Buffer {
        let mut buffer = Buffer::take();
        buffer.end = bytes.len();
        buffer.unread_mut().copy_from_slice(bytes);
        buffer
    }

    /// The unread bytes.
    pub fn unread(&self) -> &[u8] {
        &self.data[self.start..self.end]
    }

    /// The unread bytes.
    pub fn unread_mut(&mut self) -> &mut [u8] {
        &mut self.data[self.start..self.end]
    }

    /// Whether nothing is unread.
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// The free space behind the unread bytes.
    pub fn space(&mut self) -> &mut [u8] {
        &mut self.data[self.end..]
    }

    /// The whole storage.
    pub fn bytes(&self) -> &[u8] {
        &self.data
    }

    /// The whole storage.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.data
    }

    /// Moves the unread bytes to `to`, which lies before them.
    pub fn shift(&mut self, to: usize) {
        let unread: Range<usize> = self.start..self.end;
        self.data.copy_within(unread, to);
        self.end = to + (self.end - self.start);
        self.start = to;
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        #[cfg(feature = "simulation")]
        let _ = TAKEN.try_with(|taken| taken.set(taken.get() - 1));
        let data = std::mem::take(&mut self.data);
        // At thread exit the pool may be gone before the last connection.
        let kept = FREE.try_with(|free| {
            if let Ok(mut free) = free.try_borrow_mut()
                && free.len() < KEPT
            {
                free.push(data);
                return true;
            }
            false
        });
        if !kept.unwrap_or(false) {
            memory::count(-(CAPACITY as isize));
        }
    }
}
