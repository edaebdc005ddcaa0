//! One upstream of NGINX's configuration, and one worker's view of it.
//!
//! The master builds an [`Upstream`] in an arena; each worker has a [`Worker`], its own [`Driver`], outside. Each worker
//! notes which slots it holds, so that the one that takes the place of a worker that died gives them back.
//!
//! Where the membership changes while NGINX runs (`server … resolve`), the workers build their fleets themselves, over
//! states that the master has made in advance.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed};

use balanza_balancing::registry::Spec;
use balanza_balancing::{
    Driver, Fleet, FleetError, Member, Nanos, NoServer, Outcome, Report, ServerSpec, ServerState, Start, Tried,
    key_hash,
};

/// Cells for servers that are not known in advance. When they are used up, a worker has new servers' states for itself.
const SPARE_CELLS: usize = 1024;
/// Stands for no state of the upstream's.
const PRIVATE: u32 = u32::MAX;

/// A server of NGINX's list: as configured, and the address that tells it from others of its name.
pub struct Peer {
    /// What the library knows of it.
    pub server: ServerSpec,
    /// NGINX's name of the peer.
    pub address: Vec<u8>,
}

struct Place {
    /// The server's identity; 0 is that of no server.
    identity: AtomicU64,
    state: Arc<ServerState>,
}

/// What the workers share of an upstream.
pub struct Upstream {
    spec: Spec,
    /// `None` where the membership changes.
    fleet: Option<Arc<Fleet>>,
    /// By member, where there is a fleet.
    places: Box<[Place]>,
    /// Slots taken and not given back, for each worker and place.
    held: Box<[AtomicU32]>,
}

impl Upstream {
    /// Builds it for at most `workers` workers. A `fixed` membership is that of `peers`. It takes over what is known of servers
    /// that were in the upstream `before`, which is that of the replaced configuration.
    pub fn new(
        spec: &Spec,
        peers: &[Peer],
        fixed: bool,
        workers: usize,
        before: Option<&Upstream>,
    ) -> Result<Upstream, FleetError> {
        let mut identities = identities(peers);
        if !fixed {
            identities.resize(peers.len() + SPARE_CELLS, 0);
        }
        let place = |identity: &u64| Place { identity: AtomicU64::new(*identity), state: Arc::default() };
        let places: Box<[Place]> = identities.iter().map(place).collect();
        let known: HashMap<u64, &Place> = before.map_or_else(HashMap::new, |before| {
            before.places.iter().map(|place| (place.identity.load(Acquire), place)).collect()
        });
        for (place, identity) in places.iter().zip(&identities).filter(|(_, identity)| **identity != 0) {
            if let Some(old) = known.get(identity) {
                place.state.remember(&old.state);
            }
        }
        let fleet = match fixed {
            true => {
                let servers = peers.iter().zip(&places).map(|(p, place)| (p.server.clone(), place.state.clone()));
                Some(Arc::new(Fleet::new(spec, servers.collect())?))
            }
            false => None,
        };
        if let (Some(fleet), Some(before)) = (&fleet, before)
            && let Some(old) = &before.fleet
        {
            let members: HashMap<u64, Member> = identities.iter().copied().zip(fleet.members()).collect();
            fleet.remember_as(old, |Member(m)| members.get(&before.places[m as usize].identity.load(Relaxed)).copied());
        }
        // Zeros that are never written: the rows of workers that do not run cost addresses, but no memory.
        let held = Box::<[AtomicU32]>::new_zeroed_slice(places.len() * workers);
        // SAFETY: an atomic number may be zero.
        let held = unsafe { held.assume_init() };
        Ok(Upstream { spec: spec.clone(), fleet, places, held })
    }

    /// Makes what the algorithm makes with its first driver, which is to be shared like everything else.
    pub fn ready(&self, workers: usize) {
        if let Some(fleet) = &self.fleet {
            Driver::new(fleet.clone(), 0, Start { worker: 0, workers });
        }
    }

    /// The state of a server that has appeared, as an index into `places`.
    fn claim(&self, identity: u64, known: &mut HashMap<u64, u32>) -> u32 {
        if let Some(index) = known.get(&identity) {
            return *index;
        }
        for (index, place) in self.places.iter().enumerate() {
            let taken = place.identity.compare_exchange(0, identity, AcqRel, Acquire);
            // Another worker may have been faster with the same server.
            if taken.is_ok() || taken == Err(identity) {
                known.insert(identity, index as u32);
                return index as u32;
            }
        }
        PRIVATE
    }
}

