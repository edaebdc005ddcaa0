//! The lab's load generator.

mod latency;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64};

use crate::plan;
use crate::record::Measured;

pub use latency::{PERCENTILES, Recorder};

/// What is sent where.
#[derive(Clone, Debug)]
pub struct Spec {
    /// Who gets it.
    pub target: SocketAddr,
    /// The `Host` field.
    pub host: String,
    /// Users or a rate, for how long.
    pub load: plan::Load,
    /// Addresses that connections come from, in turn; empty = what the kernel chooses. See [`sources`].
    pub sources: Vec<Ipv4Addr>,
    /// Of arrivals and pages.
    pub seed: u64,
}

/// A running load, seen and ended from another thread.
#[derive(Debug, Default)]
pub struct Watch {
    /// Set to end the load within 100 ms.
    pub stop: AtomicBool,
    /// Answered so far with a status below 400, warm-up included.
    pub answered: AtomicU64,
    /// Failed so far, warm-up included.
    pub failed: AtomicU64,
}

/// So many addresses of this machine, each in a network of its own for algorithms that look at three octets: 127.1.1.1,
/// 127.1.2.1, …
pub fn sources(count: u16) -> Vec<Ipv4Addr> {
    (0..count).map(|i| Ipv4Addr::new(127, 1 + (i / 250).min(253) as u8, (1 + i % 250) as u8, 1)).collect()
}

/// Puts the load on the target and blocks until it has ended; the calling thread is its only one.
///
/// Errors: a load that contradicts itself (neither users nor a rate, neither a duration nor a number of requests).
pub fn run(_spec: &Spec, _watch: &Watch) -> anyhow::Result<Measured> {
    anyhow::bail!("the load generator is not built in")
}
