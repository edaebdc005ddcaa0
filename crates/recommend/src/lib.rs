//! Which algorithm for these servers: from access logs, with evidence.
#![forbid(unsafe_code)]
// A write to a standard error that is closed or full panics in these.
#![deny(clippy::print_stderr, clippy::print_stdout)]

pub mod block;
pub mod candidates;
pub mod check;
mod error;
pub mod farm;
pub mod fit;
pub mod format;
pub mod line;
pub mod log;
pub mod queue;
pub mod read;
pub mod runs;
pub mod setting;
pub mod study;
pub mod traces;
pub mod trial;
pub mod values;
pub mod verdict;

pub use error::Error;
