//! Algorithms that run beside the one that decides: what they would have chosen is counted.
//!
//! A shadow sees each request with its key and the servers that are eligible for it, and what becomes of the request where
//! it really went. It reads the servers' states, which are the real ones, and changes none: its turns, tables and measured
//! averages are its own. So it says how a choice would differ, and nothing about response times: a server that it prefers
//! has not got the requests that it would have got.
//!
//! Cost: that of the algorithm, and a few counters.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use crate::Nanos;
use crate::client_table::ClientTable;
use crate::fleet::{Fleet, FleetError};
use crate::key::{key_hash, mix};
use crate::policy::{Context, Policy, Start};
use crate::report::Report;
use crate::rng::Rng;
use crate::server::Member;
use crate::server_state::ServerState;
use crate::spec::{Key, Share, Spec};
use crate::tier::Tier;
use crate::tried::{Progress, Tried};

/// Of how many keys the last choice is known, those used last.
const KEYS: usize = 4096;
/// Of so many choices one is timed.
const TIMED: u32 = 64;

/// What a shadow would have chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Choice {
    /// It was not asked.
    #[default]
    NotAsked,
    /// No server.
    NoServer,
    /// This server.
    Server(Member),
}

/// What decided where a request went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decided {
    /// The algorithm, or the program in its place.
    Algorithm,
    /// The session that the request belongs to.
    Session,
    /// Something else, such as a test of the server.
    Other,
}

/// What was counted of a shadow, since it began or since the last [`Shadow::reset`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ShadowCounts {
    /// Choices of the algorithm that decides.
    pub picks: u64,
    /// Of these, those where the shadow would have chosen the same server.
    pub agreed: u64,
    /// Of these, those where the shadow would have found no server.
    pub nobody: u64,
    /// Requests that belonged to a session, if [`Shadow::judges_sessions`].
    pub sessions: u64,
    /// Of these, those where the shadow would have chosen another server than the session's.
    pub sessions_left: u64,
    /// Choices for a key whose choice before is known.
    pub keys: u64,
    /// Of these, those where the shadow chose another server than before.
    pub keys_moved: u64,
    /// Choices that were timed.
    pub timed: u64,
    /// How long they took together.
    pub time: Nanos,
}

/// What outlives a change of the servers.
struct Tally {
    picks: AtomicU64,
    agreed: AtomicU64,
    nobody: AtomicU64,
    sessions: AtomicU64,
    sessions_left: AtomicU64,
    keys: AtomicU64,
    keys_moved: AtomicU64,
    timed: AtomicU64,
    time: AtomicU64,
    /// The number of the next server that is new.
    next: AtomicU32,
    /// The numbers of the servers that keys had last, if the shadow goes by keys.
    last: Option<ClientTable>,
}

impl Tally {
    fn new(spec: &Spec) -> Tally {
        let zero = || AtomicU64::new(0);
        Tally {
            picks: zero(),
            agreed: zero(),
            nobody: zero(),
            sessions: zero(),
            sessions_left: zero(),
            keys: zero(),
            keys_moved: zero(),
            timed: zero(),
            time: zero(),
            next: AtomicU32::new(0),
            last: (spec.entry().key != Key::None).then(|| ClientTable::new(KEYS, Nanos::MAX)),
        }
    }

    fn counters(&self) -> [&AtomicU64; 9] {
        let Tally { picks, agreed, nobody, sessions, sessions_left, keys, keys_moved, timed, time, .. } = self;
        [picks, agreed, nobody, sessions, sessions_left, keys, keys_moved, timed, time]
    }

    /// A key has got the server of this number.
    fn key(&self, now: Nanos, key: &[u8], number: u32) {
        let Some(last) = self.last.as_ref().filter(|_| !key.is_empty()) else { return };
        let hash = key_hash(key);
        let before = last.get(now, hash);
        if let Some(before) = before {
            more(&self.keys);
            if before != number {
                more(&self.keys_moved);
            }
        }
        if before != Some(number) {
            last.put(now, hash, number);
        }
    }
}

#[inline]
fn more(counter: &AtomicU64) {
    counter.fetch_add(1, Relaxed);
}

/// What is known of a server for as long as it belongs to the upstream.
struct Place {
    number: u32,
    /// How often the shadow would have chosen it, and how often it was chosen.
    chosen: AtomicU64,
    really: AtomicU64,
    /// What the algorithm keeps of it.
    kept: Arc<ServerState>,
}

/// A shadow with its tables for one membership of servers, shared by the workers.
pub struct Shadow {
    fleet: Fleet,
    places: Box<[Arc<Place>]>,
    tally: Arc<Tally>,
}

