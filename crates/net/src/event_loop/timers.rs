//! When the loop's tasks are to be woken.
//!
//! One timer of the runtime is set to the earliest of these moments, so that each costs a few words and no allocation.

use std::pin::Pin;
use std::task::{Context, Waker};
use std::time::Duration;

use tokio::time::{Instant, Sleep};

use crate::clock::{self, Nanos};

/// The place of a timer that is not set.
const UNSET: u32 = u32::MAX;

/// The timers of a thread: a heap that knows where each of them is.
#[derive(Default)]
pub(super) struct Timers {
    /// No moment is before that of its parent, which is at half its index.
    heap: Vec<(Nanos, u32)>,
    slots: Vec<Slot>,
    free: Vec<u32>,
}

struct Slot {
    /// Its place in the heap, or [`UNSET`].
    place: u32,
    waker: Option<Waker>,
}

impl Timers {
    /// A timer that is not set.
    pub fn add(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { place: UNSET, waker: None });
            (self.slots.len() - 1) as u32
        })
    }

    /// Forgets a timer. Returns its waker, to be dropped when nothing is borrowed any more.
    pub fn remove(&mut self, timer: u32) -> Option<Waker> {
        let waker = self.unset(timer);
        self.free.push(timer);
        waker
    }

    /// Sets a timer to a moment, instead of that which it was set to. Returns the waker that it had, to be dropped when
    /// nothing is borrowed any more.
    pub fn set(&mut self, timer: u32, at: Nanos, waker: Waker) -> Option<Waker> {
        let slot = &mut self.slots[timer as usize];
        let before = slot.waker.replace(waker);
        let place = match slot.place {
            UNSET => {
                self.heap.push((at, timer));
                self.heap.len() - 1
            }
            place => {
                self.heap[place as usize].0 = at;
                place as usize
            }
        };
        self.settle(place);
        before
    }

    /// The earliest moment that a timer is set to.
    pub fn next(&self) -> Option<Nanos> {
        self.heap.first().map(|(at, _)| *at)
    }

    /// The waker of a timer whose moment has come. It is not set any more.
    pub fn pop_due(&mut self, now: Nanos) -> Option<Waker> {
        let (at, timer) = *self.heap.first()?;
        if now < at {
            return None;
        }
        self.unset(timer)
    }

    fn unset(&mut self, timer: u32) -> Option<Waker> {
        let slot = &mut self.slots[timer as usize];
        let waker = slot.waker.take();
        let place = std::mem::replace(&mut slot.place, UNSET) as usize;
        if place != UNSET as usize {
            self.heap.swap_remove(place);
            if place < self.heap.len() {
                self.settle(place);
            }
        }
        waker
    }

    /// Moves an entry to where it belongs: up or down.
    fn settle(&mut self, mut place: usize) {
        let entry = self.heap[place];
        while place > 0 {
            let parent = (place - 1) / 2;
            if self.heap[parent].0 <= entry.0 {
                break;
            }
            self.put(place, self.heap[parent]);
            place = parent;
        }
        loop {
            let left = 2 * place + 1;
            let Some(&first) = self.heap.get(left) else { break };
            let (child, least) = match self.heap.get(left + 1) {
                Some(&right) if right.0 < first.0 => (left + 1, right),
                _ => (left, first),
            };
            if entry.0 <= least.0 {
                break;
            }
            self.put(place, least);
            place = child;
        }
        self.put(place, entry);
    }

    fn put(&mut self, place: usize, entry: (Nanos, u32)) {
        self.heap[place] = entry;
        self.slots[entry.1 as usize].place = place as u32;
    }
}

/// The runtime's timer, which ends the loop's sleep. One task sets it.
pub(super) struct RuntimeTimer {
    sleep: Pin<Box<Sleep>>,
    at: Nanos,
}

impl RuntimeTimer {
    /// One that is not set.
    pub fn new() -> RuntimeTimer {
        RuntimeTimer { sleep: Box::pin(tokio::time::sleep(Duration::ZERO)), at: Nanos::MAX }
    }

    /// Whether the moment has come that it was set to.
    pub fn has_rung(&self) -> bool {
        self.sleep.is_elapsed()
    }

    /// Has it ring at this moment or before: one that rings too early is set again then, and need not be moved whenever
    /// the first timer goes.
    pub fn set(&mut self, cx: &mut Context<'_>, at: Nanos) {
        if self.at <= at && !self.has_rung() {
            return;
        }
        self.at = at;
        // The runtime counts milliseconds: with one more, the moment has come when it rings.
        let wait = Duration::from_nanos(at.saturating_sub(clock::now())) + Duration::from_millis(1);
        self.sleep.as_mut().reset(Instant::now() + wait);
        if self.sleep.as_mut().poll(cx).is_ready() {
            cx.waker().wake_by_ref();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    use std::task::Wake;

    use proptest::prelude::*;

    use super::*;

    /// Counts how often it was woken.
    #[derive(Default)]
    struct Bell(AtomicUsize);

    impl Wake for Bell {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Add,
        Remove(usize),
        Set(usize, Nanos),
        Until(Nanos),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            2 => Just(Step::Add),
            1 => (0..40_usize).prop_map(Step::Remove),
            6 => (0..40_usize, 0..300_u64).prop_map(|(which, at)| Step::Set(which, at)),
            2 => (0..300_u64).prop_map(Step::Until),
        ]
    }

    proptest! {
        /// Each timer that is set fires once, at its last moment and not before; no other fires.
        #[test]
        fn timers_fire_when_they_are_due(steps in prop::collection::vec(step(), 0..200)) {
            let mut timers = Timers::default();
            let mut all: Vec<(u32, Arc<Bell>)> = Vec::new();
            let mut set: BTreeMap<u32, Nanos> = BTreeMap::new();
            for step in steps {
                match step {
                    Step::Add => {
                        let timer = timers.add();
                        prop_assert!(all.iter().all(|(other, _)| *other != timer));
                        all.push((timer, Arc::default()));
                    }
                    Step::Remove(which) if !all.is_empty() => {
                        let (timer, _) = all.swap_remove(which % all.len());
                        timers.remove(timer);
                        set.remove(&timer);
                    }
                    Step::Set(which, at) if !all.is_empty() => {
                        let (timer, bell) = &all[which % all.len()];
                        timers.set(*timer, at, Waker::from(Arc::clone(bell)));
                        set.insert(*timer, at);
                    }
                    Step::Until(now) => {
                        let heard = |(timer, bell): &(u32, Arc<Bell>)| (*timer, bell.0.load(Relaxed));
                        let before: BTreeMap<u32, usize> = all.iter().map(heard).collect();
                        while let Some(waker) = timers.pop_due(now) {
                            waker.wake();
                        }
                        for (timer, count) in all.iter().map(heard) {
                            let due = set.get(&timer).is_some_and(|at| *at <= now);
                            prop_assert_eq!(count - before[&timer], usize::from(due));
                        }
                        set.retain(|_, at| *at > now);
                    }
                    Step::Remove(_) | Step::Set(..) => {}
                }
                prop_assert_eq!(timers.next(), set.values().min().copied());
            }
        }
    }
}
