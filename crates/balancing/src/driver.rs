//! One worker's view of a fleet: eligibility, reservation, bookkeeping.

use std::fmt;
use std::sync::Arc;

use crate::Nanos;
use crate::fleet::Fleet;
use crate::policy::{Basis, Context, Policy, Start};
use crate::reason::Reason;
use crate::report::{Outcome, Report};
use crate::rng::Rng;
use crate::server::{Member, Refused, Slot};
use crate::spec::Key;
use crate::tier::Tier;
use crate::tried::{Progress, Tried};

/// How often a pick is repeated if another thread takes the last slot of the chosen server; after that any server is
/// taken.
const RACES: usize = 16;
/// How many servers are compared for the runner-up of an explained pick.
const LOOKS: usize = 64;

/// What a completion changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Effect {
    /// The server has just been closed for its fail timeout; the caller logs it once.
    pub disabled: bool,
}

/// No server is eligible: all are down, failed, full or have been tried.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("no live upstreams")]
pub struct NoServer;

/// A server that a request could go to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Candidate {
    /// The server.
    pub member: Member,
    /// Its current weight, in 1/256 of a unit.
    pub weight: u64,
    /// Its requests in flight.
    pub in_flight: u32,
}

/// One worker's instance of a fleet's algorithm.
pub struct Driver {
    fleet: Arc<Fleet>,
    /// One for each tier.
    policies: Box<[Box<dyn Policy>]>,
    rng: Rng,
    /// Whether the algorithm uses the key.
    keyed: bool,
}

impl Driver {
    /// A driver for one worker thread. The same seed and the same calls give the same picks.
    pub fn new(fleet: Arc<Fleet>, seed: u64, start: Start) -> Driver {
        let mut rng = Rng::new(seed);
        let policies = fleet.plans().iter().map(|plan| plan.clone().policy(start, &mut rng)).collect();
        let keyed = fleet.spec().entry().key != Key::None;
        Driver { fleet, policies, rng, keyed }
    }

    /// The fleet.
    pub fn fleet(&self) -> &Arc<Fleet> {
        &self.fleet
    }

    /// Chooses a server for a request and takes one of its slots, which [`Driver::complete`] returns.
    ///
    /// The server is eligible and not in `tried`, and is added to `tried`. Servers of a greater priority number are
    /// used when no server before them can be used, backups last. A request that has reached a tier stays there, as in
    /// NGINX. [`crate::registry::Entry::key`] says what `key` is.
    ///
    /// Cost: that of the algorithm; if many servers are closed, up to 64 more servers are looked at, then one scan
    /// finds the first open server.
    #[inline]
    pub fn pick(&mut self, now: Nanos, key: &[u8], tried: &mut Tried) -> Result<Member, NoServer> {
        self.choose(now, key, tried, |_, _, _| ())
    }

    /// As [`Driver::pick`], with the reason for the choice.
    pub fn pick_explained(
        &mut self,
        now: Nanos,
        key: &[u8],
        tried: &mut Tried,
        reason: &mut Reason,
    ) -> Result<Member, NoServer> {
        let algorithm = self.fleet.spec().entry().name;
        self.choose(now, key, tried, |policy, cx, index| *reason = explain(algorithm, policy, cx, index))
    }

    /// As [`Driver::pick_explained`], with the probability of the choice, if the algorithm draws at random and its draws can be
    /// computed: that a request which finds the servers as they are comes to this server in this way. A draw may
    /// end without a server, so that round robin chooses; then it is the probability of that. It costs far more than the pick.
    pub fn pick_weighed(
        &mut self,
        now: Nanos,
        key: &[u8],
        tried: &mut Tried,
        reason: &mut Reason,
        probability: &mut Option<f64>,
    ) -> Result<Member, NoServer> {
        let algorithm = self.fleet.spec().entry().name;
        let (tier, tries) = (tried.tier, tried.progress.tries);
        self.choose(now, key, tried, |policy, cx, index| {
            *reason = explain(algorithm, policy, cx, index);
            *probability = policy.probability(cx, index, if cx.tried.tier == tier { tries } else { 0 });
        })
    }

