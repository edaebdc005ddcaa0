//! Servers that are chosen from together.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed};

use crate::Nanos;
use crate::server::Slot;
use crate::server_state::{ADJUSTED, CLOSED, ServerState};

/// Up to this many servers the algorithms scan all of them with NGINX's arithmetic and so agree with it pick by pick;
/// beyond, structures with a cost that does not grow take over.
pub(crate) const SCAN: usize = 32;

/// The bits of an index of a server.
pub(crate) const SERVER: u32 = (1 << 24) - 1;

/// Up to this number of servers, the requests in flight are summed up when needed, which is quicker than a count that
/// all workers change.
const SUMMED: usize = 8;

/// The servers of one tier: those of one priority, or the backups. Algorithms see one tier at a time and know a server
/// by its index in `slots`.
pub(crate) struct Tier {
    pub slots: Box<[Slot]>,
    /// The states of the slots, so that both are fetched at once; empty for few servers, whose states are in the cache.
    states: Box<[Arc<ServerState>]>,
    /// Names in the order of the slots.
    pub names: Box<[Box<str>]>,
    /// Sum of the weights, below 2^32.
    pub total_weight: u64,
    /// Sum of the weights of all tiers.
    pub fleet_weight: u64,
    /// The priority; backups have the greatest.
    rank: u64,
    /// Requests in flight over all servers at most, and how many there are. They are counted where there is a limit, or
    /// the algorithm goes by them.
    max_conns: u32,
    counted: AtomicBool,
    in_flight: Arc<AtomicU32>,
    /// The algorithm tells the states of requests in flight over time.
    tells_presence: AtomicBool,
    /// Of a shadow: the tier whose servers these are.
    real: Option<Arc<Tier>>,
}

impl Tier {
    /// The servers of a rank, with their names, in a fleet of this weight. `max_conns` is the limit over all of them, 0 is
    /// none. Requests in flight of the tier of the same rank `before` count. A shadow's tier has the limit of the `real` one.
    pub fn new(
        rank: u64,
        servers: Vec<(Slot, Box<str>)>,
        fleet_weight: u64,
        max_conns: u32,
        before: &[Arc<Tier>],
        real: Option<Arc<Tier>>,
    ) -> Tier {
        let (slots, names): (Vec<Slot>, Vec<Box<str>>) = servers.into_iter().unzip();
        let counted_before = before.iter().find(|tier| tier.rank == rank && tier.is_counted());
        let many = if slots.len() > SCAN { &slots[..] } else { &[] };
        Tier {
            states: many.iter().map(|slot| slot.state.clone()).collect(),
            total_weight: slots.iter().map(|slot| u64::from(slot.weight)).sum(),
            slots: slots.into(),
            names: names.into(),
            fleet_weight,
            rank,
            max_conns,
            counted: AtomicBool::new(max_conns != 0),
            in_flight: counted_before.map(|tier| tier.in_flight.clone()).unwrap_or_default(),
            tells_presence: AtomicBool::new(false),
            real,
        }
    }

    /// The only place that decides whether a server takes new requests: not down, not draining, not failed within its
    /// fail timeout, not full. The servers that the request has tried are checked elsewhere.
    #[inline]
    pub fn accepts(&self, index: usize, now: Nanos) -> bool {
        let slot = &self.slots[index];
        let flags = self.states.get(index).unwrap_or(&slot.state).flags();
        if slot.closed || flags & CLOSED != 0 || slot.failed(now) {
            return false;
        }
        let limit = slot.limit_in(flags);
        limit == 0 || slot.state.in_flight() < limit
    }

    /// The server's current weight, in 1/256 of a unit: less during slow start or with a share below 100 percent, more
    /// with a share above. Slow start grows linearly from a sixteenth.
    #[inline]
    pub fn weight(&self, index: usize, now: Nanos) -> u64 {
        let slot = &self.slots[index];
        if slot.state.flags() & ADJUSTED == 0 { self.whole_weight(index) } else { self.adjusted_weight(index, now) }
    }

    /// The configured weight in 1/256 of a unit.
    #[inline]
    pub fn whole_weight(&self, index: usize) -> u64 {
        u64::from(self.slots[index].weight) << 8
    }

    #[cold]
    fn adjusted_weight(&self, index: usize, now: Nanos) -> u64 {
        let slot = &self.slots[index];
        let mut weight = u128::from(self.whole_weight(index)) * u128::from(slot.state.share()) / 100;
        let warming = match self.is_shadow() {
            true => slot.state.warmed(now, slot.slow_start),
            false => slot.state.warming(now, slot.slow_start),
        };
        if let Some(elapsed) = warming {
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
        let burden = u64::from(slot.state.in_flight()) << 8;
        if slot.state.flags() & ADJUSTED == 0 { burden } else { self.adjusted_burden(index, now, burden) }
    }

    #[cold]
    fn adjusted_burden(&self, index: usize, now: Nanos, burden: u64) -> u64 {
        let whole = u128::from(self.whole_weight(index));
        let burden = u128::from(burden) * whole / u128::from(self.weight(index, now));
        burden.min(u128::from(u32::MAX)) as u64
    }

    /// Takes a place for one more request of the tier; false if the tier is at its limit.
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

    /// Counts the requests in flight over all servers; for the plans of algorithms that use [`Tier::in_flight`].
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
            // Below 0 if requests end here that began in the states of a worker that has died.
            return (self.in_flight.load(Acquire) as i32).max(1) as u32;
        }
        1 + self.slots.iter().map(|slot| slot.state.in_flight()).sum::<u32>()
    }

    /// Returns the place that [`Tier::enter`] took.
    #[inline]
    pub fn leave(&self) {
        if self.is_counted() {
            self.in_flight.fetch_sub(1, AcqRel);
        }
    }

    /// Whether it belongs to a shadow, which changes nothing that the states of servers have.
    pub fn is_shadow(&self) -> bool {
        self.real.is_some()
    }

    /// Whether an algorithm that wants the states to know of requests in flight over time has to tell them: a shadow does
    /// not if the algorithm that decides does. For plans.
    pub fn tell_presence(&self) -> bool {
        let tells = !self.real.as_ref().is_some_and(|real| real.tells_presence.load(Relaxed));
        self.tells_presence.store(tells, Relaxed);
        tells
    }

    /// Whether it is at its limit.
    pub fn is_full(&self) -> bool {
        if let Some(real) = &self.real {
            return real.is_full();
        }
        self.max_conns != 0 && self.in_flight.load(Acquire) >= self.max_conns
    }

    /// When a server closed by failures opens again; `None` if failures do not close it.
    pub fn opens_at(&self, index: usize) -> Option<Nanos> {
        let slot = &self.slots[index];
        let failed = slot.max_fails != 0 && slot.state.fails() >= slot.max_fails;
        failed.then(|| slot.opens_at())
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
