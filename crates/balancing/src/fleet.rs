//! One membership of servers, shared by the workers.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed};

use crate::Nanos;
use crate::algorithms::SCAN;
use crate::cell::{ADJUSTED, CLOSED, Cell, LIMITED};
use crate::policy::Plan;
use crate::registry::Spec;

/// A server, as an index into the list that the fleet was built from.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Member(pub u32);

/// A server as configured.
#[derive(Clone, Debug)]
pub struct ServerSpec {
    /// The address as written, for instance `app1:80` or `unix:/run/app`. Consistent hashing places the server by it;
    /// servers of one name share a place by round robin.
    pub name: Box<str>,
    /// Share of the requests; 0 takes no new requests.
    pub weight: u32,
    /// Requests in flight at most; 0 is unlimited.
    pub max_conns: u32,
    /// From this number of requests in flight on, only requests that belong to the server are taken
    /// ([`crate::Driver::claim`]); 0 is `max_conns`.
    pub soft_max_conns: u32,
    /// Failures within `fail_timeout` after which the server gets no requests for that time; 0 is never.
    pub max_fails: u32,
    /// See `max_fails`.
    pub fail_timeout: Nanos,
    /// The time in which a server that returns reaches its full weight; 0 is at once.
    pub slow_start: Nanos,
    /// Servers with a greater number are used when no server with a smaller one can be used.
    pub priority: u32,
    /// Used only when no other server can be used, after all priorities.
    pub backup: bool,
    /// Takes no new requests except those that belong to it.
    pub draining: bool,
    /// Never used.
    pub down: bool,
}

impl ServerSpec {
    /// A server with NGINX's defaults: weight 1, no limit, `max_fails=1 fail_timeout=10s`.
    pub fn new(name: &str) -> ServerSpec {
        ServerSpec {
            name: name.into(),
            weight: 1,
            max_conns: 0,
            soft_max_conns: 0,
            max_fails: 1,
            fail_timeout: 10_000_000_000,
            slow_start: 0,
            priority: 0,
            backup: false,
            draining: false,
            down: false,
        }
    }
}

/// A limit for all servers of one priority together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Group {
    /// Which servers.
    pub priority: u32,
    /// Requests in flight at most, over all of them; 0 is unlimited.
    pub max_conns: u32,
}

/// A list of servers that is not a fleet.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FleetError {
    /// There is no server except backups.
    #[error("no servers")]
    NoServers,
    /// More than 2^24 servers.
    #[error("too many servers")]
    TooMany,
    /// The sum of the weights exceeds 2^32 - 1.
    #[error("the sum of the weights is too large")]
    Weights,
    /// More than 255 priorities, the backups counted as one.
    #[error("too many priorities")]
    Priorities,
}

/// The data that a pick reads of one server, besides its cell: one cache line.
#[repr(align(64))]
pub(crate) struct Slot {
    pub cell: Arc<Cell>,
    pub member: Member,
    pub weight: u32,
    /// The configured limit for requests that the algorithm places.
    placed_max: u32,
    soft_max_conns: u32,
    /// That for requests that belong to the server.
    max_conns: u32,
    /// 0 as well when failures do not close the server.
    pub max_fails: u32,
    /// Takes no new requests: down, draining, or without weight.
    closed: bool,
    down: bool,
    pub fail_timeout: Nanos,
    slow_start: Nanos,
}

impl Slot {
    fn new(member: Member, server: &ServerSpec, cell: Arc<Cell>, single: bool) -> Slot {
        Slot {
            cell,
            member,
            weight: server.weight,
            placed_max: tighter(server.soft_max_conns, server.max_conns),
            soft_max_conns: server.soft_max_conns,
            max_conns: server.max_conns,
            max_fails: if single { 0 } else { server.max_fails },
            closed: server.down || server.draining || server.weight == 0,
            down: server.down,
            fail_timeout: server.fail_timeout,
            slow_start: server.slow_start,
        }
    }

    /// The limit of requests in flight for those that the algorithm places; 0 is none.
    #[inline]
    pub fn limit(&self) -> u32 {
        self.limit_in(self.cell.state())
    }