    #[inline]
    fn choose(
        &mut self,
        now: Nanos,
        key: &[u8],
        tried: &mut Tried,
        mut explain: impl FnMut(&dyn Policy, &Context<'_>, usize),
    ) -> Result<Member, NoServer> {
        while usize::from(tried.tier) < self.policies.len() {
            let at = usize::from(tried.tier);
            let tier: &Tier = &self.fleet.tiers()[at];
            let policy = &mut *self.policies[at];
            let mut cx = Context { now, tier, key, keyed: self.keyed, tried, rng: &mut self.rng, taken: false };
            if tier.enter() {
                if let Some(index) = pick_of_tier(policy, &mut cx, &mut explain) {
                    let slot = &tier.slots[index];
                    slot.state.touch(now, slot.fail_timeout);
                    tried.insert(slot.member);
                    policy.on_dispatch(now, tier, index, true);
                    return Ok(slot.member);
                }
                tier.leave();
            } else if policy.binds(&cx) {
                break;
            }
            if at + 1 == self.policies.len() || tried.progress.bound {
                break;
            }
            tried.tier += 1;
            // The search among other servers starts again.
            tried.progress = Progress::default();
        }
        Err(NoServer)
    }

    /// Takes a slot of a given server, for a request that has to go there: by client affinity, or by the choice of
    /// another program. [`Driver::complete`] returns the slot. The algorithm counts the request, so a server with many
    /// such requests gets fewer others.
    ///
    /// A `returning` request belongs to the server, and may use one that drains or is above its soft limit.
    ///
    /// # Errors The reason why the server does not take it; nothing has changed then.
    pub fn claim(&mut self, now: Nanos, member: Member, tried: &mut Tried, returning: bool) -> Result<(), Refused> {
        self.claim_by(now, member, tried, |slot| slot.claim(now, returning))
    }

    /// Takes a slot of a server that is ejected as an outlier, for the request that finds out whether it works again.
    ///
    /// # Errors The reason why the server does not take it; nothing has changed then.
    pub fn claim_probe(&mut self, now: Nanos, member: Member, tried: &mut Tried) -> Result<(), Refused> {
        self.claim_by(now, member, tried, |slot| slot.claim_probe(now))
    }

    fn claim_by(
        &mut self,
        now: Nanos,
        member: Member,
        tried: &mut Tried,
        claim: impl FnOnce(&Slot) -> Result<(), Refused>,
    ) -> Result<(), Refused> {
        if tried.contains(member) {
            return Err(Refused::Tried);
        }
        let (at, index) = self.fleet.place(member);
        let tier: &Tier = &self.fleet.tiers()[at];
        let slot = &tier.slots[index];
        if !tier.enter() {
            return Err(Refused::Full);
        }
        claim(slot).inspect_err(|_| tier.leave())?;
        slot.state.touch(now, slot.fail_timeout);
        tried.insert(member);
        self.policies[at].on_dispatch(now, tier, index, false);
        Ok(())
    }

    /// The servers that a request could go to: the eligible servers of the first tier that has any. The cost is
    /// proportional to the number of servers.
    pub fn candidates<'a>(&'a self, now: Nanos, tried: &'a Tried) -> impl Iterator<Item = Candidate> + use<'a> {
        let open = move |tier: &Tier, i: usize| !tried.contains(tier.slots[i].member) && tier.accepts(i, now);
        let tiers = self.fleet.tiers().iter().skip(usize::from(tried.tier));
        let tier = tiers.filter(|tier| !tier.is_full()).find(|tier| (0..tier.len()).any(|i| open(tier, i)));
        let pairs = tier.into_iter().flat_map(|tier| (0..tier.len()).map(move |i| (tier, i)));
        pairs.filter(move |(tier, i)| open(tier, *i)).map(move |(tier, i)| {
            let slot = &tier.slots[i];
            Candidate { member: slot.member, weight: tier.weight(i, now), in_flight: slot.state.in_flight() }
        })
    }

    /// Whether [`Driver::take_probes`] ever asks for one.
    pub fn wants_probes(&self) -> bool {
        self.policies.iter().any(|p| p.wants_probes())
    }

    /// Puts the servers to probe after a pick into `members`; the caller answers each with [`Driver::probed`].
    #[inline]
    pub fn take_probes(&mut self, now: Nanos, members: &mut Vec<Member>) {
        members.clear();
        for (policy, tier) in self.policies.iter_mut().zip(self.fleet.tiers()) {
            policy.take_probes(now, tier, members);
        }
    }

    /// A probe's answer: the server's requests in flight and its latency.
    #[inline]
    pub fn probed(&mut self, now: Nanos, member: Member, in_flight: u32, latency: Nanos) {
        let (tier, index) = self.fleet.place(member);
        self.policies[tier].on_probe(now, &self.fleet.tiers()[tier], index, in_flight, latency);
    }

    /// Whether the caller should call [`Driver::header`] when a response's header has arrived.
    pub fn wants_header(&self) -> bool {
        self.policies.iter().any(|p| p.wants_header())
    }

    /// Reports that the header of a response from `member` has arrived, `header_time` after the server was chosen. For
    /// drivers where [`Driver::wants_header`] is true; the report of the request then has its `header_time`.
    pub fn header(&mut self, now: Nanos, member: Member, header_time: Nanos) {
        let (tier, index) = self.fleet.place(member);
        self.policies[tier].on_header(now, index, header_time);
    }

    /// Whether the caller should call [`Driver::latency`] when a request has succeeded.
    pub fn wants_latency(&self) -> bool {
        self.policies.iter().any(|p| p.wants_latency())
    }

    /// Reports the latency of a successful request to `member` that found `in_flight` others there when it was sent.
    /// For drivers where [`Driver::wants_latency`] is true, before [`Driver::complete`].
    #[inline]
    pub fn latency(&mut self, now: Nanos, member: Member, in_flight: u32, latency: Nanos) {
        let (tier, index) = self.fleet.place(member);
        self.policies[tier].on_latency(now, index, in_flight, latency);
    }

    /// Reports that `member` is serving a long request: earlier failures are forgotten now, and not only at its end.
    /// Its slot stays taken.
    pub fn alive(&mut self, now: Nanos, member: Member) {
        let (tier, index) = self.fleet.place(member);
        self.fleet.forgive(&self.fleet.tiers()[tier].slots[index], now);
    }

    /// Returns the slot that [`Driver::pick`] took, and counts the outcome. Any driver of the fleet may do it.
    #[inline]
    pub fn complete(&mut self, now: Nanos, member: Member, report: &Report) -> Effect {
        let (tier, index) = self.fleet.place(member);
        let policy = &mut self.policies[tier];
        let tier: &Tier = &self.fleet.tiers()[tier];
        let slot = &tier.slots[index];
        let state = &*slot.state;
        let mut effect = Effect::default();
        state.add_bytes(report.bytes);
        match report.outcome {
            Outcome::Success => {
                if let Some(time) = report.header_time {
                    state.add_header_time(time);
                }
                if let Some(time) = report.last_byte_time {
                    state.add_last_byte_time(time);
                }
            }
            Outcome::Failure => {
                let (before, last) = state.fail(now);
                // Requests that were under way when the server was closed do not close it again; a probe after the
                // timeout does.
                let probe = before >= slot.max_fails && now.saturating_sub(last) > slot.fail_timeout;
                effect.disabled = slot.max_fails != 0 && (before + 1 == slot.max_fails || probe);
            }
            Outcome::ErrorResponse | Outcome::Neutral => {}
        }
        if report.outcome != Outcome::Failure || self.fleet.is_single() {
            self.fleet.forgive(slot, now);
        }
        state.release();
        tier.leave();
        policy.on_complete(now, tier, index, report);
        effect
    }
}

/// Chooses a server and takes a slot of it.
#[inline]
fn pick_of_tier(
    policy: &mut dyn Policy,
    cx: &mut Context<'_>,
    explain: &mut impl FnMut(&dyn Policy, &Context<'_>, usize),
) -> Option<usize> {
    let tier = cx.tier;
    let acquire = |i: usize| tier.slots[i].state.acquire(tier.slots[i].limit());
    for _ in 0..RACES {
        let index = policy.pick(cx)?;
        explain(policy, cx, index);
        if cx.taken || acquire(index) {
            return Some(index);
        }
    }
    if cx.tried.progress.bound {
        return None;
    }
    (0..tier.len()).find(|i| cx.open(*i) && acquire(*i)).inspect(|i| explain(policy, cx, *i))
}

/// Why `policy` chose `index`.
fn explain(algorithm: &'static str, policy: &dyn Policy, cx: &Context<'_>, index: usize) -> Reason {
    let n = cx.tier.len();
    let others = (1..n.min(LOOKS)).map(|k| (index + k) % n).filter(|i| cx.open(*i));
    let score = policy.score(cx, index);
    let mut next: Option<(Member, f64)> = None;
    let mut alone = n <= LOOKS;
    for i in others {
        alone = false;
        let rival = score.and_then(|_| policy.score(cx, i));
        next = match (rival, next) {
            (Some(score), Some((_, best))) if score >= best => next,
            (Some(score), _) => Some((cx.tier.slots[i].member, score)),
            (None, _) => next,
        };
    }
    let basis = if alone { Basis::Only } else { policy.basis() };
    Reason { algorithm, basis, score, next }
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver").field("fleet", &self.fleet).finish_non_exhaustive()
    }
}
