//! Follows one source: asks it again after a failure, with growing pauses.

use std::hash::{BuildHasher as _, Hasher as _};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::sink::Sink;

/// The first pause after a failure.
const PAUSE_MIN: Duration = Duration::from_millis(500);
/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// A source is not asked from the beginning more often.
pub const LEAST: Duration = Duration::from_secs(1);

/// A source of servers.
pub trait Discovery {
    /// Asks the source from the beginning and tells `to` of all its servers, at first and whenever they have changed. Ends
    /// in order when the source is to be asked from the beginning.
    ///
    /// # Errors
    /// The source is lost, or its answer is wrong. The servers stay as they are.
    async fn follow(&mut self, to: &mut Sink) -> Result<(), String>;
}

/// Follows a source for ever.
pub async fn run(mut source: impl Discovery, mut to: Sink) {
    let mut pause = PAUSE_MIN;
    loop {
        let begun = Instant::now();
        to.begin();
        let ended = source.follow(&mut to).await;
        if to.is_answered() {
            pause = PAUSE_MIN;
        }
        match ended {
            Ok(()) => sleep((begun + LEAST).saturating_duration_since(Instant::now())).await,
            Err(why) => {
                to.lost(&why);
                sleep(jitter(pause)).await;
                pause = (pause * 2).min(PAUSE_MAX);
            }
        }
    }
}

/// From half of the time up to all of it: balancers that lost a source together do not come back together.
pub fn jitter(pause: Duration) -> Duration {
    let random = std::collections::hash_map::RandomState::new().build_hasher().finish();
    pause.mul_f64(0.5 + (random >> 11) as f64 / (1u64 << 54) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::discovery::sink::tests::sink;

    #[test]
    fn pauses_are_from_half_to_all_of_the_time() {
        let times: Vec<Duration> = (0..1000).map(|_| jitter(Duration::from_secs(8))).collect();
        assert!(times.iter().all(|time| (4..=8).contains(&time.as_secs())));
        assert!(times.iter().any(|time| time.as_secs_f64() < 4.5) && times.iter().any(|time| time.as_secs_f64() > 7.5));
    }

    /// Ends with an error or in order, and notes when it was asked.
    struct Script {
        answers: Vec<(bool, Result<(), String>)>,
        asked: std::rc::Rc<std::cell::RefCell<Vec<Instant>>>,
    }

    impl Discovery for Script {
        async fn follow(&mut self, to: &mut Sink) -> Result<(), String> {
            self.asked.borrow_mut().push(Instant::now());
            if self.answers.is_empty() {
                std::future::pending::<()>().await;
            }
            let (answers, end) = self.answers.remove(0);
            if answers {
                to.set(Vec::new()).unwrap();
            }
            end
        }
    }

    #[tokio::test(start_paused = true)]
    async fn pauses_grow_until_the_source_answers() {
        let failed = || (false, Err("refused".to_owned()));
        let mut answers: Vec<_> = (0..9).map(|_| failed()).collect();
        answers.extend([(true, Err("closed".to_owned())), (true, Ok(()))]);
        let asked = std::rc::Rc::<std::cell::RefCell<Vec<Instant>>>::default();
        let script = Script { answers, asked: std::rc::Rc::clone(&asked) };
        let (sink, _) = sink();
        let _ = tokio::time::timeout(Duration::from_secs(600), run(script, sink)).await;
        let asked = asked.borrow();
        let pauses: Vec<f64> = asked.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64()).collect();
        let bounds = [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0, 0.5];
        assert_eq!(pauses.len(), bounds.len() + 1);
        for (pause, bound) in pauses.iter().zip(bounds) {
            assert!(*pause >= bound / 2.0 - 0.002 && *pause <= bound + 0.002, "{pauses:?}");
        }
        assert!((pauses[10] - 1.0).abs() < 0.002, "a source that ends in order is not asked more often: {pauses:?}");
    }
}