    /// Takes a slot within the limit and another one; 0 is none.
    #[inline]
    pub fn acquire_within(&self, limit: u32) -> bool {
        self.cell.acquire(tighter(self.limit(), limit))
    }

    #[inline]
    fn limit_in(&self, state: u32) -> u32 {
        if state & LIMITED == 0 {
            return self.placed_max;
        }
        tighter(self.soft_max_conns, self.cell.max_conns_override().unwrap_or(self.max_conns))
    }

    /// The limit for requests that belong to the server; 0 is none.
    fn hard_limit(&self) -> u32 {
        self.cell.max_conns_override().unwrap_or(self.max_conns)
    }

    #[inline]
    fn failed(&self, now: Nanos) -> bool {
        self.max_fails != 0
            && self.cell.fails() >= self.max_fails
            && now.saturating_sub(self.cell.checked()) <= self.fail_timeout
    }

    /// Takes a slot for a request that has to go to this server, or says why it cannot. A `returning` request belongs
    /// to the server, which then may be draining or above its soft limit.
    pub fn claim(&self, now: Nanos, returning: bool) -> Result<(), Refused> {
        let closed = self.closed || self.cell.state() & CLOSED != 0;
        let refused = if self.down || self.cell.is_down() {
            Refused::Down
        } else if closed && !returning {
            Refused::Draining
        } else if self.failed(now) {
            Refused::Failed
        } else if !self.cell.acquire(if returning { self.hard_limit() } else { self.limit() }) {
            Refused::Full
        } else {
            return Ok(());
        };
        Err(refused)
    }

    /// A success has ended its failures: if they had closed it, slow start begins.
    pub fn revived(&self, now: Nanos, fails: u32) {
        if self.slow_start != 0 && self.max_fails != 0 && fails >= self.max_fails {
            self.cell.warm_up(now);
        }
    }
}

/// The tighter of two limits, where 0 is none.
fn tighter(a: u32, b: u32) -> u32 {
    if a == 0 || b == 0 { a.max(b) } else { a.min(b) }
}

/// Up to this number of servers, the requests in flight are summed up when needed, which is quicker than a count that
/// all workers change.
const SUMMED: usize = 8;

/// The bits of an index of a server.
pub(crate) const SERVER: u32 = (1 << 24) - 1;

/// Why a server does not take a request that has to go there.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refused {
    /// Down, by the configuration or by an operator.
    #[error("down")]
    Down,
    /// Takes no new requests: draining, or without weight.
    #[error("draining")]
    Draining,
    /// Closed by failures.
    #[error("failed")]
    Failed,
    /// The server or its group is at its limit of requests in flight.
    #[error("full")]
    Full,
    /// The request has tried it.
    #[error("tried")]
    Tried,
}

/// The servers of one level: those of one priority, or the backups. Algorithms see one level at a time and know a server
/// by its index in `slots`.
pub(crate) struct Level {
    pub slots: Box<[Slot]>,
    /// The cells of the slots, so that both are fetched at once; empty for few servers, whose cells are in the cache.
    cells: Box<[Arc<Cell>]>,
    /// Names in the order of the slots.
    pub names: Box<[Box<str>]>,
    /// Sum of the weights, below 2^32.
    pub total_weight: u64,
    /// The priority; backups have the greatest.
    rank: u64,
    /// Requests in flight over all servers at most, and how many there are. They are counted where there is a limit, or
    /// the algorithm goes by them.
    max_conns: u32,
    counted: AtomicBool,
    in_flight: Arc<AtomicU32>,
}

impl Level {
    /// The only place that decides whether a server takes new requests: not down, not draining, not failed within its
    /// fail timeout, not full. The servers that the request has tried are checked elsewhere.
    #[inline]
    pub fn accepts(&self, index: usize, now: Nanos) -> bool {
        let slot = &self.slots[index];
        let state = self.cells.get(index).unwrap_or(&slot.cell).state();
        if slot.closed || state & CLOSED != 0 || slot.failed(now) {
            return false;
        }
        let limit = slot.limit_in(state);
        limit == 0 || slot.cell.in_flight() < limit
    }

