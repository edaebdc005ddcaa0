//! Balanza's processes, which behave as NGINX's.
//!
//! A small process with one thread, the supervisor (NGINX's master process), loads the configuration, binds every
//! listening socket, opens every log file, writes the pid file, handles signals and starts one worker process that does
//! everything else with fewer rights. They communicate over a socket pair ([`link`], [`message`]). On a reload the
//! supervisor checks and binds the configuration before it sends it to the running worker. The worker loads the same
//! text again, from the [`Bundle`](balanza_config::Bundle) that the supervisor recorded, and opens no file.
//!
//! The data plane is behind the trait [`Engine`].

#![deny(unsafe_code)]
// A write to a standard error that is closed or full panics in these.
#![deny(clippy::print_stderr, clippy::print_stdout)]

mod changes;
mod children;
mod daemon;
mod engine;
mod files;
mod generation;
mod identity;
mod invocation;
mod json;
pub mod link;
pub mod listen;
mod load;
mod log;
pub mod message;
mod oneshot;
mod pidfile;
mod secrets;
mod signals;
mod single;
mod supervisor;
#[allow(unsafe_code)]
mod sys;
mod takeover;
mod temporary;
mod title;
mod upgrade;
mod worker;

pub use engine::{Engine, Setup, Start};
pub use invocation::Invocation;
pub use log::{Console, Log};
pub use oneshot::{Order, dump, send, test};
pub use supervisor::run;
pub use title::{arguments, is_nginx};
pub use worker::{is_worker, main as worker};

/// Something failed, and the log says what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failed;
