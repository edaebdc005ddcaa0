//! One server as a queue: what it does with arrivals, and what its answers say of the work that they were.
//!
//! Both orders of service can be computed backwards. In order of arrival by `c` units: a request begins when fewer than
//! `c` of those before it are left, and all of their ends are known. Shared by `c` processors: how many requests were there
//! is known at all times, and with that the part of a processor that each had. So a hypothesis (an order and a `c`) gives
//! the work of each request, and if it is right, work does not depend on how many requests were there before it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The order of service of a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// First come, first served.
    Fifo,
    /// All at a time, with equal parts of the processors, and at most one each.
    Shared,
}

/// More than any server ever has at a time: no queue.
pub const UNLIMITED: u32 = 1 << 20;

/// A request at a server, in microseconds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Visit {
    /// When it comes. Visits are in this order.
    pub begin: f64,
    /// When it is answered.
    pub end: f64,
}

/// How many were there already when each came.
pub fn found(visits: &[Visit]) -> Vec<u32> {
    let mut ends: BinaryHeap<Reverse<u64>> = BinaryHeap::new();
    let key = |time: f64| Reverse(time.max(0.0) as u64);
    visits
        .iter()
        .map(|visit| {
            while ends.peek().is_some_and(|end| end.0 <= visit.begin.max(0.0) as u64) {
                ends.pop();
            }
            ends.push(key(visit.end));
            ends.len() as u32 - 1
        })
        .collect()
}

/// The work of each visit under a hypothesis, in microseconds; negative where the hypothesis is impossible.
pub fn work(order: Order, c: u32, visits: &[Visit]) -> Vec<f64> {
    match order {
        _ if c >= UNLIMITED => visits.iter().map(|visit| visit.end - visit.begin).collect(),
        Order::Fifo => fifo_work(c as usize, visits),
        Order::Shared => shared_work(f64::from(c), visits),
    }
}

/// Times that are not NaN as integers of the same order.
fn ordered(time: f64) -> i64 {
    (time * 16.0) as i64
}

fn fifo_work(c: usize, visits: &[Visit]) -> Vec<f64> {
    // The c latest ends so far; the earliest of them on top is when a unit is free.
    let mut ends: BinaryHeap<Reverse<i64>> = BinaryHeap::with_capacity(c + 1);
    let mut before = f64::NEG_INFINITY;
    let work = visits.iter().map(|visit| {
        let free = if ends.len() < c { f64::NEG_INFINITY } else { ends.peek().map_or(0.0, |end| end.0 as f64 / 16.0) };
        before = visit.begin.max(before).max(free);
        let work = visit.end - before;
        // An end before its beginning is impossible: go on as if it had begun when it ended.
        before = before.min(visit.end.max(visit.begin));
        ends.push(Reverse(ordered(visit.end)));
        if ends.len() > c {
            ends.pop();
        }
        work
    });
    work.collect()
}

fn shared_work(c: f64, visits: &[Visit]) -> Vec<f64> {
    let mut ends: Vec<(f64, u32)> = visits.iter().enumerate().map(|(i, visit)| (visit.end, i as u32)).collect();
    ends.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    let mut work = vec![0.0; visits.len()];
    let (mut now, mut done, mut there) = (0.0, 0.0, 0u32);
    let mut next_end = 0;
    let mut next = 0;
    while next_end < ends.len() {
        let (end, index) = ends[next_end];
        let begins = visits.get(next).is_some_and(|visit| visit.begin <= end);
        let time = if begins { visits[next].begin } else { end };
        if there > 0 {
            done += (time - now) * (c / f64::from(there)).min(1.0);
        }
        now = time;
        if begins {
            work[next] = done;
            there += 1;
            next += 1;
        } else {
            work[index as usize] = done - work[index as usize];
            there -= 1;
            next_end += 1;
        }
    }
    work
}