    /// The server's current weight, in 1/256 of a unit: less during slow start or with a share below 100 percent, more
    /// with a share above. Slow start grows linearly from a sixteenth.
    #[inline]
    pub fn weight(&self, index: usize, now: Nanos) -> u64 {
        let slot = &self.slots[index];
        if slot.cell.state() & ADJUSTED == 0 { self.whole_weight(index) } else { self.adjusted_weight(index, now) }
    }

    /// The configured weight in 1/256 of a unit.
    #[inline]
    pub fn whole_weight(&self, index: usize) -> u64 {
        u64::from(self.slots[index].weight) << 8
    }

    #[cold]
    fn adjusted_weight(&self, index: usize, now: Nanos) -> u64 {
        let slot = &self.slots[index];
        let mut weight = u128::from(self.whole_weight(index)) * u128::from(slot.cell.share()) / 100;
        if let Some(elapsed) = slot.cell.warming(now, slot.slow_start) {
            weight = weight * u128::from(elapsed.max(slot.slow_start / 16)) / u128::from(slot.slow_start);
        }
        // At most 2^32 * 256 * 2.55.
        (weight as u64).max(1)
    }

    /// The requests in flight for scores, in 1/256: multiplied by full weight / current weight, so that a server with
    /// less than its full weight gets its part. Below 2^32.
    #[inline]
    pub fn burden(&self, index: usize, now: Nanos) -> u64 {
        let slot = &self.slots[index];
        let burden = u64::from(slot.cell.in_flight()) << 8;
        if slot.cell.state() & ADJUSTED == 0 { burden } else { self.adjusted_burden(index, now, burden) }
    }

    #[cold]
    fn adjusted_burden(&self, index: usize, now: Nanos, burden: u64) -> u64 {
        let whole = u128::from(self.whole_weight(index));
        let burden = u128::from(burden) * whole / u128::from(self.weight(index, now));
        burden.min(u128::from(u32::MAX)) as u64
    }

    /// Takes a place for one more request of the level; false if the level is at its limit.
    #[inline]
    pub fn enter(&self) -> bool {
        if !self.is_counted() {
            return true;
        }
        let max = self.max_conns;
        if max == 0 {
            self.in_flight.fetch_add(1, AcqRel);
            return true;
        }
        let take = |count: u32| (count < max).then_some(count + 1);
        self.in_flight.fetch_update(AcqRel, Acquire, take).is_ok()
    }

    /// Counts the requests in flight over all servers; for the plans of algorithms that use [`Level::in_flight`].
    pub fn count(&self) {
        self.counted.store(true, Relaxed);
    }

    #[inline]
    fn is_counted(&self) -> bool {
        self.counted.load(Relaxed)
    }

    /// Requests in flight over all servers, including the one that is being placed. The cost is proportional to the number
    /// of servers unless they are counted.
    #[inline]
    pub fn in_flight(&self) -> u32 {
        if self.is_counted() && self.len() > SUMMED {
            // Below 0 if requests end here that began in the cells of a worker that has died.
            return (self.in_flight.load(Acquire) as i32).max(1) as u32;
        }
        1 + self.slots.iter().map(|slot| slot.cell.in_flight()).sum::<u32>()
    }

    /// Returns the place that [`Level::enter`] took.
    #[inline]
    pub fn leave(&self) {
        if self.is_counted() {
            self.in_flight.fetch_sub(1, AcqRel);
        }
    }

    /// Whether it is at its limit.
    pub fn is_full(&self) -> bool {
        self.max_conns != 0 && self.in_flight.load(Acquire) >= self.max_conns
    }

    /// When a server closed by failures opens again; `None` if failures do not close it.
    pub fn opens_at(&self, index: usize) -> Option<Nanos> {
        let slot = &self.slots[index];
        let failed = slot.max_fails != 0 && slot.cell.fails() >= slot.max_fails;
        failed.then(|| slot.cell.checked().saturating_add(slot.fail_timeout).saturating_add(1))
    }

    pub fn len(&self) -> usize {
        self.slots.len()
    }

    pub fn weights(&self) -> impl Iterator<Item = u32> + '_ {
        self.slots.iter().map(|s| s.weight)
    }

    /// The weight that all servers have, if it is the same.
    pub fn equal_weight(&self) -> Option<u32> {
        let first = self.slots.first()?.weight;
        self.weights().all(|w| w == first).then_some(first)
    }
}

