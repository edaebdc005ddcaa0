//! Switchback experiments: two or more algorithms in alternation on the same servers, and what follows from it.
//!
//! Requests of one algorithm influence those of another on the same servers, so that an experiment that divides requests
//! compares nothing. A switchback experiment gives each algorithm (an arm) all requests for a while (a block).
//! [`Schedule`] says which arm runs in which block, a [`Block`] is what one measured, [`Guards`] end the experiment if an arm
//! does harm. The caller has the clock, changes the algorithm, and counts.
//!
//! ```
//! use balanza_experiment::{Block, Guards, Phase, Schedule};
//!
//! const SECOND: u64 = 1_000_000_000;
//! let schedule = Schedule::new(2, 7, 60 * SECOND, 10 * SECOND, 30)?;
//! let place = schedule.at(75 * SECOND).expect("within the planned hour");
//! assert_eq!((place.block, place.round, place.phase), (1, 0, Phase::First));
//!
//! let mut block = Block::new(place.block, place.arm);
//! block.part_mut(place.phase).add(12_000_000, false);
//! let guards = Guards { errors: Some(0.02), ..Guards::default() };
//! assert_eq!(guards.judge(&block.whole(), None), None);
//! # Ok::<(), balanza_experiment::ScheduleError>(())
//! ```
#![forbid(unsafe_code)]
// A write to a standard error that is closed or full panics in these.
#![deny(clippy::print_stderr, clippy::print_stdout)]

mod analysis;
mod block;
mod guard;
mod schedule;
mod times;

pub use analysis::{Comparison, Effect, Verdict, compare};
pub use block::{Block, Fullness, Part};
pub use guard::{Breach, Guards, Limit};
pub use schedule::{MAX_ARMS, Phase, Place, Schedule, ScheduleError};
pub use times::{Recorder, Times};
