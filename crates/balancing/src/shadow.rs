//! Shadows: algorithms that run beside the active one. Their choices are counted and not used.
//!
//! A shadow gets each request with its key and the eligible servers, and later the result of the request on the server that
//! the active algorithm chose. It reads the real states of the servers and never changes them; its round-robin positions,
//! tables and averages are its own. So it shows how choices would differ. It says nothing about response times, because the
//! servers that it prefers did not receive the requests that it would have sent.
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

/// The last choice is remembered for this many keys, the most recently used ones.
const KEYS: usize = 4096;
/// One of this many choices is timed.
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

/// What chose the server of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decided {
    /// The algorithm, or the program in its place.
    Algorithm,
    /// The session that the request belongs to.
    Session,
    /// Something else, such as a test of the server.
    Other,
}

/// The counters of a shadow, since its start or the last [`Shadow::reset`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ShadowCounts {
    /// Choices of the active algorithm.
    pub picks: u64,
    /// Choices of the active algorithm that the shadow agreed with.
    pub agreed: u64,
    /// Choices of the active algorithm for which the shadow found no server.
    pub nobody: u64,
    /// Requests that belonged to a session, if [`Shadow::judges_sessions`].
    pub sessions: u64,
    /// Requests of a session for which the shadow chose another server than the session's.
    pub sessions_left: u64,
    /// Choices for a key whose previous choice is known.
    pub keys: u64,
    /// Choices for such a key that differ from the previous choice.
    pub keys_moved: u64,
    /// Choices that were timed.
    pub timed: u64,
    /// The total time of the timed choices.
    pub time: Nanos,
}

/// What is kept when the servers change.
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
    /// For each key, the number of the server that it had last, if the algorithm uses keys.
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

    /// Counts that the server with this number was chosen for a key.
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

/// The counters and state of a server, kept while it belongs to the upstream.
struct Place {
    number: u32,
    /// How often the shadow would have chosen it, and how often the active algorithm did.
    chosen: AtomicU64,
    really: AtomicU64,
    /// The algorithm's own state for it.
    kept: Arc<ServerState>,
}

/// A shadow with its tables for one membership of servers, shared by the workers.
pub struct Shadow {
    fleet: Fleet,
    places: Box<[Arc<Place>]>,
    tally: Arc<Tally>,
}

impl Shadow {
    /// The shadow of a fleet. It continues with the state of `before`, which had the same algorithm and parameters and
    /// possibly other servers.
    ///
    /// # Errors
    /// Those of [`Fleet::new`]. A list of servers that is valid for the fleet is valid for the shadow.
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

    /// Whether the algorithm uses keys, so that keys are counted.
    pub fn is_keyed(&self) -> bool {
        self.tally.last.is_some()
    }

    /// Whether it also chooses for requests that belong to a session. Only algorithms with keys do, because they choose the
    /// same server each time; others would advance their round-robin position, or remember a server that the client does not use.
    pub fn judges_sessions(&self) -> bool {
        self.spec().entry().share == Share::Key
    }

    /// The counters. They are read one by one and may differ by a request in progress.
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
    /// The shadow of one worker. `seed` and `start` are those of its [`crate::Driver`], so that both begin at the same server.
    pub fn new(shadow: Arc<Shadow>, seed: u64, start: Start) -> ShadowDriver {
        let mut rng = Rng::new(seed);
        let policies = shadow.fleet.plans().iter().map(|plan| plan.clone().policy(start, &mut rng)).collect();
        // Choices draw from another sequence than the active algorithm's: two random algorithms must agree by chance only.
        ShadowDriver { shadow, policies, rng: Rng::new(mix(seed)), count: 0 }
    }

    /// See [`Shadow::judges_sessions`].
    pub fn judges_sessions(&self) -> bool {
        self.shadow.judges_sessions()
    }

    /// The part that all workers share.
    pub fn shadow(&self) -> &Arc<Shadow> {
        &self.shadow
    }

    /// Chooses for a request among the servers that are eligible and not in `tried`. Call it before the active algorithm
    /// chooses, and [`ShadowDriver::dispatched`] afterwards if that found a server. `clock` returns the time in nanoseconds;
    /// it is called for one choice in 64.
    pub fn choose(&mut self, now: Nanos, key: &[u8], tried: &mut Tried, clock: impl Fn() -> Nanos) -> Choice {
        self.count = self.count.wrapping_add(1);
        let begun = (self.count % TIMED == 1).then(&clock);
        // The shadow searches by itself; the progress of the active algorithm stays as it is.
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
                // The new request counts too.
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

    /// Counts that the request went to `member`; `choice` is the result of [`ShadowDriver::choose`].
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
        // The shadow charges its own choice where the active algorithm charges its choice.
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

    /// Counts the end of a request that [`ShadowDriver::dispatched`] counted. Call it after [`crate::Driver::complete`].
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
