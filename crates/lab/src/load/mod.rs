//! The lab's load generator: HTTP/1.1 from one thread, over connections of its own, timed by its own clock.
//!
//! **Closed loop** (`users`): each user sends, waits for the answer, thinks, and sends again; N users see N = X · (R + Z).
//! Times count from the moment of sending. Counted are the requests that end in the measured time, which begins after
//! the warm-up: also those that were sent in the warm-up, or else the slowest would be missing at its end. What is on
//! its way at the end is dropped, as Locust does. With a number of requests the load ends when so many have ended,
//! and no more than these are sent.
//!
//! **Open loop** (`rate`): requests are sent when they are meant to be, whatever became of earlier ones, and their times
//! count from that moment, so that a stall shows in all requests that it hit. Counted are the requests that are meant for the
//! measured time: all of them, each once. After the last the load waits for the answers, up to the time-out; the measured
//! time lasts until the last of these has ended, so that answers over time are what was served and not what was sent.
//! A log (`log`) is an open loop whose times, paths and methods are those of an access log.
//!
//! A delay that the client adds (`rtt`) is in front of and behind each request, half and half, and a part of its latency;
//! to the target it looks like a slow network. Connections are kept (`keep_alive`): each user has its own, an open loop takes
//! the one that was used last. If a used connection turns out to be closed before a byte of the answer has come, the
//! request goes once more over a new one. A user whose request failed without an answer waits 10 ms from its start.
//!
//! The generator watches itself: [`Measured::lag`] has how late it handled what was due or had arrived, and
//! [`Measured::cpu`] its processor time; [`invalid`] judges by them.

mod arrivals;
mod connection;
mod engine;
mod latency;
mod response;
mod schedule;
mod slots;
mod tally;
#[cfg(test)]
mod tests;
mod text;
mod timers;
mod trust;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use anyhow::{Context, ensure};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::plan;
use crate::record::Measured;

pub use latency::{PERCENTILES, Recorder};
pub use schedule::Schedule;
pub use trust::invalid;

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
    /// The requests of a load that is a log.
    pub schedule: Option<Arc<Schedule>>,
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

/// Puts the load on the target and blocks until it has ended; the calling thread is its only one. If [`Watch::stop`] ends
/// it, the result is what was measured until then.
///
/// Errors: a load that contradicts itself, or nothing left of its duration after the warm-up; an address that is not IPv4
/// although sources are given; no descriptors for the event loop.
pub fn run(spec: &Spec, watch: &Watch) -> anyhow::Result<Measured> {
    check(spec)?;
    let connections = spec.load.connections_max.or(spec.load.users).unwrap_or(u32::MAX);
    raise_descriptor_limit(u64::from(connections) + 64);
    engine::Engine::new(spec, watch).context("cannot begin the load: no event loop")?.run()
}

fn check(spec: &Spec) -> anyhow::Result<()> {
    let load = &spec.load;
    let name = &load.name;
    match (load.users, load.rate) {
        (None, None) if spec.schedule.is_some() => {}
        (Some(users), None) => ensure!(users > 0, "load \"{name}\": users must be 1 or more"),
        (None, Some(rate)) => {
            ensure!(rate.is_finite() && rate > 0.0, "load \"{name}\": the rate must be above 0, not {rate}");
        }
        _ => anyhow::bail!("load \"{name}\": give either users (a closed loop) or a rate (an open loop)"),
    }
    ensure!(
        load.duration.is_some() || load.requests.is_some(),
        "load \"{name}\": give a duration or a number of requests"
    );
    ensure!(load.requests != Some(0), "load \"{name}\": the number of requests must be 1 or more");
    if let Some(duration) = load.duration {
        ensure!(
            duration > load.warmup,
            "load \"{name}\": the warm-up leaves nothing of the duration, of which it is a part"
        );
    }
    if let Some(schedule) = &spec.schedule {
        let reaches = load.warmup.is_zero() || u128::from(schedule.length()) > load.warmup.0.as_nanos();
        ensure!(reaches, "load \"{name}\": the log ends before the warm-up does");
    }
    ensure!(!load.timeout.is_zero(), "load \"{name}\": the time-out must be above 0");
    ensure!(
        spec.sources.is_empty() || spec.target.is_ipv4(),
        "load \"{name}\": source addresses are IPv4, the target {} is not",
        spec.target
    );
    Ok(())
}

/// Allows as many descriptors as wanted, or as the system does; what that is not enough for shows as errors of the client.
fn raise_descriptor_limit(wanted: u64) {
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < wanted
    {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, wanted.min(hard).max(soft), hard);
    }
}