impl Shadow {
    /// The shadow of a fleet. It continues what it was `before` with other servers, with the same algorithm and parameters.
    ///
    /// # Errors
    /// Those of [`Fleet::new`] that the fleet itself did not have: none for a list of servers that is valid.
    pub fn new(spec: &Spec, real: &Fleet, before: Option<&Shadow>) -> Result<Shadow, FleetError> {
        let known: HashMap<_, _> = before
            .into_iter()
            .flat_map(|before| before.fleet.members().zip(&before.places).map(move |(m, place)| (before, m, place)))
            .map(|(before, m, place)| (Arc::as_ptr(before.fleet.shared_cell(m)), place))
            .collect();
        let tally = before.map_or_else(|| Arc::new(Tally::new(spec)), |before| before.tally.clone());
        let new = || {
            let number = tally.next.fetch_add(1, Relaxed);
            let (chosen, really) = (AtomicU64::new(0), AtomicU64::new(0));
            Arc::new(Place { number, chosen, really, kept: Arc::default() })
        };
        let place = |m| known.get(&Arc::as_ptr(real.shared_cell(m))).map_or_else(new, |place| Arc::clone(place));
        let places: Box<[Arc<Place>]> = real.members().map(place).collect();
        let kept: Vec<Arc<ServerState>> = places.iter().map(|place| place.kept.clone()).collect();
        let fleet = real.shadow(spec, &kept, before.map(|before| &before.fleet))?;
        Ok(Shadow { fleet, places, tally })
    }

    /// The algorithm.
    pub fn spec(&self) -> &Spec {
        self.fleet.spec()
    }

    /// Whether it goes by keys, so that keys are counted.
    pub fn is_keyed(&self) -> bool {
        self.tally.last.is_some()
    }

    /// Whether it is to be asked also for requests that belong to a session: a key leads to the same server again and again.
    /// Others would spend a turn, or remember a server where the client is not.
    pub fn judges_sessions(&self) -> bool {
        self.spec().entry().share == Share::Key
    }

    /// What was counted. Counters that change meanwhile may be one apart.
    pub fn counts(&self) -> ShadowCounts {
        let counters = self.tally.counters().map(|counter| counter.load(Relaxed));
        let [picks, agreed, nobody, sessions, sessions_left, keys, keys_moved, timed, time] = counters;
        ShadowCounts { picks, agreed, nobody, sessions, sessions_left, keys, keys_moved, timed, time }
    }

    /// How often the shadow would have chosen a server, and how often it was chosen.
    pub fn chosen(&self, Member(m): Member) -> (u64, u64) {
        let place = &self.places[m as usize];
        (place.chosen.load(Relaxed), place.really.load(Relaxed))
    }

    /// Counts from 0. The last choices of keys stay known.
    pub fn reset(&self) {
        let of_places = self.places.iter().flat_map(|place| [&place.chosen, &place.really]);
        self.tally.counters().into_iter().chain(of_places).for_each(|counter| counter.store(0, Relaxed));
    }
}

impl fmt::Debug for Shadow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shadow").field("fleet", &self.fleet).field("counts", &self.counts()).finish_non_exhaustive()
    }
}

/// One worker's instance of a shadow.
pub struct ShadowDriver {
    shadow: Arc<Shadow>,
    /// One for each tier.
    policies: Box<[Box<dyn Policy>]>,
    rng: Rng,
    /// Choices so far.
    count: u32,
}

impl ShadowDriver {
    /// That of a worker; `seed` and `start` are those of its [`crate::Driver`], so that both begin at the same server.
    pub fn new(shadow: Arc<Shadow>, seed: u64, start: Start) -> ShadowDriver {
        let mut rng = Rng::new(seed);
        let policies = shadow.fleet.plans().iter().map(|plan| plan.clone().policy(start, &mut rng)).collect();
        // What is drawn for choices is another sequence: two that draw agree by chance only.
        ShadowDriver { shadow, policies, rng: Rng::new(mix(seed)), count: 0 }
    }

    /// See [`Shadow::judges_sessions`].
    pub fn judges_sessions(&self) -> bool {
        self.shadow.judges_sessions()
    }

    /// What its workers share.
    pub fn shadow(&self) -> &Arc<Shadow> {
        &self.shadow
    }

