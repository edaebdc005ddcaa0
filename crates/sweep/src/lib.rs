//! Sweeps of the simulator: a scenario with some of its values varied, the cross product of all values, algorithms, loads
//! and seeds.
//!
//! A [`Plan`] is what the user writes, a [`Sweep`] its runs. A [`Unit`] is one run as data, which any process performs
//! alike; its id is made of all its input, and the [`Record`] of its result bears it. The [`Journal`] keeps the records
//! as they come, so that a sweep goes on where it was interrupted, and the files of a finished sweep do not tell where or
//! in which order it was run. All algorithms of a point get the same requests from the same seed: the [`summary`] compares
//! them in pairs.

#![forbid(unsafe_code)]
// A write to a standard error that is closed or full panics in these.
#![deny(clippy::print_stderr, clippy::print_stdout)]

mod cells;
mod journal;
mod perform;
mod plan;
mod record;
pub mod report;
pub mod summary;
mod unit;

pub use cells::{Cell, Sweep};
pub use journal::Journal;
pub use perform::side_by_side;
pub use plan::Plan;
pub use record::Record;
pub use unit::Unit;