/// One membership of servers with the tables of one algorithm, shared by the workers in an `Arc`.
///
/// Building one costs time and memory in proportion to the servers (for consistent hashing: 160 points for each unit of
/// weight) and must not be done while a request waits. A change of membership is a new fleet with the same cells.
pub struct Fleet {
    servers: Box<[(ServerSpec, Arc<Cell>)]>,
    /// By priority, the backups last.
    levels: Box<[Arc<Level>]>,
    plans: Box<[Arc<dyn Plan>]>,
    /// (level, index) of each member.
    places: Box<[(u8, u32)]>,
    spec: Spec,
}

impl Fleet {
    /// Builds the tables for these servers, in their order.
    pub fn new(spec: &Spec, servers: Vec<(ServerSpec, Arc<Cell>)>) -> Result<Fleet, FleetError> {
        Fleet::with_groups(spec, servers, &[])
    }

    /// The same with limits for all servers of a priority together. Of several groups of one priority the last holds;
    /// backups belong to none.
    pub fn with_groups(
        spec: &Spec,
        servers: Vec<(ServerSpec, Arc<Cell>)>,
        groups: &[Group],
    ) -> Result<Fleet, FleetError> {
        Fleet::build(spec, servers, groups, &[])
    }

    /// The next fleet of an upstream that has changed. Requests in flight of `self` count for the limits of groups that
    /// have a limit before and after, and the table of clients is copied ([`Fleet::remember`]).
    pub fn next(
        &self,
        spec: &Spec,
        servers: Vec<(ServerSpec, Arc<Cell>)>,
        groups: &[Group],
    ) -> Result<Fleet, FleetError> {
        let next = Fleet::build(spec, servers, groups, &self.levels)?;
        next.remember(self);
        Ok(next)
    }

    fn build(
        spec: &Spec,
        servers: Vec<(ServerSpec, Arc<Cell>)>,
        groups: &[Group],
        before: &[Arc<Level>],
    ) -> Result<Fleet, FleetError> {
        if servers.iter().all(|(s, _)| s.backup) {
            return Err(FleetError::NoServers);
        }
        if servers.len() > 1 << 24 {
            return Err(FleetError::TooMany);
        }
        // The backups come after all priorities.
        let rank = |server: &ServerSpec| if server.backup { u64::MAX } else { u64::from(server.priority) };
        let ranks: BTreeSet<u64> = servers.iter().map(|(s, _)| rank(s)).collect();
        if ranks.len() > usize::from(u8::MAX) {
            return Err(FleetError::Priorities);
        }
        let ranks: Vec<u64> = ranks.into_iter().collect();
        // A single server is never closed by failures, because no other server could take its requests.
        let single = servers.len() == 1;
        let mut places = Vec::with_capacity(servers.len());
        let mut of_level: Vec<(Vec<Slot>, Vec<Box<str>>)> = ranks.iter().map(|_| Default::default()).collect();
        for (m, (server, cell)) in servers.iter().enumerate() {
            let level = ranks.partition_point(|r| *r < rank(server));
            let (slots, names) = &mut of_level[level];
            places.push((level as u8, slots.len() as u32));
            slots.push(Slot::new(Member(m as u32), server, cell.clone(), single));
            names.push(server.name.clone());
        }
        let mut levels = Vec::with_capacity(ranks.len());
        for (rank, (slots, names)) in ranks.into_iter().zip(of_level) {
            let total_weight = slots.iter().map(|s| u64::from(s.weight)).sum();
            if total_weight > u64::from(u32::MAX) {
                return Err(FleetError::Weights);
            }
            let group = groups.iter().rev().find(|g| u64::from(g.priority) == rank);
            let max_conns = group.map_or(0, |g| g.max_conns);
            let count_before = before.iter().find(|level| level.rank == rank && level.is_counted());
            let many = if slots.len() > SCAN { &slots[..] } else { &[] };
            levels.push(Arc::new(Level {
                cells: many.iter().map(|slot| slot.cell.clone()).collect(),
                slots: slots.into(),
                names: names.into(),
                total_weight,
                rank,
                max_conns,
                counted: AtomicBool::new(max_conns != 0),
                in_flight: count_before.map(|level| level.in_flight.clone()).unwrap_or_default(),
            }));
        }
        let plans = levels.iter().map(|level| (spec.entry().build)(spec, level)).collect();
        let (levels, places) = (levels.into(), places.into());
        Ok(Fleet { servers: servers.into(), levels, plans, places, spec: spec.clone() })
    }

