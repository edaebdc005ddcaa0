//! One membership of servers, shared by the workers.

use std::fmt;
use std::sync::Arc;

use crate::Nanos;
use crate::cell::Cell;
use crate::policy::Plan;
use crate::registry::Spec;

/// A server, as an index into the list that the fleet was built from.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Member(pub u32);

/// A server as configured.
#[derive(Clone, Debug)]
pub struct ServerSpec {
    /// The address as written, for instance `app1:80` or `unix:/run/app`. Consistent hashing places the server by it;
    /// servers of one name share a place and take turns.
    pub name: Box<str>,
    /// Share of the work; 0 takes none.
    pub weight: u32,
    /// Requests in flight at most; 0 is unlimited.
    pub max_conns: u32,
    /// Failures within `fail_timeout` after which the server is left alone for that time; 0 never.
    pub max_fails: u32,
    /// See `max_fails`.
    pub fail_timeout: Nanos,
    /// Used only when no other server can be.
    pub backup: bool,
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
            max_fails: 1,
            fail_timeout: 10_000_000_000,
            backup: false,
            down: false,
        }
    }
}

/// A list of servers that is not a fleet.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FleetError {
    /// Not one server that is not a backup.
    #[error("no servers")]
    NoServers,
    /// More than 2^24 servers.
    #[error("too many servers")]
    TooMany,
    /// The sum of the weights exceeds 2^32 - 1.
    #[error("the sum of the weights is too large")]
    Weights,
}

/// What picking reads of one server, beside its cell.
pub(crate) struct Slot {
    pub cell: Arc<Cell>,
    pub member: Member,
    pub weight: u32,
    pub max_conns: u32,
    /// 0 as well when failures do not close the server.
    pub max_fails: u32,
    pub fail_timeout: Nanos,
    pub down: bool,
}

/// The servers of one level: the primaries, or the backups. Algorithms see one level at a time and know a server by its
/// index in `slots`.
pub(crate) struct Level {
    pub slots: Box<[Slot]>,
    /// Names in the order of the slots.
    pub names: Box<[Box<str>]>,
    /// Sum of the weights, below 2^32.
    pub total_weight: u64,
}

impl Level {
    /// The one place that decides whether a server takes new work, short of having been tried by the request:
    /// not down, not draining, not failed within its fail timeout, not full.
    #[inline]
    pub fn accepts(&self, index: usize, now: Nanos) -> bool {
        let slot = &self.slots[index];
        let cell = &*slot.cell;
        if slot.down || cell.state() != 0 {
            return false;
        }
        if slot.max_fails != 0
            && cell.fails() >= slot.max_fails
            && now.saturating_sub(cell.checked()) <= slot.fail_timeout
        {
            return false;
        }
        slot.max_conns == 0 || cell.in_flight() < slot.max_conns
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
/// weight) and belongs off the request path. A change of membership is a new fleet over the same cells.
pub struct Fleet {
    servers: Box<[(ServerSpec, Arc<Cell>)]>,
    /// Primaries and, if there are any, backups.
    levels: Box<[Arc<Level>]>,
    plans: Box<[Arc<dyn Plan>]>,
    /// (level, index) of each member.
    places: Box<[(u8, u32)]>,
    spec: Spec,
}

impl Fleet {
    /// Builds the tables for these servers, in their order.
    pub fn new(spec: &Spec, servers: Vec<(ServerSpec, Arc<Cell>)>) -> Result<Fleet, FleetError> {
        if servers.iter().all(|(s, _)| s.backup) {
            return Err(FleetError::NoServers);
        }
        if servers.len() > 1 << 24 {
            return Err(FleetError::TooMany);
        }
        // A lone server is never closed by failures: there is nobody else.
        let single = servers.len() == 1;
        let mut places = vec![(0, 0); servers.len()];
        let mut levels = Vec::new();
        for backup in [false, true] {
            let of_level = || servers.iter().enumerate().filter(move |(_, (s, _))| s.backup == backup);
            let slots: Box<[Slot]> = of_level()
                .map(|(m, (server, cell))| Slot {
                    cell: cell.clone(),
                    member: Member(m as u32),
                    weight: server.weight,
                    max_conns: server.max_conns,
                    max_fails: if single { 0 } else { server.max_fails },
                    fail_timeout: server.fail_timeout,
                    down: server.down || server.weight == 0,
                })
                .collect();
            let total_weight = slots.iter().map(|s| u64::from(s.weight)).sum();
            if total_weight > u64::from(u32::MAX) {
                return Err(FleetError::Weights);
            }
            for (index, slot) in slots.iter().enumerate() {
                places[slot.member.0 as usize] = (u8::from(backup), index as u32);
            }
            if !slots.is_empty() {
                let names = of_level().map(|(_, (s, _))| s.name.clone()).collect();
                levels.push(Arc::new(Level { slots, names, total_weight }));
            }
        }
        let plans = levels.iter().map(|level| (spec.entry().build)(spec, level)).collect();
        let (levels, places) = (levels.into(), places.into());
        Ok(Fleet { servers: servers.into(), levels, plans, places, spec: spec.clone() })
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

    /// Whether `member` takes new work now: not down, draining, failed or full.
    pub fn accepts(&self, now: Nanos, member: Member) -> bool {
        let (level, index) = self.place(member);
        self.levels[level].accepts(index, now)
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
