//! The block of an experiment that an upstream is in, and what its workers count of it.
//!
//! A request belongs to the arm and the phase in which its server was chosen, and counts when it has ended. So it keeps the
//! phase, a byte; the arm follows from the servers that it began with.

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use balanza_experiment::{Phase, Recorder, Times};
use balanza_net::clock::Nanos;

/// The phases, by their number.
pub const PHASES: [Phase; 3] = [Phase::Washout, Phase::First, Phase::Second];

/// What one worker counts in each phase.
type Counted = [Recorder; PHASES.len()];

/// A block, shared by its workers.
pub struct Running {
    /// The name of the arm.
    pub arm: Arc<str>,
    phase: AtomicU8,
    workers: Mutex<Vec<Arc<Counted>>>,
}

impl Running {
    /// A block that begins.
    pub fn new(arm: &str, phase: Phase) -> Arc<Running> {
        let running = Running { arm: arm.into(), phase: AtomicU8::new(0), workers: Mutex::default() };
        running.enter(phase);
        Arc::new(running)
    }

    /// The next phase begins.
    pub fn enter(&self, phase: Phase) {
        let number = PHASES.iter().position(|known| *known == phase).unwrap_or_default();
        self.phase.store(number as u8, Relaxed);
    }

    /// Whether all its requests have ended.
    pub fn is_over(&self) -> bool {
        let workers = self.workers.lock().unwrap_or_else(PoisonError::into_inner);
        workers.iter().flat_map(|worker| worker.iter()).all(|phase| phase.open() == 0)
    }

    /// What all workers have counted in a phase: times and failures.
    pub fn read(&self, phase: usize) -> (Times, u64) {
        let workers = self.workers.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let (mut times, mut failures) = (Times::default(), 0);
        for worker in workers {
            let (more, failed) = worker[phase].read();
            times.merge(&more);
            failures += failed;
        }
        (times, failures)
    }
}

/// A worker's part of a block.
pub struct Recording {
    block: Arc<Running>,
    counted: Arc<Counted>,
}

impl Recording {
    /// That of a worker which joins.
    pub fn new(block: &Arc<Running>) -> Recording {
        let counted = Arc::<Counted>::default();
        block.workers.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&counted));
        Recording { block: Arc::clone(block), counted }
    }

    /// Whether it is a part of this block.
    pub fn is_of(&self, block: &Arc<Running>) -> bool {
        Arc::ptr_eq(&self.block, block)
    }

    /// The arm that requests of a phase count for; none in the washout.
    pub fn arm(&self, phase: u8) -> Option<Arc<str>> {
        (PHASES.get(usize::from(phase)) != Some(&Phase::Washout)).then(|| Arc::clone(&self.block.arm))
    }

    /// A request begins. Returns the phase that it belongs to.
    #[inline]
    pub fn begin(&self) -> u8 {
        let phase = self.block.phase.load(Relaxed);
        if let Some(recorder) = self.counted.get(usize::from(phase)) {
            recorder.begin();
        }
        phase
    }

    /// A request that began in a phase does not count.
    pub fn forget(&self, phase: u8) {
        if let Some(recorder) = self.counted.get(usize::from(phase)) {
            recorder.forget();
        }
    }

    /// A request that began in a phase is over.
    #[inline]
    pub fn record(&self, phase: u8, time: Nanos, failed: bool) {
        if let Some(recorder) = self.counted.get(usize::from(phase)) {
            recorder.record(time, failed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_counts_in_the_phase_that_it_began_in() {
        let block = Running::new("least_conn", Phase::Washout);
        let (one, other) = (Recording::new(&block), Recording::new(&block));
        let begun = one.begin();
        block.enter(Phase::Second);
        assert!(!block.is_over(), "guards count those of the washout");
        one.record(begun, 5_000_000, false);
        let [later, lost] = [other.begin(), other.begin()];
        other.record(later, 7_000_000, true);
        assert!(!block.is_over());
        other.forget(lost);
        assert!(block.is_over());
        let read = |phase| {
            let (times, failures) = block.read(phase);
            (times.count(), failures)
        };
        assert_eq!([0, 1, 2].map(read), [(1, 0), (0, 0), (1, 1)]);
        assert!(one.is_of(&block) && !one.is_of(&Running::new("least_conn", Phase::Washout)));
    }
}
