//! One worker's view of a fleet: eligibility, reservation, bookkeeping.

use std::fmt;
use std::sync::Arc;

use crate::Nanos;
use crate::fleet::{Fleet, Level, Member};
use crate::policy::{Context, Policy};
use crate::rng::Rng;
use crate::tried::Tried;

/// How often a pick is repeated when another thread takes the last slot of the server chosen, before any server will do.
const RACES: usize = 16;

/// Which of the workers a driver belongs to. Worker 0 of 1 begins where NGINX begins; several workers begin at different
/// places, so that they do not all send their first requests to the first server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Start {
    /// 0-based.
    pub worker: usize,
    /// At least 1.
    pub workers: usize,
}

impl Default for Start {
    fn default() -> Start {
        Start { worker: 0, workers: 1 }
    }
}

/// How a request ended, for the server's account.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Outcome {
    /// The server did its work; its times enter the averages.
    Success,
    /// Counts towards `max_fails`: NGINX's `error`, `timeout`, `invalid_header` and the 5xx of `proxy_next_upstream`.
    Failure,
    /// Neither: the client went away, or a 403 or 404 sent the request elsewhere.
    #[default]
    Neutral,
}

/// What is known when a request to a server is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// How it ended.
    pub outcome: Outcome,
    /// From the choice of the server to the response's header.
    pub header_time: Option<Nanos>,
    /// From the choice of the server to the response's last byte, or to the end of a failed attempt. Only the times of
    /// successes enter the averages.
    pub last_byte_time: Option<Nanos>,
    /// Bytes of the response.
    pub bytes: u64,
}

/// What a completion changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Effect {
    /// The server has just been closed for its fail timeout: to be logged, once.
    pub disabled: bool,
}

/// No server is eligible: all are down, failed, full or have been tried.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("no live upstreams")]
pub struct NoServer;

/// One worker's instance of a fleet's algorithm.
pub struct Driver {
    fleet: Arc<Fleet>,
    /// One for each level.
    policies: Box<[Box<dyn Policy>]>,
    rng: Rng,
}

impl Driver {
    /// A driver for one worker thread. The same seed and the same calls give the same picks.
    pub fn new(fleet: Arc<Fleet>, seed: u64, start: Start) -> Driver {
        let mut rng = Rng::new(seed);
        let policies = fleet.plans().iter().map(|plan| plan.clone().policy(start, &mut rng)).collect();
        Driver { fleet, policies, rng }
    }

    /// The fleet.
    pub fn fleet(&self) -> &Arc<Fleet> {
        &self.fleet
    }

    /// Chooses a server for a request and takes a slot of it, to be given back with [`Driver::complete`].
    ///
    /// The server is eligible and not in `tried`, and is added to it. Backups are used when no primary can be, and once a
    /// request has gone to the backups it stays there, as in NGINX. `key` is what [`crate::registry::Entry::key`] says.
    ///
    /// Work: that of the algorithm; when many servers are closed, up to 64 looks more, then one scan for the first that
    /// is open.
    #[inline]
    pub fn pick(&mut self, now: Nanos, key: &[u8], tried: &mut Tried) -> Result<Member, NoServer> {
        while usize::from(tried.level) < self.policies.len() {
            let level = usize::from(tried.level);
            if let Some(index) = self.pick_of_level(now, key, tried, level) {
                let slots = &self.fleet.levels()[level].slots;
                let slot = &slots[index];
                slot.cell.touch(now, slot.fail_timeout);
                tried.insert(slot.member);
                self.policies[level].on_dispatch(now, &self.fleet.levels()[level], index);
                return Ok(slot.member);
            }
            if level + 1 == self.policies.len() {
                break;
            }
            tried.level += 1;
        }
        Err(NoServer)
    }

    #[inline]
    fn pick_of_level(&mut self, now: Nanos, key: &[u8], tried: &mut Tried, level: usize) -> Option<usize> {
        let policy = &mut self.policies[level];
        let level: &Level = &self.fleet.levels()[level];
        let mut cx = Context { now, level, key, tried, rng: &mut self.rng };
        for _ in 0..RACES {
            let index = policy.pick(&mut cx)?;
            let slot = &level.slots[index];
            if slot.cell.acquire(slot.max_conns) {
                return Some(index);
            }
        }
        (0..level.len()).find(|i| cx.open(*i) && level.slots[*i].cell.acquire(level.slots[*i].max_conns))
    }

    /// Whether [`Driver::header`] is to be called when a response's header has come.
    pub fn wants_header(&self) -> bool {
        self.policies.iter().any(|p| p.wants_header())
    }

    /// Tells that the header of a response from `member` has come, `header_time` after the server was chosen. For drivers
    /// where [`Driver::wants_header`] is true; the report of such a request then has its `header_time`.
    pub fn header(&mut self, now: Nanos, member: Member, header_time: Nanos) {
        let (level, index) = self.fleet.place(member);
        self.policies[level].on_header(now, index, header_time);
    }

    /// Gives back the slot that [`Driver::pick`] took, and accounts for the outcome. Any driver of the fleet may do it.
    #[inline]
    pub fn complete(&mut self, now: Nanos, member: Member, report: &Report) -> Effect {
        let (level, index) = self.fleet.place(member);
        let slot = &self.fleet.levels()[level].slots[index];
        let cell = &*slot.cell;
        let mut effect = Effect::default();
        cell.add_bytes(report.bytes);
        match report.outcome {
            Outcome::Success => {
                if let Some(time) = report.header_time {
                    cell.add_header_time(time);
                }
                if let Some(time) = report.last_byte_time {
                    cell.add_last_byte_time(time);
                }
            }
            Outcome::Failure => {
                let (before, last) = cell.fail(now);
                // Requests that were under way when the server was closed do not close it again; a probe after the
                // timeout does.
                let probe = before >= slot.max_fails && now.saturating_sub(last) > slot.fail_timeout;
                effect.disabled = slot.max_fails != 0 && (before + 1 == slot.max_fails || probe);
            }
            Outcome::Neutral => {}
        }
        if self.fleet.is_single() {
            cell.forgive();
        } else if report.outcome != Outcome::Failure {
            cell.succeed();
        }
        cell.release();
        self.policies[level].on_complete(now, &self.fleet.levels()[level], index, report);
        effect
    }
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver").field("fleet", &self.fleet).finish_non_exhaustive()
    }
}
