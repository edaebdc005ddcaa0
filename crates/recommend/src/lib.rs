//! Which algorithm for these servers: an answer from access logs, with evidence.
//!
//! [`read`] reads logs, [`fit`] finds what each server can do and how much work each request was, [`study`] simulates the
//! candidates on that model and decides. Here a log is never replayed: response times that were observed under one algorithm
//! are not those under another (Alomar et al., "CausalSim", NSDI 2023). [`requests`] is for the lab, which sends
//! the requests of a log again. No sockets, no clock.
//!
//! ```
//! use balanza_recommend::study::{Question, study};
//! use balanza_recommend::trial::Truth;
//! use balanza_simulator::Progress;
//!
//! // In place of a file: what a farm drawn at random writes.
//! let log = Truth::draw(7).log(4_000)?;
//! let study = study(&log, &Question { replications: 2, ..Question::default() }, &Progress::new())?;
//! println!("{}", balanza_recommend::report::text(&study, ""));
//! # Ok::<(), balanza_recommend::Error>(())
//! ```
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
pub mod report;
pub mod requests;
pub mod runs;
pub mod setting;
pub mod study;
pub mod traces;
pub mod trial;
pub mod values;
pub mod verdict;

pub use error::Error;
