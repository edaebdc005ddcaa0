//! Counts by status, for as many different ones as a server usually has.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// How many different statuses are counted.
const ROOM: usize = 16;
/// The status stands above so many bits, the count in them.
const SHIFT: u32 = 54;

/// Counts by status: one thread writes, any thread reads. The first ones that are seen have a place.
#[derive(Default)]
pub struct Codes([AtomicU64; ROOM]);

impl Codes {
    /// Counts a response of this status.
    pub fn count(&self, status: u16) {
        for place in &self.0 {
            let value = place.load(Relaxed);
            if value == 0 {
                return place.store(u64::from(status) << SHIFT | 1, Relaxed);
            }
            if value >> SHIFT == u64::from(status) {
                return place.store(value + 1, Relaxed);
            }
        }
    }

    /// Adds them to a sum.
    pub fn add_to(&self, sum: &mut BTreeMap<u16, u64>) {
        for value in self.0.iter().map(|place| place.load(Relaxed)).take_while(|value| *value != 0) {
            *sum.entry((value >> SHIFT) as u16).or_default() += value & ((1 << SHIFT) - 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_sixteen_statuses_are_counted() {
        let codes = Codes::default();
        for _ in 0..3 {
            (200..220).for_each(|status| codes.count(status));
        }
        let mut sum = BTreeMap::from([(200, 1)]);
        codes.add_to(&mut sum);
        let expected = (200..216).map(|status| (status, if status == 200 { 4 } else { 3 }));
        assert_eq!(sum, expected.collect());
    }
}
