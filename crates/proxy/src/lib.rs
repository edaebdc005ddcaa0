//! The data plane: workers, HTTP/1.1 forwarding, static files, logs.
//!
//! Each worker is a thread with its own event loop and its own listening sockets; a connection stays on one worker.
//! Workers share the servers' states, the log files and the configuration, without locks. The host starts an [`Engine`]
//! with open sockets and log files, and gives it new configurations.

#![deny(unsafe_code)]
// A write to a standard error that is closed or full panics in these.
#![deny(clippy::print_stderr, clippy::print_stdout)]

mod access;
mod access_log;
mod api;
mod auth;
mod background;
mod body;
mod certificates;
mod client;
mod clients;
mod conditions;
mod connection;
mod dashboard;
mod dates;
mod desk;
mod discovery;
mod downstream;
mod empty_gif;
mod engine;
mod essential;
mod exchange;
mod fault;
mod filters;
mod follower;
mod health;
mod helper;
mod html;
mod insertion;
mod keyval;
mod limits;
mod listing;
mod lists;
mod log;
mod lookup;
mod metrics;
mod names;
mod outside;
mod paths;
mod phases;
mod ports;
mod preamble;
mod processors;
pub mod proxy_protocol;
mod random;
mod ranges;
mod reading;
mod real_ip;
mod reports;
mod response;
mod running_config;
mod secure;
mod servers;
#[cfg(test)]
mod simulation;
mod source_condition;
mod ssi;
mod stapling;
mod static_files;
mod step;
mod stream;
mod stub_status;
mod temporary;
mod thread;
mod trace_context;
mod traces;
mod undecided;
mod upstream;
mod values;
mod variables;
mod watchdog;
mod worker;

pub use auth::htpasswd;
pub use engine::{Engine, Setup};
pub use limits::Decisions;
pub use metrics::{Attempts, Connections, Requests, Times};
pub use reports::agent;
pub use servers::health::{HealthCounts, Standing};
pub use servers::queue::QueueCounts;
pub use ssi::parser as page_commands;
pub use stream::rdp;

/// What the Server field says.
pub const VERSION: &str = concat!("balanza/", env!("CARGO_PKG_VERSION"));
