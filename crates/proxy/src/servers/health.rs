//! What health checks have found out about a server.
//!
//! The thread that checks writes it; it outlives configurations and changes like the server's other state. A server takes
//! requests if none of the checks of its upstream says otherwise.

use std::sync::{Mutex, MutexGuard, PoisonError};

use balanza_balancing::{Authority, ServerState};
use balanza_config::model::Checked;

/// What a server is for health checks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum Standing {
    /// No check says otherwise.
    #[default]
    Healthy,
    /// A mandatory check has not passed yet.
    Checking,
    /// A check has failed.
    Unhealthy,
}

/// What the checks of a server came to so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HealthCounts {
    /// Checks.
    pub checks: u64,
    /// Failed ones.
    pub fails: u64,
    /// How often it became unhealthy.
    pub unhealthy: u64,
    /// Whether the last check has passed.
    pub last_passed: bool,
    /// By all checks.
    pub standing: Standing,
}

/// The health of a server.
#[derive(Default)]
pub struct Health {
    record: Mutex<Record>,
}

#[derive(Default)]
struct Record {
    /// Counts the configurations, so that a check under an earlier one says nothing.
    epoch: u64,
    counts: HealthCounts,
    /// By the upstream's checks.
    courses: Vec<Course>,
}

/// What one check has found out.
#[derive(Clone, Copy)]
struct Course {
    standing: Standing,
    /// The last result, and how often it has come in a row.
    last: Option<bool>,
    row: u32,
}

/// How a check judges.
#[derive(Clone, Copy)]
pub struct Rule {
    /// `fails=`.
    pub fails: u32,
    /// `passes=`.
    pub passes: u32,
}

impl Health {
    fn lock(&self) -> MutexGuard<'_, Record> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The checks of the upstream are these from now on. What is known of the server holds on; after a reload a mandatory
    /// check begins anew, unless it is persistent.
    pub fn begin(&self, state: &ServerState, checks: &[Checked], reloaded: bool) {
        let mut record = self.lock();
        if checks.is_empty() && record.courses.is_empty() {
            return;
        }
        record.epoch += u64::from(reloaded);
        let course = |(index, check): (usize, &Checked)| match record.courses.get(index) {
            Some(known) if !reloaded || !check.mandatory || check.persistent => Course { last: None, row: 0, ..*known },
            _ => {
                let standing = if check.mandatory { Standing::Checking } else { Standing::Healthy };
                Course { standing, last: None, row: 0 }
            }
        };
        record.courses = checks.iter().enumerate().map(course).collect();
        record.apply(state);
    }

    /// The configuration that checks begin under now.
    pub fn epoch(&self) -> u64 {
        self.lock().epoch
    }

    /// A check has passed or failed. Returns what the server is for this check, if that has changed. It is told to `state`.
    pub fn judge(&self, state: &ServerState, epoch: u64, check: usize, rule: Rule, passed: bool) -> Option<Standing> {
        let mut record = self.lock();
        if record.epoch != epoch || check >= record.courses.len() {
            return None;
        }
        record.counts.checks += 1;
        record.counts.fails += u64::from(!passed);
        record.counts.last_passed = passed;
        let course = &mut record.courses[check];
        course.row = if course.last == Some(passed) { course.row.saturating_add(1) } else { 1 };
        course.last = Some(passed);
        let enough = course.row >= if passed { rule.passes } else { rule.fails };
        let standing = if passed { Standing::Healthy } else { Standing::Unhealthy };
        if !enough || course.standing == standing {
            return None;
        }
        course.standing = standing;
        record.counts.unhealthy += u64::from(standing == Standing::Unhealthy);
        record.apply(state);
        Some(standing)
    }

    /// What the checks came to so far.
    pub fn counts(&self) -> HealthCounts {
        let record = self.lock();
        HealthCounts { standing: record.standing(), ..record.counts }
    }
}

impl Record {
    /// One check is enough.
    fn standing(&self) -> Standing {
        self.courses.iter().map(|course| course.standing).max().unwrap_or_default()
    }