/// When each request is answered: arrivals in their order and their works, all in microseconds.
pub fn serve(order: Order, c: u32, arrivals: &[f64], work: &[f64]) -> Vec<f64> {
    match order {
        _ if c >= UNLIMITED => arrivals.iter().zip(work).map(|(at, work)| at + work).collect(),
        Order::Fifo => fifo(c as usize, arrivals, work),
        Order::Shared => shared(f64::from(c), arrivals, work),
    }
}

fn fifo(c: usize, arrivals: &[f64], work: &[f64]) -> Vec<f64> {
    let mut free: BinaryHeap<Reverse<i64>> = BinaryHeap::with_capacity(c + 1);
    let one = |(at, work): (&f64, &f64)| {
        let mut begin = *at;
        if free.len() == c {
            begin = begin.max(free.pop().map_or(0.0, |free| free.0 as f64 / 16.0));
        }
        let end = begin + work;
        free.push(Reverse(ordered(end)));
        end
    };
    arrivals.iter().zip(work).map(one).collect()
}

fn shared(c: f64, arrivals: &[f64], work: &[f64]) -> Vec<f64> {
    // By how much is done for each when they will be done.
    let mut there: BinaryHeap<(Reverse<i64>, u32)> = BinaryHeap::new();
    let mut ends = vec![0.0; arrivals.len()];
    let (mut now, mut done, mut next) = (0.0f64, 0.0f64, 0);
    while next < arrivals.len() || !there.is_empty() {
        let rate = (c / there.len().max(1) as f64).min(1.0);
        let first = there.peek().map(|(target, index)| (target.0 as f64 / 16.0, *index));
        let end = first.map(|(target, _)| now + (target - done).max(0.0) / rate);
        match (end, arrivals.get(next)) {
            (Some(end), at) if at.is_none_or(|at| end <= *at) => {
                done += (end - now) * rate;
                now = end;
                if let Some((_, index)) = there.pop() {
                    ends[index as usize] = now;
                }
            }
            (_, Some(at)) => {
                if !there.is_empty() {
                    done += (at - now) * rate;
                }
                now = *at;
                there.push((Reverse(ordered(done + work[next])), next as u32));
                next += 1;
            }
            (_, None) => break,
        }
    }
    ends
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Work computed backwards from the answers is the work that was done.
        #[test]
        fn backwards_is_the_inverse(
            gaps in prop::collection::vec((0u32..3_000, 1u32..5_000), 1..200),
            c in 1u32..6,
            shared in any::<bool>(),
        ) {
            let order = if shared { Order::Shared } else { Order::Fifo };
            let mut at = 0.0;
            let arrivals: Vec<f64> = gaps.iter().map(|(gap, _)| { at += f64::from(*gap); at }).collect();
            let works: Vec<f64> = gaps.iter().map(|(_, work)| f64::from(*work)).collect();
            let ends = serve(order, c, &arrivals, &works);
            let visits: Vec<Visit> = arrivals.iter().zip(&ends).map(|(begin, end)| Visit { begin: *begin, end: *end }).collect();
            for (found, work) in work(order, c, &visits).iter().zip(&works) {
                prop_assert!((found - work).abs() < 20.0, "{found} {work}");
            }
        }
    }

    #[test]
    fn two_units_and_two_processors() {
        let (arrivals, works) = ([0.0, 0.0, 0.0], [100.0, 200.0, 100.0]);
        assert_eq!(serve(Order::Fifo, 2, &arrivals, &works), [100.0, 200.0, 200.0]);
        // Three share two: each has two thirds until two are done at 150, then the last has one processor.
        assert_eq!(serve(Order::Shared, 2, &arrivals, &works), [150.0, 250.0, 150.0]);
        assert_eq!(serve(Order::Fifo, UNLIMITED, &arrivals, &works), [100.0, 200.0, 100.0]);
        let visits =
            [Visit { begin: 0.0, end: 10.0 }, Visit { begin: 5.0, end: 20.0 }, Visit { begin: 12.0, end: 13.0 }];
        assert_eq!(found(&visits), [0, 1, 1]);
    }
}
