//! The size of a zone, counted as NGINX's allocator counts it: as many states fit as in NGINX.

use std::sync::atomic::{AtomicUsize, Ordering};

const PAGE: usize = 4096;
/// What the allocator keeps for each page.
const PAGE_STATE: usize = 24;
/// What it keeps for itself, with the zone's own data: less than two pages.
const OWN: usize = PAGE + 512;

/// The memory of a zone.
pub struct Memory {
    capacity: usize,
    used: AtomicUsize,
}

impl Memory {
    /// Of a zone of this size.
    pub fn new(size: u64) -> Memory {
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        let pages = size.saturating_sub(OWN) / (PAGE + PAGE_STATE);
        Memory { capacity: pages * PAGE, used: AtomicUsize::new(0) }
    }

    /// How much there is.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Takes some, if there is so much left.
    pub fn reserve(&self, cost: usize) -> bool {
        let fits = |used: usize| used.checked_add(cost).filter(|used| *used <= self.capacity);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok()
    }

    /// Gives some back.
    pub fn release(&self, cost: usize) {
        self.used.fetch_sub(cost, Ordering::Relaxed);
    }

    #[cfg(test)]
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }
}

/// What a piece of so many bytes takes: a power of two, or whole pages.
pub fn cost(bytes: usize) -> usize {
    if bytes > PAGE / 2 { bytes.div_ceil(PAGE) * PAGE } else { bytes.next_power_of_two().max(8) }
}

/// How many parts a zone has, each with a lock of its own: many in a large one, so that workers seldom wait.
pub fn parts(capacity: usize) -> usize {
    const STATES: usize = 512 * 128;
    (capacity / STATES).next_power_of_two().clamp(1, 64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_megabyte_has_8_thousand_states_of_128_bytes_and_16_thousand_of_64() {
        let memory = Memory::new(1 << 20);
        assert_eq!(memory.capacity() / cost(80 + 4), 8096);
        assert_eq!(memory.capacity() / cost(36 + 4), 16_192);
        assert_eq!((cost(2049), cost(65_615)), (4096, 69_632));
    }
}
