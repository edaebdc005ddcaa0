//! A bounded first-in first-out queue of numbers that any thread may use, without locks.
//!
//! Each place holds a number and, in the same word, which thread may use it next: the one that puts something in at
//! position p, or the one that takes it. Source: D. Vyukov's bounded MPMC queue.

use std::sync::atomic::{
    AtomicU32, AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};

/// Positions on a cache line of their own, since different threads change them.
#[derive(Default)]
#[repr(align(64))]
struct Position(AtomicU32);

pub(crate) struct Queue {
    /// Turn << 32 | number.
    places: Box<[AtomicU64]>,
    head: Position,
    tail: Position,
}

impl Queue {
    /// A queue for at least `capacity` numbers, up to 2^31.
    pub fn new(capacity: usize) -> Queue {
        let size = capacity.next_power_of_two().clamp(2, 1 << 31);
        let place = |turn: usize| AtomicU64::new((turn as u64) << 32);
        Queue { places: (0..size).map(place).collect(), head: Position::default(), tail: Position::default() }
    }

    /// How many numbers there are, roughly while others use it.
    #[inline]
    pub fn len(&self) -> usize {
        let len = self.tail.0.load(Relaxed).wrapping_sub(self.head.0.load(Relaxed));
        (len as usize).min(self.places.len())
    }

    #[inline]
    fn place(&self, position: u32) -> &AtomicU64 {
        &self.places[position as usize & (self.places.len() - 1)]
    }

    /// Puts a number in; false if it is full.
    #[inline]
    pub fn push(&self, number: u32) -> bool {
        let mut tail = self.tail.0.load(Relaxed);
        loop {
            let turn = (self.place(tail).load(Acquire) >> 32) as u32;
            match turn.wrapping_sub(tail) as i32 {
                0 => match self.tail.0.compare_exchange_weak(tail, tail.wrapping_add(1), AcqRel, Relaxed) {
                    Ok(_) => break,
                    Err(now) => tail = now,
                },
                ..0 => return false,
                _ => tail = self.tail.0.load(Relaxed),
            }
        }
        self.place(tail).store(u64::from(tail.wrapping_add(1)) << 32 | u64::from(number), Release);
        true
    }

    /// Takes the oldest number out.
    #[inline]
    pub fn pop(&self) -> Option<u32> {
        let mut head = self.head.0.load(Relaxed);
        loop {
            let word = self.place(head).load(Acquire);
            match ((word >> 32) as u32).wrapping_sub(head.wrapping_add(1)) as i32 {
                0 => match self.head.0.compare_exchange_weak(head, head.wrapping_add(1), AcqRel, Relaxed) {
                    Ok(_) => {
                        let next = head.wrapping_add(self.places.len() as u32);
                        self.place(head).store(u64::from(next) << 32, Release);
                        return Some(word as u32);
                    }
                    Err(now) => head = now,
                },
                ..0 => return None,
                _ => head = self.head.0.load(Relaxed),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn agrees_with_a_list(capacity in 1usize..20, steps in prop::collection::vec(any::<Option<u32>>(), 0..300)) {
            let (queue, mut list) = (Queue::new(capacity), VecDeque::new());
            for step in steps {
                match step {
                    Some(number) => {
                        let room = list.len() < queue.places.len();
                        prop_assert_eq!(queue.push(number), room);
                        if room {
                            list.push_back(number);
                        }
                    }
                    None => prop_assert_eq!(queue.pop(), list.pop_front()),
                }
                prop_assert_eq!(queue.len(), list.len());
            }
        }
    }

    #[test]
    fn positions_wrap() {
        let queue = Queue::new(2);
        for word in [&queue.head.0, &queue.tail.0] {
            word.store(u32::MAX - 2, Relaxed);
        }
        for k in 0..2 {
            let position = (u32::MAX - 2).wrapping_add(k);
            queue.place(position).store(u64::from(position) << 32, Relaxed);
        }
        for number in 0..10 {
            assert!(queue.push(number) && queue.push(100) && !queue.push(7));
            assert_eq!((queue.pop(), queue.pop(), queue.pop()), (Some(number), Some(100), None));
        }
    }

    /// Four threads put in and take out: nothing is lost, nothing comes twice, and each thread's numbers keep their order.
    #[test]
    fn threads_lose_nothing() {
        const EACH: u32 = 50_000;
        let queue = Queue::new(64);
        let taken: Vec<Vec<u32>> = std::thread::scope(|scope| {
            let takers: Vec<_> = (0..2)
                .map(|_| {
                    scope.spawn(|| {
                        let mut mine = Vec::new();
                        while mine.len() < EACH as usize {
                            match queue.pop() {
                                Some(number) => mine.push(number),
                                None => std::thread::yield_now(),
                            }
                        }
                        mine
                    })
                })
                .collect();
            for thread in 0..2 {
                let queue = &queue;
                scope.spawn(move || {
                    for number in 0..EACH {
                        while !queue.push(thread * EACH + number) {
                            std::thread::yield_now();
                        }
                    }
                });
            }
            takers.into_iter().map(|taker| taker.join().unwrap()).collect()
        });
        for mine in &taken {
            for thread in 0..2 {
                let of_thread: Vec<_> = mine.iter().filter(|number| **number / EACH == thread).collect();
                assert!(of_thread.is_sorted());
            }
        }
        let mut all = taken.concat();
        all.sort_unstable();
        assert!(all.into_iter().eq(0..2 * EACH));
    }
}
