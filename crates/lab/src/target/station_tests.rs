//! The queue against a second implementation that knows no virtual time, and against arithmetic.

use std::time::Duration;

use proptest::prelude::*;

use super::super::credits::Credits;
use super::*;

/// When each of these requests (arrival, work) ends.
fn ends(mut station: Station, requests: &[(f64, f64)]) -> Vec<f64> {
    let mut events = Vec::new();
    for (at, work) in requests {
        station.arrive(*at, *work, &mut events);
    }
    while let Some(due) = station.due() {
        station.advance(due, &mut events);
    }
    let mut ends = vec![f64::NAN; requests.len()];
    for event in events {
        if let Event::Ended(number, at) = event {
            ends[number as usize] = at;
        }
    }
    ends
}

/// The same by following everybody's remaining work from one event to the next.
fn followed(discipline: Discipline, workers: usize, mut bucket: Option<Bucket>, requests: &[(f64, f64)]) -> Vec<f64> {
    let mut ends = vec![f64::NAN; requests.len()];
    let (mut now, mut arrived) = (0.0, 0);
    let mut inside: Vec<(usize, f64)> = Vec::new();
    while arrived < requests.len() || !inside.is_empty() {
        let at_work = if discipline == Discipline::Fifo { inside.len().min(workers) } else { inside.len() };
        let busy = inside.len().min(workers) as f64;
        let speed = bucket.as_ref().map_or(1.0, Bucket::speed) * busy / at_work.max(1) as f64;
        let end = inside[..at_work].iter().map(|(_, left)| left / speed).fold(f64::INFINITY, f64::min);
        let arrival = requests.get(arrived).map_or(f64::INFINITY, |(at, _)| at - now);
        let empty = bucket.as_ref().and_then(|bucket| bucket.empty_in(busy)).unwrap_or(f64::INFINITY);
        let step = end.min(arrival).min(empty);
        now += step;
        inside[..at_work].iter_mut().for_each(|(_, left)| *left -= step * speed);
        bucket.iter_mut().for_each(|bucket| bucket.pass(step, busy));
        if step == empty {
            bucket.iter_mut().for_each(Bucket::empty);
        } else if step == arrival {
            inside.push((arrived, requests[arrived].1));
            arrived += 1;
        } else {
            let over = |left: f64| left <= 1e-12;
            inside.iter().filter(|(_, left)| over(*left)).for_each(|(number, _)| ends[*number] = now);
            inside.retain(|(_, left)| !over(*left));
        }
    }
    ends
}

fn same(ours: &[f64], theirs: &[f64]) -> bool {
    ours.iter().zip(theirs).all(|(a, b)| (a - b).abs() < 1e-6)
}

fn requests() -> impl Strategy<Value = Vec<(f64, f64)>> {
    proptest::collection::vec((0.0_f64..3.0, 0.001_f64..2.0), 1..40).prop_map(|gaps| {
        let mut at = 0.0;
        let arrival = |(gap, work)| {
            at += gap;
            (at, work)
        };
        gaps.into_iter().map(arrival).collect()
    })
}

fn discipline() -> impl Strategy<Value = Discipline> {
    prop_oneof![Just(Discipline::Fifo), Just(Discipline::Sharing)]
}

fn bucket() -> impl Strategy<Value = Option<Bucket>> {
    proptest::option::of((0_u64..6000, 0.0_f64..0.9, 0.05_f64..1.0).prop_map(|(size, rate, throttle)| {
        Bucket::new(Credits { size: Duration::from_millis(size), rate, throttle: throttle.max(rate) })
    }))
}

proptest! {
    #[test]
    fn ends_are_those_of_followed_work(
        discipline in discipline(), workers in 1_usize..5, bucket in bucket(), requests in requests(),
    ) {
        let ours = ends(Station::new(discipline, workers, bucket.clone()), &requests);
        let theirs = followed(discipline, workers, bucket, &requests);
        prop_assert!(same(&ours, &theirs), "{ours:?} {theirs:?}");
    }

    /// However often and however late anybody looks, the ends stay where they are.
    #[test]
    fn looking_changes_nothing(
        discipline in discipline(), workers in 1_usize..5, bucket in bucket(), requests in requests(),
        looks in proptest::collection::vec(0.0_f64..100.0, 0..20),
    ) {
        let undisturbed = ends(Station::new(discipline, workers, bucket.clone()), &requests);
        let mut station = Station::new(discipline, workers, bucket);
        let mut events = Vec::new();
        let mut seen = vec![f64::NAN; requests.len()];
        for (at, work) in &requests {
            for look in looks.iter().filter(|look| **look < *at) {
                station.advance(*look, &mut events);
            }
            station.arrive(*at, *work, &mut events);
        }
        station.advance(1e9, &mut events);
        for event in events {
            if let Event::Ended(number, at) = event {
                seen[number as usize] = at;
            }
        }
        prop_assert!(same(&undisturbed, &seen), "{undisturbed:?} {seen:?}");
    }

    /// A serial queue that somebody always waits for works without a gap, even if arrivals are reported late.
    #[test]
    fn reported_late_a_full_queue_loses_nothing(
        work in proptest::collection::vec(0.001_f64..2.0, 1..40), late in 0.0_f64..5.0, workers in 1_usize..4,
    ) {
        let queued: Vec<(f64, f64)> = work.iter().map(|work| (0.0, *work)).collect();
        let expected = ends(Station::new(Discipline::Fifo, workers, None), &queued);
        // As with a limit of connections: the next one is accepted when an end was noticed, late, and counts from that end.
        let mut station = Station::new(Discipline::Fifo, workers, None);
        let (mut free, mut seen, mut events) = (vec![0.0; workers], vec![f64::NAN; work.len()], Vec::new());
        let mut next = 0;
        loop {
            for since in std::mem::take(&mut free) {
                if let Some(work) = work.get(next) {
                    station.arrive(since, *work, &mut events);
                    next += 1;
                }
            }
            let Some(due) = station.due() else { break };
            station.advance(due + late, &mut events);
            for event in events.drain(..) {
                if let Event::Ended(number, at) = event {
                    seen[number as usize] = at;
                    free.push(at);
                }
            }
        }
        // With several workers a late look changes who gets which, never that each starts where another ended.
        let is_end = |time: f64| time.abs() < 1e-6 || seen.iter().any(|end| (end - time).abs() < 1e-6);
        prop_assert!(seen.iter().zip(&work).all(|(end, work)| is_end(end - work)), "{seen:?}");
        if workers == 1 {
            prop_assert!(same(&seen, &expected), "{seen:?} {expected:?}");
        }
    }
}

