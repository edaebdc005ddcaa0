//! The events to come, the earliest first.
//!
//! A ladder of two steps: the near events are a short sorted list, those after it lie in buckets of equal spans of time,
//! unsorted; what is later than all buckets lies in a heap of its own until the buckets are used up, and then is dealt
//! into new ones, as many and as wide as suits what is there. A bucket is sorted when its time comes. The cost of an event
//! does not grow with their number, and what is written at random places fits a processor's cache: the ends of the
//! buckets. Few events are one sorted list.
//!
//! After R. Brown, "Calendar queues" (CACM 1988), and Tang, Goh, Thng, "Ladder queue" (ACM TOMACS 2005).

use balanza_balancing::Nanos;

/// Up to so many events are one sorted list.
const FEW: usize = 192;
/// Events that a bucket is to hold when its time comes, and more than which it should not.
const SUITED: f64 = 32.0;
const CROWD: usize = 512;
const BUCKETS_MAX: usize = 1 << 15;

/// Events of 64 bits each. Equal times come in the order of the events' bits.
pub(crate) struct Calendar {
    /// The time in the high half; the earliest last.
    near: Vec<u128>,
    /// End of the near events' time.
    near_end: Nanos,
    buckets: Vec<Vec<u128>>,
    /// The bucket after the near events.
    next: usize,
    /// Time of bucket 0.
    begin: Nanos,
    /// A bucket spans 2^shift ns.
    shift: u32,
    /// End of the buckets' time.
    end: Nanos,
    far: Vec<u128>,
    /// Events taken since the buckets were dealt, and how many there were then.
    taken: usize,
    dealt: usize,
    /// Events in the buckets.
    bucketed: usize,
    /// Whether near events have come out of a bucket since [`Calendar::anticipated`] was called.
    fresh: bool,
}

impl Calendar {
    pub fn new() -> Calendar {
        Calendar {
            near: Vec::with_capacity(CROWD + 1),
            near_end: Nanos::MAX,
            buckets: Vec::new(),
            next: 0,
            begin: 0,
            shift: 0,
            end: Nanos::MAX,
            far: Vec::new(),
            taken: 0,
            dealt: 0,
            bucketed: 0,
            fresh: false,
        }
    }

    #[inline]
    pub fn add(&mut self, time: Nanos, event: u64) {
        let entry = u128::from(time) << 64 | u128::from(event);
        if time < self.near_end {
            let at = self.near.partition_point(|e| *e > entry);
            self.near.insert(at, entry);
            if self.near.len() > CROWD && self.may_deal() {
                self.gather();
                self.deal();
            }
        } else if time < self.end {
            self.bucketed += 1;
            self.buckets[((time - self.begin) >> self.shift) as usize].push(entry);
        } else {
            self.far.push(entry);
        }
    }

    /// When the next event is; `Nanos::MAX` if there is none.
    #[inline]
    pub fn time(&mut self) -> Nanos {
        match self.near.last() {
            Some(entry) => (entry >> 64) as Nanos,
            None => self.refill().map_or(Nanos::MAX, |entry| (entry >> 64) as Nanos),
        }
    }

    /// The next event.
    #[inline]
    pub fn take(&mut self) -> Option<u64> {
        if self.near.is_empty() {
            self.refill();
        }
        self.taken += 1;
        self.near.pop().map(|entry| entry as u64)
    }

    /// The near events, once after they have come out of a bucket.
    #[inline]
    pub fn anticipated(&mut self) -> Option<impl Iterator<Item = u64>> {
        std::mem::take(&mut self.fresh).then(|| self.near.iter().map(|entry| *entry as u64))
    }

