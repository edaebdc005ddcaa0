//! Requests of an upstream that wait while no server can take them (`queue`): first in, first out, over all workers.
//!
//! Only the first in the queue looks for a server, so that none is overtaken and none is woken in vain. A server's slot that is
//! given back calls it; when it has got a server or goes away, it calls the next.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// A queue.
#[derive(Default)]
pub struct Queue {
    line: Mutex<Line>,
    /// The length of `line`, for a look without the lock.
    waiting: AtomicUsize,
    overflows: AtomicU64,
}

#[derive(Default)]
struct Line {
    /// In the order of their tickets.
    waiters: VecDeque<Waiter>,
    last: u64,
}

struct Waiter {
    ticket: u64,
    /// It should look for a server.
    called: bool,
    waker: Option<Waker>,
}

/// What a queue has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct QueueCounts {
    /// Requests that wait.
    pub size: usize,
    /// Requests that may wait.
    pub max_size: usize,
    /// Requests that were refused because it was full.
    pub overflows: u64,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether requests wait: others that come have to wait behind them.
    pub fn is_waited_in(&self) -> bool {
        self.waiting.load(Relaxed) != 0
    }

    /// A place at the end; none if so many wait already.
    pub fn enter(self: &Arc<Queue>, most: usize) -> Option<Place> {
        let mut line = self.lock();
        if line.waiters.len() >= most {
            self.overflows.fetch_add(1, Relaxed);
            return None;
        }
        line.last += 1;
        let ticket = line.last;
        // The first one looks at once: a slot may have been given back before it was seen here.
        let called = line.waiters.is_empty();
        line.waiters.push_back(Waiter { ticket, called, waker: None });
        self.waiting.store(line.waiters.len(), SeqCst);
        // From here on either this request sees a slot that is given back, or who gives it back sees this request.
        fence(SeqCst);
        Some(Place { queue: Arc::clone(self), ticket })
    }

    /// A server can take a request again.
    pub fn call(&self) {
        fence(SeqCst);
        if self.is_waited_in() {
            Queue::call_first(&mut self.lock());
        }
    }

    fn call_first(line: &mut Line) {
        if let Some(first) = line.waiters.front_mut() {
            first.called = true;
            if let Some(waker) = &first.waker {
                waker.wake_by_ref();
            }
        }
    }

    /// What it has; `max_size` is the configuration's.
    pub fn counts(&self, max_size: usize) -> QueueCounts {
        QueueCounts { size: self.waiting.load(Relaxed), max_size, overflows: self.overflows.load(Relaxed) }
    }
}

/// A request's place in a queue, which it leaves when this is dropped.
pub struct Place {
    queue: Arc<Queue>,
    ticket: u64,
}

impl Place {
    /// Ready when it is first and should look for a server.
    pub fn poll_called(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut line = self.queue.lock();
        let at = line.waiters.partition_point(|waiter| waiter.ticket < self.ticket);
        let Some(waiter) = line.waiters.get_mut(at) else { return Poll::Ready(()) };
        if at == 0 && std::mem::take(&mut waiter.called) {
            return Poll::Ready(());
        }
        if !waiter.waker.as_ref().is_some_and(|known| known.will_wake(cx.waker())) {
            waiter.waker = Some(cx.waker().clone());
        }
        Poll::Pending
    }

    /// Whether it is first.
    pub fn is_first(&self) -> bool {
        self.queue.lock().waiters.front().is_some_and(|first| first.ticket == self.ticket)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut line = self.queue.lock();
        let at = line.waiters.partition_point(|waiter| waiter.ticket < self.ticket);
        line.waiters.remove(at);
        self.queue.waiting.store(line.waiters.len(), SeqCst);
        if at == 0 {
            // The place may have been called for more than it has used.
            Queue::call_first(&mut line);
        }
        if line.waiters.is_empty() {
            line.waiters.shrink_to(64);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use proptest::prelude::*;

    use super::*;

    fn is_called(place: &Place) -> bool {
        place.poll_called(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn the_first_is_called_once_for_each_slot() {
        let queue = Arc::new(Queue::default());
        let places: Vec<Place> = (0..3).filter_map(|_| queue.enter(3)).collect();
        assert!(queue.enter(3).is_none());
        assert_eq!(queue.counts(3), QueueCounts { size: 3, max_size: 3, overflows: 1 });
        let called = |places: &[Place]| places.iter().map(is_called).collect::<Vec<_>>();
        assert_eq!(called(&places), [true, false, false], "the first looks once more");
        assert_eq!(called(&places), [false; 3]);
        queue.call();
        assert_eq!(called(&places), [true, false, false]);
        let mut places = places;
        drop(places.remove(0));
        assert_eq!(called(&places), [true, false], "the next one looks too");
        drop(places.pop());
        queue.call();
        assert_eq!(called(&places), [true]);
        places.clear();
        assert!(!queue.is_waited_in());
        queue.call();
        assert_eq!(queue.counts(1).size, 0);
    }

    proptest! {
        /// Whatever comes and goes: the first is the one that came first, and the length is that of a list.
        #[test]
        fn a_queue_is_a_list(steps in prop::collection::vec((any::<bool>(), any::<prop::sample::Index>()), 0..60)) {
            let queue = Arc::new(Queue::default());
            let mut places: Vec<Place> = Vec::new();
            for (comes, which) in steps {
                match comes || places.is_empty() {
                    true => places.extend(queue.enter(10)),
                    false => drop(places.remove(which.index(places.len()))),
                }
                prop_assert_eq!(queue.counts(10).size, places.len());
                prop_assert!(places.len() <= 10);
                let first: Vec<bool> = places.iter().map(Place::is_first).collect();
                prop_assert!(first.iter().enumerate().all(|(index, first)| *first == (index == 0)));
            }
        }
    }

    /// Threads that take one of two slots, wait in the queue if there is none, and give it back: all get theirs, and
    /// no call is lost.
    #[test]
    fn no_call_is_lost_between_threads() {
        const ROUNDS: u32 = 2_000;
        let (queue, slots, most) = (Arc::new(Queue::default()), AtomicU32::new(2), AtomicU32::new(0));
        let take = || {
            let taken = slots.fetch_update(SeqCst, SeqCst, |free| free.checked_sub(1));
            if let Ok(free) = taken {
                most.fetch_max(3 - free, SeqCst);
            }
            taken.is_ok()
        };
        struct Unpark(std::thread::Thread);
        impl std::task::Wake for Unpark {
            fn wake(self: Arc<Self>) {
                self.0.unpark();
            }
        }
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
                    for _ in 0..ROUNDS {
                        if queue.is_waited_in() || !take() {
                            let Some(place) = queue.enter(100) else { panic!("the queue is full") };
                            loop {
                                if place.poll_called(&mut Context::from_waker(&waker)).is_ready() {
                                    if take() {
                                        break;
                                    }
                                } else {
                                    std::thread::park();
                                }
                            }
                        }
                        slots.fetch_add(1, SeqCst);
                        queue.call();
                    }
                });
            }
        });
        assert_eq!((queue.counts(0).size, slots.load(SeqCst)), (0, 2));
        assert!(most.load(SeqCst) <= 2);
    }
}
