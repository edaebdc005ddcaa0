//! One membership of servers, shared by the workers.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;

use crate::Nanos;
use crate::policy::Plan;
use crate::server::{Member, ServerSpec, Slot};
use crate::server_state::ServerState;
use crate::spec::Spec;
use crate::tier::{SERVER, Tier};

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

/// One membership of servers with the tables of one algorithm, shared by the workers in an `Arc`.
///
/// Building one costs time and memory in proportion to the servers (for consistent hashing: 160 points for each unit of
/// weight, at most 2^24) and must not be done while a request waits. A change of membership is a new fleet with the same states.
pub struct Fleet {
    servers: Box<[(ServerSpec, Arc<ServerState>)]>,
    /// By priority, the backups last.
    tiers: Box<[Arc<Tier>]>,
    plans: Box<[Arc<dyn Plan>]>,
    /// (tier, index) of each member.
    places: Box<[(u8, u32)]>,
    spec: Spec,
}

impl Fleet {
    /// Builds the tables for these servers, in their order.
    pub fn new(spec: &Spec, servers: Vec<(ServerSpec, Arc<ServerState>)>) -> Result<Fleet, FleetError> {
        if servers.iter().all(|(server, _)| server.backup) {
            return Err(FleetError::NoServers);
        }
        Fleet::with_groups(spec, servers, &[])
    }

    /// The same with limits for all servers of a priority together, and for a list that may be empty or have backups only.
    /// Of several groups of one priority the last holds; backups belong to none.
    pub fn with_groups(
        spec: &Spec,
        servers: Vec<(ServerSpec, Arc<ServerState>)>,
        groups: &[Group],
    ) -> Result<Fleet, FleetError> {
        Fleet::build(spec, servers, groups, &[], None)
    }

    /// The next fleet of an upstream that has changed. Requests in flight of `self` count for the limits of groups that
    /// have a limit before and after, and the table of clients is copied ([`Fleet::remember`]).
    pub fn next(
        &self,
        spec: &Spec,
        servers: Vec<(ServerSpec, Arc<ServerState>)>,
        groups: &[Group],
    ) -> Result<Fleet, FleetError> {
        let next = Fleet::build(spec, servers, groups, &self.tiers, None)?;
        next.remember(self);
        Ok(next)
    }

    /// A fleet of another algorithm over the servers of this one, whose states it only reads: it keeps what it knows of them
    /// in `kept`. `before` is the shadow's earlier fleet.
    pub(crate) fn shadow(
        &self,
        spec: &Spec,
        kept: &[Arc<ServerState>],
        before: Option<&Fleet>,
    ) -> Result<Fleet, FleetError> {
        let tiers = before.map_or(&[][..], |before| &before.tiers);
        let shadow = Fleet::build(spec, self.servers.to_vec(), &[], tiers, Some((self, kept)))?;
        before.into_iter().for_each(|before| shadow.remember(before));
        Ok(shadow)
    }

    fn build(
        spec: &Spec,
        servers: Vec<(ServerSpec, Arc<ServerState>)>,
        groups: &[Group],
        before: &[Arc<Tier>],
        shadow: Option<(&Fleet, &[Arc<ServerState>])>,
    ) -> Result<Fleet, FleetError> {
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
        let mut of_tier: Vec<Vec<(Slot, Box<str>)>> = ranks.iter().map(|_| Vec::new()).collect();
        for (m, (server, state)) in servers.iter().enumerate() {
            let tier = ranks.partition_point(|r| *r < rank(server));
            places.push((tier as u8, of_tier[tier].len() as u32));
            let kept = shadow.map(|(_, kept)| kept[m].clone());
            let slot = Slot::new(Member(m as u32), server, state.clone(), kept, single);
            of_tier[tier].push((slot, server.name.clone()));
        }
        let weight = servers.iter().map(|(server, _)| u64::from(server.weight)).sum();
        let mut tiers = Vec::with_capacity(ranks.len());
        for (at, (rank, members)) in ranks.into_iter().zip(of_tier).enumerate() {
            let real = shadow.map(|(real, _)| real.tiers[at].clone());
            let group = groups.iter().rev().find(|g| u64::from(g.priority) == rank);
            let tier = Tier::new(rank, members, weight, group.map_or(0, |g| g.max_conns), before, real);
            if tier.total_weight > u64::from(u32::MAX) {
                return Err(FleetError::Weights);
            }
            tiers.push(Arc::new(tier));
        }
        let plans = tiers.iter().map(|tier| (spec.entry().build)(spec, tier)).collect();
        let (tiers, places) = (tiers.into(), places.into());
        Ok(Fleet { servers: servers.into(), tiers, plans, places, spec: spec.clone() })
    }

    /// Copies the table of clients of the upstream's earlier fleet, for servers (identified by their states) that are in
    /// both. Call it before the first pick. Nothing is copied from another algorithm or a table of another size.
    pub fn remember(&self, before: &Fleet) {
        let members: HashMap<_, _> = self.members().map(|m| (Arc::as_ptr(self.shared_cell(m)), m)).collect();
        self.remember_as(before, |old| members.get(&Arc::as_ptr(before.shared_cell(old))).copied());
    }

    /// The same where states do not identify servers: `same` maps a member of the earlier fleet to a member of this one.
    pub fn remember_as(&self, before: &Fleet, same: impl Fn(Member) -> Option<Member>) {
        if self.spec.entry().name != before.spec.entry().name {
            return;
        }
        let plans = self.plans.iter().zip(before.tiers.iter().zip(&before.plans));
        for (at, (plan, (old_tier, old_plan))) in plans.enumerate() {
            let (Some(table), Some(old)) = (plan.table(), old_plan.table()) else { continue };
            table.copy(old, |value| {
                if value >> 31 == 1 {
                    return Some(value);
                }
                let slot = old_tier.slots.get((value & SERVER) as usize)?;
                let (tier, index) = self.place(same(slot.member)?);
                (tier == at).then_some(value & !SERVER | index as u32)
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
            slot.state.forgive();
        } else {
            slot.revived(now, slot.state.succeed());
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
    pub fn state(&self, Member(m): Member) -> &ServerState {
        &self.servers[m as usize].1
    }

    /// A server's shared state, to be given to the next fleet.
    pub fn shared_cell(&self, Member(m): Member) -> &Arc<ServerState> {
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
        let (tier, index) = self.place(member);
        !self.tiers[tier].is_full() && self.tiers[tier].accepts(index, now)
    }

    #[inline]
    pub(crate) fn place(&self, Member(m): Member) -> (usize, usize) {
        if self.tiers.len() == 1 {
            return (0, m as usize);
        }
        let (tier, index) = self.places[m as usize];
        (usize::from(tier), index as usize)
    }

    #[inline]
    pub(crate) fn tiers(&self) -> &[Arc<Tier>] {
        &self.tiers
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