/// What a server is known by: its address; those that share one are told apart by their order. Never 0.
fn identities(peers: &[Peer]) -> Vec<u64> {
    let mut seen: HashMap<&[u8], u64> = HashMap::with_capacity(peers.len());
    let identity = |peer: &'_ Peer, nth: u64| key_hash(&peer.address).wrapping_add(nth).max(1);
    let mut list = Vec::with_capacity(peers.len());
    for peer in peers {
        let nth = seen.entry(&peer.address).or_default();
        list.push(identity(peer, *nth));
        *nth += 1;
    }
    list
}

/// One worker's view of an upstream.
pub struct Worker {
    driver: Driver,
    /// This worker's row of `Upstream::held`.
    held: &'static [AtomicU32],
    /// The state of each member; `None` where they have the same numbers.
    states: Option<Box<[u32]>>,
    tells_headers: bool,
}

impl Worker {
    /// The view of worker `start.worker`. `peers` is the membership where it is not fixed.
    pub fn new(upstream: &'static Upstream, peers: &[Peer], seed: u64, start: Start) -> Result<Worker, FleetError> {
        let (fleet, states) = match &upstream.fleet {
            Some(fleet) => (fleet.clone(), None),
            None => {
                let places = upstream.places.iter().zip(0u32..);
                let mut known = places.map(|(place, index)| (place.identity.load(Acquire), index)).collect();
                let mut states = Vec::with_capacity(peers.len());
                let mut servers = Vec::with_capacity(peers.len());
                for (peer, identity) in peers.iter().zip(identities(peers)) {
                    let index = upstream.claim(identity, &mut known);
                    let state = upstream.places.get(index as usize).map(|place| place.state.clone());
                    states.push(index);
                    servers.push((peer.server.clone(), state.unwrap_or_default()));
                }
                (Arc::new(Fleet::new(&upstream.spec, servers)?), Some(states.into()))
            }
        };
        let row = upstream.places.len();
        let held = upstream.held.get(start.worker * row..).and_then(|rows| rows.get(..row)).unwrap_or_default();
        let driver = Driver::new(fleet, seed, start);
        let tells_headers = driver.wants_header();
        Ok(Worker { driver, held, states, tells_headers })
    }

    #[inline]
    fn held(&self, Member(m): Member) -> Option<&'static AtomicU32> {
        let index = self.states.as_ref().map_or(m, |states| states[m as usize]);
        self.held.get(index as usize)
    }

    /// [`Driver::pick`], noted.
    #[inline]
    pub fn pick(&mut self, now: Nanos, key: &[u8], tried: &mut Tried) -> Result<Member, NoServer> {
        let member = self.driver.pick(now, key, tried)?;
        if let Some(held) = self.held(member) {
            // Nobody else writes this worker's row.
            held.store(held.load(Relaxed) + 1, Relaxed);
        }
        Ok(member)
    }

    /// [`Driver::complete`] for what [`Worker::pick`] chose.
    #[inline]
    pub fn complete(&mut self, now: Nanos, member: Member, report: &Report) {
        if let (true, Some(time)) = (self.tells_headers, report.header_time) {
            self.driver.header(now, member, time);
        }
        self.driver.complete(now, member, report);
        if let Some(held) = self.held(member) {
            held.store(held.load(Relaxed).saturating_sub(1), Relaxed);
        }
    }

    /// Gives back the slots that a worker that died held of this server; returns how many. For a worker that begins.
    pub fn recover(&mut self, now: Nanos, member: Member) -> u32 {
        let lost = self.held(member).map_or(0, |held| held.load(Relaxed));
        for _ in 0..lost {
            self.complete(now, member, &Report { outcome: Outcome::Neutral, ..Report::default() });
        }
        lost
    }
}

#[cfg(test)]
mod tests {
    use balanza_balancing::registry::{Host, entries, find};

    use super::*;

    fn peers(count: usize) -> Vec<Peer> {
        let peer = |i: usize| Peer { server: ServerSpec::new("app"), address: format!("10.0.0.{i}:80").into() };
        (0..count).map(peer).collect()
    }

