//! Load-balancing algorithms as a pure library.
//!
//! Nothing here reads a clock, draws from a global generator, opens a socket, logs, blocks or, while picking, allocates:
//! time and seeds are arguments. The same code picks servers in the proxy, in simulations and in benchmarks. The only locks
//! are in [`overload`], where they are taken when a server is ejected or returns, and when a request is retried.
//!
//! A [`Fleet`] is one membership of servers with the tables of one algorithm; worker threads share it. Each worker has
//! a [`Driver`], which decides in one place which servers are eligible, asks the algorithm, and updates each server's
//! [`ServerState`]. [`registry`] lists the algorithms.
//!
//! ```
//! use std::sync::Arc;
//! use balanza_balancing::{ServerState, Driver, Fleet, Outcome, Report, ServerSpec, Start, Tried, registry};
//!
//! let spec = registry::Spec::new(registry::find("round_robin").unwrap(), &[])?;
//! let servers = ["a:80", "b:80"].map(|name| (ServerSpec::new(name), Arc::new(ServerState::new())));
//! let fleet = Arc::new(Fleet::new(&spec, servers.into())?);
//! let mut driver = Driver::new(fleet.clone(), 1, Start::default());
//!
//! let mut tried = Tried::default();
//! let member = driver.pick(0, b"", &mut tried)?;
//! assert_eq!(&*fleet.server(member).name, "a:80");
//! driver.complete(5_000_000, member, &Report { outcome: Outcome::Success, ..Report::default() });
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]
// A write to a standard error that is closed or full panics in these.
#![deny(clippy::print_stderr, clippy::print_stdout)]

mod algorithms;
mod averages;
mod client_table;
mod crc32;
mod driver;
pub mod external;
mod fleet;
mod key;
pub mod overload;
mod policy;
mod reason;
pub mod registry;
mod report;
mod reports;
mod rng;
mod server;
mod server_state;
mod shadow;
mod spec;
mod structures;
mod tier;
mod tried;

pub use client_table::ClientTable;
pub use driver::{Candidate, Driver, Effect, NoServer};
pub use fleet::{Fleet, FleetError, Group};
pub use key::key_hash;
pub use policy::{Basis, Start};
pub use reason::Reason;
pub use report::{Outcome, Report};
pub use rng::Rng;
pub use server::{Member, Refused, ServerSpec};
pub use server_state::{Authority, ServerState};
pub use shadow::{Choice, Decided, Shadow, ShadowCounts, ShadowDriver};
pub use structures::latencies::Latencies;
pub use tried::Tried;

/// Nanoseconds on a monotonic clock of the caller's; only differences count.
pub type Nanos = u64;