#[test]
fn two_equal_jobs_at_once_take_twice_as_long_when_they_share() {
    let both = [(0.0, 1.0), (0.0, 1.0)];
    assert!(same(&ends(Station::new(Discipline::Sharing, 1, None), &both), &[2.0, 2.0]));
    assert!(same(&ends(Station::new(Discipline::Sharing, 2, None), &both), &[1.0, 1.0]));
    assert!(same(&ends(Station::new(Discipline::Fifo, 1, None), &both), &[1.0, 2.0]));
    // A short one that comes in the middle of a long one: 1 s alone, 2 s shared, 1 s alone.
    let short = [(0.0, 3.0), (1.0, 1.0)];
    assert!(same(&ends(Station::new(Discipline::Sharing, 1, None), &short), &[4.0, 3.0]));
}

#[test]
fn credits_throttle_when_they_are_spent() {
    let bucket = Bucket::new(Credits { size: Duration::from_secs(9), rate: 0.1, throttle: 0.25 });
    let requests = [(0.0, 12.0), (0.0, 1.0), (40.0, 3.0)];
    // 10 s at full speed, 2 s of work in 8 s, the next 1 s in 4 s: 22. Idle until 40: 1.8 s of credit, which last 2 s.
    assert!(same(&ends(Station::new(Discipline::Fifo, 1, Some(bucket.clone())), &requests), &[18.0, 22.0, 46.0]));
    // Two workers spend twice as fast: 19 / 10 of a second for each.
    let credits = Credits { size: Duration::from_millis(1900), rate: 0.1, throttle: 0.25 };
    let two = Station::new(Discipline::Fifo, 2, Some(Bucket::new(credits)));
    assert!(same(&ends(two, &[(0.0, 2.0), (0.0, 2.0)]), &[5.0, 5.0]));
}

#[test]
fn who_leaves_gives_up_a_place_but_not_a_worker() {
    let mut station = Station::new(Discipline::Fifo, 1, None);
    let mut events = Vec::new();
    let [first, second, third] = [1.0, 10.0, 1.0].map(|work| station.arrive(0.0, work, &mut events));
    assert!(station.leave(second) && !station.leave(second));
    assert!(!station.leave(first), "its work goes on");
    station.advance(5.0, &mut events);
    let expected = [Event::Started(first), Event::Ended(first, 1.0), Event::Started(third), Event::Ended(third, 2.0)];
    assert_eq!(events, expected);
    assert_eq!(station.due(), None);
}

/// Mean time in the queue of M/M/1 under processor sharing, 1/(mu - lambda), which is that of first come, first served;
/// M/D/1 tells the two apart.
#[test]
fn times_in_the_queue_are_those_of_theory() {
    use rand::rngs::SmallRng;
    use rand::{RngExt, SeedableRng};
    let mut rng = SmallRng::seed_from_u64(11);
    let mut at = 0.0;
    let mut poisson = |_| {
        at -= (1.0 - rng.random::<f64>()).ln() / 0.7;
        (at, 1.0)
    };
    let requests: Vec<(f64, f64)> = (0..200_000).map(&mut poisson).collect();
    let mean = |discipline| {
        let ends = ends(Station::new(discipline, 1, None), &requests);
        ends.iter().zip(&requests).map(|(end, (at, _))| end - at).sum::<f64>() / requests.len() as f64
    };
    // M/D/1 at a load of 0.7: 1 + 0.7 / (2 x 0.3) in order of arrival, 1 / 0.3 when shared.
    let (fifo, sharing) = (mean(Discipline::Fifo), mean(Discipline::Sharing));
    assert!((fifo - 2.1667).abs() < 0.08, "{fifo}");
    assert!((sharing - 3.3333).abs() < 0.15, "{sharing}");
}
