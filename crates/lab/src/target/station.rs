//! A queue with k workers in virtual time: pure data, time is an argument.
//!
//! When requests start and end is computed, never observed: in the order of arrival (`Fifo`) a request starts when it
//! arrives or when a worker becomes free, whichever is later, and ends its work later. A caller that looks late
//! learns late of an end, but no end depends on the time of a look, and lateness does not add up to lost capacity.
//!
//! All requests at work progress at one speed, so there is one clock of progress: a request that starts at progress p
//! with work w ends at progress p + w, whatever the speed does meanwhile. A heap ordered by that makes each event cost
//! O(log n), in `Fifo` as in `Sharing` (egalitarian processor sharing; the construction of virtual time is that of
//! generalised processor sharing, Parekh and Gallager 1993).

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BinaryHeap};

use clap::ValueEnum;

use super::credits::Bucket;

/// How requests share the workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Discipline {
    /// A worker does one request at a time, in the order of arrival
    #[default]
    Fifo,
    /// All requests progress at once and equally, as threads on k processors
    Sharing,
}

/// What happened to a request, and when, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Event {
    /// Its work began.
    Started(u64),
    /// Its work ended at this time.
    Ended(u64, f64),
}

/// The queue. Times and work are in seconds.
#[derive(Debug)]
pub(super) struct Station {
    discipline: Discipline,
    workers: usize,
    bucket: Option<Bucket>,
    /// Time of the last event; while no request is at work it stays where the last work ended.
    clock: f64,
    /// Work done by then for a request that would have been at work since the beginning.
    progress: f64,
    active: BinaryHeap<Reverse<Active>>,
    /// Work of those that wait, by number: in the order of arrival.
    waiting: BTreeMap<u64, f64>,
    numbers: u64,
}

/// A request at work: it ends when the progress reaches `end`.
#[derive(Debug, PartialEq)]
struct Active {
    end: f64,
    number: u64,
}

impl Eq for Active {}

impl Ord for Active {
    fn cmp(&self, other: &Self) -> Ordering {
        self.end.total_cmp(&other.end).then(self.number.cmp(&other.number))
    }
}

impl PartialOrd for Active {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Station {
    /// A queue of so many workers, from time 0 on.
    pub(super) fn new(discipline: Discipline, workers: usize, bucket: Option<Bucket>) -> Self {
        Self {
            discipline,
            workers,
            bucket,
            clock: 0.0,
            progress: 0.0,
            active: BinaryHeap::new(),
            waiting: BTreeMap::new(),
            numbers: 0,
        }
    }

    /// A request with so much work arrives; returns its number. What happens until then, and its start if it need not
    /// wait, are added to `events`.
    ///
    /// A time before the last event is allowed: a request that had arrived already when a worker became free, but is
    /// reported only now. In `Fifo` it ends when it would have ended.
    pub(super) fn arrive(&mut self, at: f64, work: f64, events: &mut Vec<Event>) -> u64 {
        self.advance(at, events);
        let number = self.numbers;
        self.numbers += 1;
        match self.discipline {
            Discipline::Fifo if self.active.len() >= self.workers => {
                self.waiting.insert(number, work);
            }
            discipline => {
                // The last work may have ended while no other request was there: the clock still shows that time.
                self.pass(at);
                let missed = match discipline {
                    Discipline::Fifo => (self.clock - at) * self.speed(),
                    Discipline::Sharing => 0.0,
                };
                self.active.push(Reverse(Active { end: self.progress - missed + work, number }));
                events.push(Event::Started(number));
            }
        }
        number
    }

    /// A request goes away. One that waits gives up its place; work that was begun goes on to its end. Returns whether it
    /// waited.
    pub(super) fn leave(&mut self, number: u64) -> bool {
        self.waiting.remove(&number).is_some()
    }

    /// Adds to `events` what happens until `time`, in order.
    pub(super) fn advance(&mut self, time: f64, events: &mut Vec<Event>) {
        while let Some((at, what)) = self.next()
            && at <= time
        {
            self.pass(at);
            match what {
                Next::Empty => self.bucket.iter_mut().for_each(Bucket::empty),
                Next::End => {
                    let Some(Reverse(ended)) = self.active.pop() else { return };
                    if ended.end > self.progress {
                        self.progress = ended.end;
                    }
                    events.push(Event::Ended(ended.number, at));
                    if let Some((number, work)) = self.waiting.pop_first() {
                        self.active.push(Reverse(Active { end: ended.end + work, number }));
                        events.push(Event::Started(number));
                    }
                }
            }
        }
    }

    /// When something happens next, if no request arrives: the latest moment to look again.
    pub(super) fn due(&self) -> Option<f64> {
        self.next().map(|(at, _)| at)
    }

    fn next(&self) -> Option<(f64, Next)> {
        let Reverse(first) = self.active.peek()?;
        let end = self.clock + (first.end - self.progress) / self.speed();
        let empty =
            self.bucket.as_ref().and_then(|bucket| bucket.empty_in(self.busy())).map(|after| self.clock + after);
        match empty {
            Some(empty) if empty < end => Some((empty, Next::Empty)),
            _ => Some((end, Next::End)),
        }
    }

    /// Time passes in which nothing happens.
    fn pass(&mut self, to: f64) {
        let seconds = to - self.clock;
        if seconds > 0.0 {
            self.progress += seconds * self.speed();
            let busy = self.busy();
            self.bucket.iter_mut().for_each(|bucket| bucket.pass(seconds, busy));
            self.clock = to;
        }
    }

    /// Progress per second of each request at work.
    fn speed(&self) -> f64 {
        let share = match self.discipline {
            Discipline::Fifo => 1.0,
            Discipline::Sharing => (self.workers as f64 / self.active.len().max(1) as f64).min(1.0),
        };
        share * self.bucket.as_ref().map_or(1.0, Bucket::speed)
    }

    fn busy(&self) -> f64 {
        self.active.len().min(self.workers) as f64
    }
}

enum Next {
    /// The credits are spent.
    Empty,
    /// The first of those at work ends.
    End,
}

#[cfg(test)]
#[path = "station_tests.rs"]
mod tests;
