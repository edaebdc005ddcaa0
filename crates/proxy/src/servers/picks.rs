//! The last choices of servers, sampled: why requests went where they went.
//!
//! Each worker has a ring of its own. It looks at one choice in [`EVERY`] at most, so that an upstream with few requests
//! shows all of them and a busy one pays nothing that can be measured. The lock of a ring is taken by its worker, which
//! leaves a choice out rather than wait, and by the thread of the API.

use std::cell::Cell;
use std::fmt::{Display, Write as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use balanza_net::clock::{self, Nanos};

use super::membership::ServerId;

/// How often a worker looks at a choice.
pub const EVERY: Duration = Duration::from_millis(50);
/// How many choices of an upstream a worker keeps.
const KEPT: usize = 32;

/// A choice.
#[derive(Clone, Debug, Default)]
pub struct Pick {
    /// When, by the clock of this machine.
    pub time: Nanos,
    /// Which server.
    pub server: Option<ServerId>,
    /// `$upstream_pick_reason`.
    pub reason: String,
    /// How likely it was, if it was drawn at random.
    pub probability: Option<f64>,
    /// Its score, if the algorithm has scores.
    pub score: Option<f64>,
    /// The best of the others, and its score.
    pub next: Option<(ServerId, f64)>,
}

/// The last choices of one worker; places are used again.
#[derive(Default)]
struct Ring {
    picks: Vec<Pick>,
    at: usize,
}

/// The rings of all workers.
#[derive(Default)]
pub struct Picks(Mutex<Vec<Arc<Mutex<Ring>>>>);

impl Picks {
    /// The choices of all workers, the newest first.
    pub fn all(&self) -> Vec<Pick> {
        let rings = lock(&self.0).clone();
        let mut all: Vec<Pick> = rings.iter().flat_map(|ring| lock(ring).picks.clone()).collect();
        all.sort_by_key(|pick| std::cmp::Reverse(pick.time));
        all
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A worker's part.
pub struct Sampler {
    ring: Arc<Mutex<Ring>>,
    due: Cell<Nanos>,
}

impl Sampler {
    /// That of a worker. Those of workers that have ended go.
    pub fn new(picks: &Picks) -> Sampler {
        let mut rings = lock(&picks.0);
        rings.retain(|ring| Arc::strong_count(ring) > 1);
        let ring = Arc::<Mutex<Ring>>::default();
        rings.push(Arc::clone(&ring));
        Sampler { ring, due: Cell::new(0) }
    }

    /// Whether the next choice is to be looked at.
    #[inline]
    pub fn is_due(&self, now: Nanos) -> bool {
        now >= self.due.get()
    }

    /// Keeps a choice.
    pub fn add(
        &self,
        now: Nanos,
        server: ServerId,
        reason: impl Display,
        probability: Option<f64>,
        score: Option<f64>,
        next: Option<(ServerId, f64)>,
    ) {
        self.due.set(now.saturating_add(clock::nanos(EVERY)));
        let Ok(mut ring) = self.ring.try_lock() else { return };
        let ring = &mut *ring;
        if ring.picks.len() < KEPT {
            ring.picks.push(Pick::default());
        }
        let place = ring.at % KEPT;
        ring.at = place + 1;
        let Some(pick) = ring.picks.get_mut(place) else { return };
        (pick.time, pick.server, pick.probability) = (now, Some(server), probability);
        (pick.score, pick.next) = (score, next);
        pick.reason.clear();
        let _ = write!(pick.reason, "{reason}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_choices_are_kept_and_few_are_looked_at() {
        let picks = Picks::default();
        let sampler = Sampler::new(&picks);
        let mut looked = 0;
        let step = clock::nanos(EVERY) / 10;
        for nth in 0..1000 {
            let now = nth * step;
            if sampler.is_due(now) {
                looked += 1;
                sampler.add(now, ServerId::new(nth as u32), "least_conn", None, Some(nth as f64), None);
            }
        }
        assert_eq!(looked, 100);
        let all = picks.all();
        assert_eq!(all.len(), KEPT);
        assert!(all.windows(2).all(|pair| pair[0].time > pair[1].time));
        assert_eq!((all[0].time, all[0].score), (990 * step, Some(990.0)));
    }

    #[test]
    fn each_worker_has_a_ring_until_it_ends() {
        let picks = Picks::default();
        let (one, other) = (Sampler::new(&picks), Sampler::new(&picks));
        one.add(5, ServerId::new(1), "sticky", None, None, None);
        other.add(7, ServerId::new(2), "random", Some(0.5), None, None);
        assert_eq!(picks.all().iter().map(|pick| pick.reason.as_str()).collect::<Vec<_>>(), ["random", "sticky"]);
        drop(one);
        let _next = Sampler::new(&picks);
        assert_eq!(picks.all().len(), 1);
    }

    #[test]
    fn a_ring_that_is_read_is_left_out() {
        let picks = Picks::default();
        let sampler = Sampler::new(&picks);
        let held = Arc::clone(&sampler.ring);
        let reading = lock(&held);
        sampler.add(5, ServerId::new(1), "sticky", None, None, None);
        drop(reading);
        assert!(picks.all().is_empty() && !sampler.is_due(6));
    }
}