    /// Makes the next bucket the near events.
    fn refill(&mut self) -> Option<u128> {
        while self.near.is_empty() {
            if self.next == self.buckets.len() {
                if self.far.is_empty() {
                    return None;
                }
                self.deal();
                continue;
            }
            if self.buckets[self.next].len() > CROWD && self.may_deal() {
                self.gather();
                self.deal();
                continue;
            }
            std::mem::swap(&mut self.near, &mut self.buckets[self.next]);
            self.bucketed -= self.near.len();
            self.next += 1;
            self.near_end = self.begin + ((self.next as Nanos) << self.shift);
            self.near.sort_unstable_by(|a, b| b.cmp(a));
            self.fresh = true;
        }
        self.near.last().copied()
    }

    /// Whether things are so different from when the buckets were dealt that it pays to deal anew.
    fn may_deal(&self) -> bool {
        let pending = self.near.len() + self.bucketed + self.far.len();
        pending > 2 * self.dealt || self.taken > pending
    }

    /// Makes all events far.
    fn gather(&mut self) {
        self.far.append(&mut self.near);
        for bucket in self.buckets.iter_mut().skip(self.next) {
            self.far.append(bucket);
        }
        self.bucketed = 0;
    }

    /// Deals the far events into buckets; there are no others.
    fn deal(&mut self) {
        let mut far = std::mem::take(&mut self.far);
        (self.dealt, self.taken) = (far.len(), 0);
        if far.len() <= FEW {
            far.sort_unstable_by(|a, b| b.cmp(a));
            std::mem::swap(&mut self.near, &mut far);
            (self.near_end, self.end, self.far, self.next) = (Nanos::MAX, Nanos::MAX, far, self.buckets.len());
            return;
        }
        // How close events are, by the earlier half of them.
        let half = far.len() / 2;
        let (earlier, middle, _) = far.select_nth_unstable(half);
        let first = earlier.iter().map(|e| (e >> 64) as Nanos).min().unwrap_or(0);
        let gap = ((*middle >> 64) as Nanos - first).max(1) as f64 / half as f64;
        self.shift = ((gap * SUITED).log2().max(0.0) as u32).min(58);
        // As much time as it takes to use up what is there, twice.
        let buckets = (far.len() as f64 * gap * 2.0 / (1u64 << self.shift) as f64) as usize;
        let buckets = buckets.clamp(8, BUCKETS_MAX);
        self.buckets.resize_with(buckets, Vec::new);
        (self.begin, self.next, self.near_end) = (first, 0, first);
        self.end = first.saturating_add((buckets as Nanos) << self.shift);
        far.retain(|entry| {
            let time = (entry >> 64) as Nanos;
            let later = time >= self.end;
            if !later {
                self.bucketed += 1;
                self.buckets[((time - first) >> self.shift) as usize].push(*entry);
            }
            later
        });
        self.far = far;
    }
}

#[cfg(test)]
mod tests {
    use std::cmp::Reverse;
    use std::collections::BinaryHeap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Whatever comes and goes, the order is a heap's.
        #[test]
        fn agrees_with_a_heap(
            phases in prop::collection::vec((0u64..2_000, 1u64..4, 0u32..40, any::<u64>()), 1..12),
        ) {
            let (mut calendar, mut heap) = (Calendar::new(), BinaryHeap::new());
            let (mut now, mut count) = (0, 0u64);
            for (steps, adds, scale, seed) in phases {
                let mut state = seed;
                for step in 0..steps {
                    for _ in 0..(if step % 3 == 0 { adds } else { 1 }) {
                        state = crate::random::mix(state.wrapping_add(0x9e37_79b9_7f4a_7c15));
                        let time = now + (state >> 20) % (1 << scale);
                        count += 1;
                        calendar.add(time, count);
                        heap.push(Reverse((time, count)));
                    }
                    if state % 5 < 4 {
                        let Reverse((time, event)) = heap.pop().expect("there are events");
                        prop_assert_eq!((calendar.time(), calendar.take()), (time, Some(event)));
                        now = time;
                    }
                }
            }
            while let Some(Reverse((time, event))) = heap.pop() {
                prop_assert_eq!((calendar.time(), calendar.take()), (time, Some(event)));
            }
            prop_assert_eq!((calendar.time(), calendar.take()), (Nanos::MAX, None));
        }
    }
}