    /// What it would choose for a request, of the servers that are eligible and not in `tried`. To be asked before the
    /// server is chosen, and followed by [`ShadowDriver::dispatched`] if one was. `clock` is the time now in nanoseconds; it
    /// is read for one choice in 64.
    pub fn choose(&mut self, now: Nanos, key: &[u8], tried: &mut Tried, clock: impl Fn() -> Nanos) -> Choice {
        self.count = self.count.wrapping_add(1);
        let begun = (self.count % TIMED == 1).then(&clock);
        // The search is the shadow's own; what the algorithm that decides has found out so far stays as it is.
        let own = (tried.tier, std::mem::take(&mut tried.progress));
        let found = self.search(now, key, tried);
        (tried.tier, tried.progress) = own;
        let tally = &self.shadow.tally;
        if let Some(begun) = begun {
            more(&tally.timed);
            tally.time.fetch_add(clock().saturating_sub(begun), Relaxed);
        }
        let Some(Member(m)) = found else { return Choice::NoServer };
        if tried.is_empty() {
            tally.key(now, key, self.shadow.places[m as usize].number);
        }
        Choice::Server(Member(m))
    }

    fn search(&mut self, now: Nanos, key: &[u8], tried: &mut Tried) -> Option<Member> {
        let keyed = self.shadow.is_keyed();
        loop {
            let at = usize::from(tried.tier);
            let tier: &Tier = self.shadow.fleet.tiers().get(at)?;
            let policy = &mut *self.policies[at];
            let mut cx = Context { now, tier, key, keyed, tried, rng: &mut self.rng, taken: false };
            if !tier.is_full() {
                // The request that is to be placed counts.
                tier.enter();
                let found = policy.pick(&mut cx);
                tier.leave();
                if let Some(index) = found {
                    return Some(tier.slots[index].member);
                }
            } else if policy.binds(&cx) {
                return None;
            }
            if tried.progress.bound {
                return None;
            }
            tried.tier += 1;
            tried.progress = Progress::default();
        }
    }

    /// The request went to `member`; `choice` is what [`ShadowDriver::choose`] said.
    pub fn dispatched(&mut self, now: Nanos, member: Member, choice: Choice, decided: Decided) {
        let Shadow { fleet, places, tally } = &*self.shadow;
        let chosen = match choice {
            Choice::Server(chosen) => Some(chosen),
            Choice::NotAsked | Choice::NoServer => None,
        };
        let place = |Member(m): Member| &places[m as usize];
        match decided {
            Decided::Algorithm => {
                more(&tally.picks);
                more(&place(member).really);
                match chosen {
                    Some(chosen) => more(&place(chosen).chosen),
                    None => more(&tally.nobody),
                }
                if chosen == Some(member) {
                    more(&tally.agreed);
                }
            }
            Decided::Session if choice != Choice::NotAsked => {
                more(&tally.sessions);
                if chosen != Some(member) {
                    more(&tally.sessions_left);
                }
            }
            Decided::Session | Decided::Other => {}
        }
        let (at, index) = fleet.place(member);
        let tier = &fleet.tiers()[at];
        tier.enter();
        // What a request was bound for is charged as the algorithm that decides charges it.
        let chosen = chosen.filter(|_| decided == Decided::Algorithm).map(|chosen| fleet.place(chosen));
        let chosen = chosen.filter(|(other, _)| *other == at).map(|(_, index)| index);
        self.policies[at].on_shadow_dispatch(now, tier, chosen, index);
    }

    /// See [`crate::Driver::header`]; for every response.
    pub fn header(&mut self, now: Nanos, member: Member, header_time: Nanos) {
        let (tier, index) = self.shadow.fleet.place(member);
        let policy = &mut self.policies[tier];
        if policy.wants_header() {
            policy.on_header(now, index, header_time);
        }
    }

    /// See [`crate::Driver::latency`]; for every success.
    pub fn latency(&mut self, now: Nanos, member: Member, in_flight: u32, latency: Nanos) {
        let (tier, index) = self.shadow.fleet.place(member);
        let policy = &mut self.policies[tier];
        if policy.wants_latency() {
            policy.on_latency(now, index, in_flight, latency);
        }
    }

    /// A request is over that [`ShadowDriver::dispatched`] was told of; after [`crate::Driver::complete`].
    pub fn complete(&mut self, now: Nanos, member: Member, report: &Report) {
        let (at, index) = self.shadow.fleet.place(member);
        let tier: &Tier = &self.shadow.fleet.tiers()[at];
        tier.leave();
        self.policies[at].on_complete(now, tier, index, report);
    }
}

impl fmt::Debug for ShadowDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShadowDriver").field("shadow", &self.shadow).finish_non_exhaustive()
    }
}
