//! Host names to addresses while a program runs: a caching DNS client.
//!
//! A [`Resolver`] asks the name servers of its [`Settings`] in rotation, by UDP and, for large answers, by TCP. Answers are
//! kept for their time to live. It belongs to one thread: its futures are to run in a tokio runtime there. `hickory-proto`
//! has the wire format.

mod cache;
mod exchange;
mod message;
mod resolver;
mod service;
mod statistics;

pub use message::{Kind, Question, Reading, Response, Target};
pub use resolver::{Addresses, Failure, Resolver, Settings};
pub use service::{Place, Places};
pub use statistics::{Counts, Statistics};
