//! Discrete-event simulation of load balancing in virtual time, with the product's own algorithms.
//!
//! A [`Scenario`] says what is simulated, [`run`] simulates it, [`result`] has what comes out. The same seed gives the
//! same numbers. Requests, services and choices have random streams of their own, so that all algorithms of a scenario
//! see the same requests, with the same work, at the same times.
//!
//! ```
//! use balanza_simulator::{Progress, Scenario, run};
//!
//! let scenario = Scenario::parse(
//!     r#"
//!     algorithms = ["random", "two_choices"]
//!     loads = [0.9]
//!     replications = 2
//!     run.requests = 20_000
//!     [[servers]]
//!     count = 10
//!     "#,
//! )?;
//! let comparison = run(&scenario, ".".as_ref(), &Progress::new())?;
//! let [random, two_choices] = &comparison.points[0].runs[..] else { panic!("two algorithms") };
//! assert!(two_choices.mean_time_in_system < random.mean_time_in_system);
//! # Ok::<(), balanza_simulator::Error>(())
//! ```
#![forbid(unsafe_code)]
// A write to a standard error that is closed or full panics in these.
#![deny(clippy::print_stderr, clippy::print_stdout)]

pub mod advice;
pub mod bins;
mod calendar;
mod engine;
mod error;
mod experiment;
pub mod gallery;
mod helper;
mod model;
mod prepare;
mod progress;
mod random;
pub mod report;
pub mod result;
pub mod scenario;
mod statistics;

pub use error::Error;
pub use experiment::{Extent, at_once, extent, run, run_traces};
pub use model::arrivals::Line;
pub use prepare::{Trace, algorithm};
pub use progress::Progress;
pub use scenario::Scenario;
pub use statistics::intervals::mean_and_ci95;