    fn apply(&self, state: &ServerState) {
        state.set_down_by(Authority::HealthCheck, self.standing() != Standing::Healthy);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ONCE: Rule = Rule { fails: 1, passes: 1 };
    const PLAIN: Checked = Checked { mandatory: false, persistent: false };
    const MANDATORY: Checked = Checked { mandatory: true, persistent: false };
    const PERSISTENT: Checked = Checked { mandatory: true, persistent: true };

    #[test]
    fn a_mandatory_check_closes_a_server_until_it_passes() {
        let (health, state) = (Health::default(), ServerState::new());
        health.begin(&state, &[MANDATORY], false);
        assert_eq!((health.counts().standing, state.is_down()), (Standing::Checking, true));
        let rule = Rule { fails: 2, passes: 1 };
        assert_eq!(health.judge(&state, 0, 0, rule, false), None);
        assert_eq!((health.counts().standing, state.is_down()), (Standing::Checking, true));
        assert_eq!(health.judge(&state, 0, 0, rule, true), Some(Standing::Healthy));
        assert!(!state.is_down());
        // Another change of the servers leaves it alone.
        health.begin(&state, &[MANDATORY], false);
        assert!(!state.is_down());
        let expected =
            HealthCounts { checks: 2, fails: 1, unhealthy: 0, last_passed: true, standing: Standing::Healthy };
        assert_eq!(health.counts(), expected);
    }

    #[test]
    fn a_reload_keeps_what_it_should() {
        for (check, passed, down) in [
            (PLAIN, true, false),
            (PLAIN, false, true),
            (MANDATORY, true, true),
            (PERSISTENT, true, false),
            (PERSISTENT, false, true),
        ] {
            let (health, state) = (Health::default(), ServerState::new());
            health.begin(&state, &[check], false);
            health.judge(&state, 0, 0, ONCE, passed);
            health.begin(&state, &[check], true);
            assert_eq!(state.is_down(), down, "{check:?} {passed}");
            // A check that began before the reload says nothing any more.
            assert_eq!(health.judge(&state, 0, 0, ONCE, !passed), None);
            assert_eq!(state.is_down(), down, "{check:?} {passed}");
            assert_eq!(health.epoch(), 1);
        }
    }

    #[test]
    fn each_check_can_close_a_server_and_the_end_of_checks_opens_it() {
        let (health, state) = (Health::default(), ServerState::new());
        health.begin(&state, &[PLAIN, PLAIN], false);
        assert_eq!(health.judge(&state, 0, 1, ONCE, false), Some(Standing::Unhealthy));
        assert_eq!(health.judge(&state, 0, 0, ONCE, true), None);
        assert!(state.is_down());
        state.set_down(true);
        assert_eq!(health.judge(&state, 0, 1, ONCE, true), Some(Standing::Healthy));
        assert!(state.is_down(), "the operator has not said otherwise");
        state.set_down(false);
        assert!(!state.is_down());
        health.judge(&state, 0, 1, ONCE, false);
        health.begin(&state, &[], true);
        assert!(!state.is_down());
    }

    proptest! {
        /// The standing by its definition: it changes when the last results are all the same and enough.
        #[test]
        fn results_in_a_row_decide(results in prop::collection::vec(any::<bool>(), 0..40), fails in 1u32..4, passes in 1u32..4) {
            let (health, state) = (Health::default(), ServerState::new());
            health.begin(&state, &[PLAIN], false);
            let mut healthy = true;
            for (n, passed) in results.iter().enumerate() {
                health.judge(&state, 0, 0, Rule { fails, passes }, *passed);
                let needed = if *passed { passes } else { fails } as usize;
                if n + 1 >= needed && results[n + 1 - needed..=n].iter().all(|result| result == passed) {
                    healthy = *passed;
                }
                prop_assert_eq!(state.is_down(), !healthy);
            }
            let counts = health.counts();
            prop_assert_eq!(counts.checks, results.len() as u64);
            prop_assert_eq!(counts.fails, results.iter().filter(|passed| !**passed).count() as u64);
        }
    }
}