    fn upstream(name: &str, count: usize, fixed: bool, before: Option<&Upstream>) -> &'static Upstream {
        let spec = Spec::new(find(name).unwrap(), &[]).unwrap();
        Box::leak(Box::new(Upstream::new(&spec, &peers(count), fixed, 4, before).unwrap()))
    }

    fn start(worker: usize) -> Start {
        Start { worker, workers: 4 }
    }

    const DONE: Report =
        Report { outcome: Outcome::Success, header_time: Some(5_000), last_byte_time: Some(9_000), bytes: 10 };

    #[test]
    fn what_a_dead_worker_held_comes_back() {
        let up = upstream("least_conn", 2, true, None);
        let mut dead = Worker::new(up, &[], 1, start(1)).unwrap();
        let mut other = Worker::new(up, &[], 1, start(2)).unwrap();
        let pick = |w: &mut Worker| w.pick(1, b"", &mut Tried::default()).unwrap();
        let (a, _) = (pick(&mut dead), pick(&mut dead));
        let kept = pick(&mut other);
        dead.complete(2, a, &DONE);
        drop(dead);
        let total = |up: &Upstream| up.places.iter().map(|p| p.state.in_flight()).sum::<u32>();
        assert_eq!(total(up), 2);
        let mut next = Worker::new(up, &[], 1, start(1)).unwrap();
        assert_eq!((0..2).map(|m| next.recover(3, Member(m))).sum::<u32>(), 1);
        assert_eq!((0..2).map(|m| next.recover(3, Member(m))).sum::<u32>(), 0);
        assert_eq!(total(up), 1);
        other.complete(4, kept, &DONE);
        assert_eq!(total(up), 0);
    }

    #[test]
    fn what_is_known_of_servers_survives_a_change() {
        let old = upstream("last_server", 3, true, None);
        let mut worker = Worker::new(old, &[], 1, start(0)).unwrap();
        let served = worker.pick(1, b"client", &mut Tried::default()).unwrap();
        worker.complete(2, served, &DONE);
        // The same servers in another order, and one more.
        let spec = Spec::new(find("last_server").unwrap(), &[]).unwrap();
        let mut list = peers(4);
        list.reverse();
        let new: &'static Upstream = Box::leak(Box::new(Upstream::new(&spec, &list, true, 4, Some(old)).unwrap()));
        let place = 3 - served.0 as usize;
        assert_eq!(new.places[place].state.last_byte_time(), Some(9_000));
        let mut worker = Worker::new(new, &[], 1, start(0)).unwrap();
        for _ in 0..5 {
            assert_eq!(worker.pick(3, b"client", &mut Tried::default()).unwrap(), Member(place as u32));
        }
    }

    #[test]
    fn workers_share_the_cells_of_servers_that_appear() {
        let up = upstream("least_conn", 0, false, None);
        assert!(Worker::new(up, &[], 1, start(0)).is_err(), "no servers yet");
        let mut one = Worker::new(up, &peers(3), 1, start(0)).unwrap();
        let mut list = peers(4);
        list.remove(0);
        let mut two = Worker::new(up, &list, 1, start(1)).unwrap();
        // Member 1 of the one is member 0 of the other; in flight there counts for both.
        let mut tried = Tried::default();
        tried.insert(Member(0));
        tried.insert(Member(2));
        assert_eq!(one.pick(1, b"", &mut tried).unwrap(), Member(1));
        for _ in 0..2 {
            assert_ne!(two.pick(1, b"", &mut Tried::default()).unwrap(), Member(0));
        }
        one.complete(2, Member(1), &DONE);
        assert_eq!(two.pick(3, b"", &mut Tried::default()).unwrap(), Member(0));
    }

    #[test]
    fn more_servers_than_cells_work() {
        let up = upstream("round_robin", 0, false, None);
        let many: Vec<Peer> = (0..SPARE_CELLS + 10)
            .map(|i| Peer { server: ServerSpec::new("app"), address: format!("a{i}").into() })
            .collect();
        let mut worker = Worker::new(up, &many, 1, Start::default()).unwrap();
        for _ in 0..2 * many.len() {
            let member = worker.pick(1, b"", &mut Tried::default()).unwrap();
            worker.complete(2, member, &DONE);
        }
    }

    #[test]
    fn every_algorithm_without_a_host_runs() {
        for entry in entries().iter().filter(|e| matches!(e.host, Host::Any | Host::Idleness)) {
            let up = upstream(entry.name, 40, true, None);
            up.ready(4);
            let mut worker = Worker::new(up, &[], 1, start(3)).unwrap();
            for i in 0..100u64 {
                let key = i.to_le_bytes();
                let member = worker.pick(i, &key[..4], &mut Tried::default()).unwrap();
                worker.complete(i + 1, member, &DONE);
            }
            assert!(up.held.iter().all(|held| held.load(Relaxed) == 0), "{}", entry.name);
        }
    }
}