    /// Copies the table of clients of the upstream's earlier fleet, for servers (identified by their cells) that are in
    /// both. Call it before the first pick. Nothing is copied from another algorithm or a table of another size.
    pub fn remember(&self, before: &Fleet) {
        let members: HashMap<_, _> = self.members().map(|m| (Arc::as_ptr(self.shared_cell(m)), m)).collect();
        self.remember_as(before, |old| members.get(&Arc::as_ptr(before.shared_cell(old))).copied());
    }

    /// The same where cells do not identify servers: `same` maps a member of the earlier fleet to a member of this one.
    pub fn remember_as(&self, before: &Fleet, same: impl Fn(Member) -> Option<Member>) {
        if self.spec.entry().name != before.spec.entry().name {
            return;
        }
        let plans = self.plans.iter().zip(before.levels.iter().zip(&before.plans));
        for (at, (plan, (old_level, old_plan))) in plans.enumerate() {
            let (Some(table), Some(old)) = (plan.table(), old_plan.table()) else { continue };
            table.copy(old, |value| {
                if value >> 31 == 1 {
                    return Some(value);
                }
                let slot = old_level.slots.get((value & SERVER) as usize)?;
                let (level, index) = self.place(same(slot.member)?);
                (level == at).then_some(value & !SERVER | index as u32)
            });
        }
    }

    /// How many servers, backups included.
    #[allow(clippy::len_without_is_empty)] // A fleet is never empty.
    pub fn len(&self) -> usize {
        self.servers.len()
    }

    /// Whether there is one server in all. Its failures do not close it.
    pub fn is_single(&self) -> bool {
        self.servers.len() == 1
    }

    /// A server has succeeded: its failures are over.
    #[inline]
    pub(crate) fn forgive(&self, slot: &Slot, now: Nanos) {
        if self.is_single() {
            slot.cell.forgive();
        } else {
            slot.revived(now, slot.cell.succeed());
        }
    }

    /// How many attempts one request may make when the configuration sets no limit: NGINX's number of servers that the
    /// configuration does not mark as down.
    pub fn tries(&self) -> usize {
        self.servers.iter().filter(|(s, _)| !s.down).count()
    }

    /// A server's configuration.
    #[inline]
    pub fn server(&self, Member(m): Member) -> &ServerSpec {
        &self.servers[m as usize].0
    }

    /// A server's shared state.
    #[inline]
    pub fn cell(&self, Member(m): Member) -> &Cell {
        &self.servers[m as usize].1
    }

    /// A server's shared state, to be given to the next fleet.
    pub fn shared_cell(&self, Member(m): Member) -> &Arc<Cell> {
        &self.servers[m as usize].1
    }

    /// All servers in order.
    pub fn members(&self) -> impl Iterator<Item = Member> + use<> {
        (0..self.servers.len() as u32).map(Member)
    }

    /// The algorithm.
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    /// Whether `member` takes new requests now: it is not down, draining, failed or full, and its group is not full.
    pub fn accepts(&self, now: Nanos, member: Member) -> bool {
        let (level, index) = self.place(member);
        !self.levels[level].is_full() && self.levels[level].accepts(index, now)
    }

    #[inline]
    pub(crate) fn place(&self, Member(m): Member) -> (usize, usize) {
        if self.levels.len() == 1 {
            return (0, m as usize);
        }
        let (level, index) = self.places[m as usize];
        (usize::from(level), index as usize)
    }

    #[inline]
    pub(crate) fn levels(&self) -> &[Arc<Level>] {
        &self.levels
    }

    pub(crate) fn plans(&self) -> &[Arc<dyn Plan>] {
        &self.plans
    }
}

impl fmt::Debug for Fleet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fleet").field("spec", &self.spec).field("servers", &self.servers).finish_non_exhaustive()
    }
}
