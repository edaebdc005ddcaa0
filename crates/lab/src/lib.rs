//! Servers to balance, load to put on them, and a demo that shows both at work.
//!
//! - [`target`]: the workload server `balanza target`, a small HTTP/1.1 server whose cost for each request is known;
//! - [`demo`]: `balanza demo`, a balancer in front of three such servers, with a live picture of who got what.

#![forbid(unsafe_code)]
// A write to a standard error that is closed or full panics in these.
#![deny(clippy::print_stderr, clippy::print_stdout)]

pub mod certificate;
pub mod demo;
pub mod doctor;
pub mod environment;
pub mod expression;
pub mod load;
pub mod metrics;
pub mod plan;
mod ports;
pub mod process;
pub mod record;
pub mod report;
pub mod results;
pub mod runner;
pub mod servers;
pub mod signals;
pub mod statistics;
pub mod summary;
pub mod system;
pub mod target;
mod text;
pub mod tools;
pub mod units;
