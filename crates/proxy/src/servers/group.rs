//! An upstream as one worker sees it.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use balanza_balancing::overload::{Hedge, Notice, RetryBudget};
use balanza_balancing::{Driver, Fleet, Start};
use balanza_config::model::{self, ExplainedPicks, Level};

use super::address::address_text;
use super::blocks::Recording;
use super::bound::BoundConnections;
use super::external::External;
use super::feedback::Feedback;
use super::membership::{Membership, Newest, Present, ServerId, Shared};
use super::multiplexed::SharedPool;
use super::open::Open;
use super::picks::Sampler;
use super::pool::IdlePool;
use super::probe::Prober;
use super::queue::Queue;
use super::shadows::{Beside, Shadows};
use crate::log::error::ErrorWriter;
use crate::metrics::{Registry, ServerMetrics};

/// The servers of an upstream at one time. A request keeps those that it began with.
pub struct Members {
    /// What the workers share of them.
    pub shared: Arc<Membership>,
    /// This worker's instance of the algorithm.
    pub driver: Rc<RefCell<Driver>>,
    /// Its instances of the shadows; none without shadows.
    pub shadows: Option<Rc<Shadows>>,
    /// The servers' addresses as `$upstream_addr` shows them.
    pub addresses: Vec<Rc<str>>,
    /// What this worker counts of them.
    pub metrics: Vec<Arc<ServerMetrics>>,
    /// What it counts for the experiment that runs.
    pub recording: Option<Rc<Recording>>,
}

/// Where servers were in a list before, as far as their order is the same.
struct PlacesBefore<'a> {
    before: &'a [ServerId],
    next: usize,
}

impl PlacesBefore<'_> {
    /// The place of the next server; none if it is new, or was elsewhere. Those before it that are not present any more are
    /// passed over.
    fn of(&mut self, id: ServerId, present: &Present) -> Option<usize> {
        while self.before.get(self.next).is_some_and(|other| *other != id && !present.contains(other)) {
            self.next += 1;
        }
        let place = self.next;
        (self.before.get(place) == Some(&id)).then(|| {
            self.next += 1;
            place
        })
    }
}

/// The worker that a view of upstreams is for.
#[derive(Clone)]
pub struct Viewer {
    /// Its number, and how many there are.
    pub start: Start,
    /// The seed of its random numbers.
    pub seed: u64,
    /// Its number among all workers that there have been.
    pub serial: u64,
    /// Choices of servers are looked at from time to time.
    pub samples: bool,
    /// Counters of servers.
    pub metrics: Arc<Registry<ServerId, ServerMetrics>>,
}

impl Members {
    /// What the membership before has of the same servers is taken over: a change of one among thousands must not keep the
    /// worker's requests waiting.
    fn new(shared: Arc<Membership>, viewer: &Viewer, before: Option<&Members>) -> Members {
        let mut addresses = Vec::with_capacity(shared.ids.len());
        let mut metrics = Vec::with_capacity(shared.ids.len());
        let mut places = PlacesBefore { before: before.map_or(&[], |before| &before.shared.ids), next: 0 };
        for (id, server) in shared.ids.iter().zip(&shared.servers) {
            let known = before.zip(places.of(*id, &shared.present));
            addresses.push(match known {
                Some((before, place)) => Rc::clone(&before.addresses[place]),
                None => address_text(&server.address),
            });
            metrics.push(match known {
                Some((before, place)) => Arc::clone(&before.metrics[place]),
                None => viewer.metrics.of(id, viewer.serial),
            });
        }
        let driver = Driver::new(Arc::clone(&shared.fleet), viewer.seed, viewer.start);
        let shadows = Shadows::of(&shared.shadows, viewer.seed, viewer.start).map(Rc::new);
        let recording = shared.balancing.block.as_ref().map(|block| Rc::new(Recording::new(block)));
        Members { driver: Rc::new(RefCell::new(driver)), shadows, addresses, metrics, recording, shared }
    }

    /// What the same servers count for a block of an experiment.
    fn recording_of(&self, membership: &Membership) -> Option<Rc<Recording>> {
        let block = membership.balancing.block.as_ref()?;
        let kept = self.recording.clone().filter(|recording| recording.is_of(block));
        Some(kept.unwrap_or_else(|| Rc::new(Recording::new(block))))
    }

    /// The servers and their state.
    pub fn fleet(&self) -> &Fleet {
        &self.shared.fleet
    }

    /// Who a server is.
    pub fn id(&self, member: balanza_balancing::Member) -> ServerId {
        self.shared.ids[member.0 as usize]
    }
}

/// An upstream as one worker sees it.
pub struct Upstream {
    /// Its configuration.
    pub conf: Arc<model::Upstream>,
    /// Its servers now.
    members: RefCell<Rc<Members>>,
    /// Its servers, also those that this worker was not told of yet.
    newest: Newest,
    /// Idle connections to servers; they outlive configurations and changes that leave a server as it is.
    pub idle: Rc<RefCell<IdlePool>>,
    /// Connections that belong to clients, with `ntlm`; they too outlive configurations.
    pub bound: Option<Rc<BoundConnections>>,
    /// Connections of HTTP/2, which requests share; they too outlive configurations.
    pub multiplexed: Rc<RefCell<SharedPool>>,
    /// Its connections to servers, whether they are in use or not; they outlive configurations.
    pub open: Rc<Open>,
    /// `no live upstreams` was logged and no server has answered since.
    pub unavailable_logged: Cell<bool>,
    /// The program that chooses, with `balance external`.
    pub external: Option<Rc<External>>,
    /// Asks servers for what the algorithm wants to know.
    pub prober: RefCell<Option<Rc<Prober>>>,
    /// Servers report their load in a field of their responses.
    pub feedback: Option<Feedback>,
    /// Where requests wait while no server can take them.
    pub queue: Option<Arc<Queue>>,
    /// How many requests may be retried.
    pub retry_budget: Option<Arc<RetryBudget>>,
    /// When requests are sent to a second server.
    pub hedge: Option<Arc<Hedge>>,
    /// Looks at choices for the API.
    pub sampler: Option<Rc<Sampler>>,
    /// What is asked of choices.
    pub explains: ExplainedPicks,
    errors: ErrorWriter,
    viewer: RefCell<Viewer>,
}

impl Upstream {
    /// This worker's part of an upstream, which takes over what it can of `before`, the same upstream under the
    /// configuration before.
    pub fn new(
        shared: &Shared,
        before: Option<&Rc<Upstream>>,
        explains: ExplainedPicks,
        errors: &ErrorWriter,
        viewer: &Viewer,
    ) -> Upstream {
        let conf = &shared.conf;
        let membership = shared.membership();
        let same = before.filter(|before| Arc::ptr_eq(&before.members().shared.fleet, &membership.fleet));
        let members = match same.map(|before| before.members()) {
            Some(members) if Arc::ptr_eq(&members.shared, &membership) => members,
            // Another `sticky`, or other parameters of connections: the algorithm goes on where it was.
            Some(members) => Rc::new(Members {
                driver: Rc::clone(&members.driver),
                shadows: match Beside::are_same(&members.shared.shadows, &membership.shadows) {
                    true => members.shadows.clone(),
                    false => Shadows::of(&membership.shadows, viewer.seed, viewer.start).map(Rc::new),
                },
                addresses: members.addresses.clone(),
                metrics: members.metrics.clone(),
                recording: members.recording_of(&membership),
                shared: membership,
            }),
            None => Rc::new(Members::new(membership, viewer, before.map(|before| before.members()).as_deref())),
        };
        let present = &members.shared.present;
        let open = before.map(|before| Rc::clone(&before.open)).unwrap_or_default();
        open.resume(|id| members.shared.is_down(id));
        // Without `ntlm`, clients may have authenticated themselves over connections that all can use.
        let idle = match before.filter(|before| before.conf.ntlm == conf.ntlm) {
            Some(before) => {
                let mut idle = before.idle.borrow_mut();
                idle.set_keepalive(conf.keepalive);
                idle.keep_only(present);
                Rc::clone(&before.idle)
            }
            None => Rc::new(RefCell::new(IdlePool::new(conf.keepalive, present))),
        };
        let multiplexed = match before {
            Some(before) => {
                let mut multiplexed = before.multiplexed.borrow_mut();
                multiplexed.set_keepalive(conf.keepalive);
                multiplexed.keep_only(present);
                Rc::clone(&before.multiplexed)
            }
            None => Rc::new(RefCell::new(SharedPool::new(conf.keepalive, present))),
        };
        let bound = conf.ntlm.then(|| match before.and_then(|before| before.bound.clone()) {
            Some(bound) => {
                bound.keep_only(present);
                bound
            }
            None => Rc::new(BoundConnections::new(present)),
        });
        let (external, prober) = match same {
            Some(before) => (before.external.clone(), before.prober.borrow().clone()),
            None => (External::of(conf, errors).map(Rc::new), Prober::of(conf, &members, errors).map(Rc::new)),
        };
        Upstream {
            conf: Arc::clone(conf),
            members: RefCell::new(members),
            newest: shared.newest(),
            idle,
            bound,
            multiplexed,
            open,
            unavailable_logged: Cell::new(false),
            external,
            prober: RefCell::new(prober),
            feedback: Feedback::of(conf),
            queue: shared.queue.clone(),
            retry_budget: shared.retry_budget().cloned(),
            hedge: shared.hedge().cloned(),
            errors: errors.clone(),
            sampler: viewer.samples.then(|| {
                let kept = before.and_then(|before| before.sampler.clone());
                kept.unwrap_or_else(|| Rc::new(Sampler::new(&shared.picks)))
            }),
            explains,
            viewer: RefCell::new(viewer.clone()),
        }
    }

    /// Its servers now.
    pub fn members(&self) -> Rc<Members> {
        Rc::clone(&self.members.borrow())
    }

    /// Whether these are its servers now.
    pub fn has(&self, members: &Rc<Members>) -> bool {
        Rc::ptr_eq(&self.members.borrow(), members)
    }

    /// Says which of its servers were ejected or have returned.
    #[cold]
    pub fn note(&self, members: &Members, notice: Notice) {
        let upstream = &self.conf.name;
        let name = |member: balanza_balancing::Member| &members.shared.servers[member.0 as usize].name;
        match notice {
            Notice::Ejected(member, why, time) => {
                let (name, time) = (name(member), Duration::from_nanos(time));
                let message = format_args!("\"{name}\" in upstream \"{upstream}\" is ejected for {time:?}: {why}");
                self.errors.write(Level::Warn, message);
            }
            Notice::Returned(member) => {
                let name = name(member);
                let message = format_args!("\"{name}\" in upstream \"{upstream}\" is not ejected any more");
                self.errors.write(Level::Notice, message);
            }
            Notice::Panic(true) => {
                let message = "too few servers are left, so that ejected ones get requests too";
                self.errors.write(Level::Error, format_args!("upstream \"{upstream}\": {message}"));
            }
            Notice::Panic(false) => {
                let message = "enough servers are left, so that ejected ones get no requests";
                self.errors.write(Level::Notice, format_args!("upstream \"{upstream}\": {message}"));
            }
        }
    }

    /// Whether it has other servers now than these. They may all have left before this worker was told.
    pub fn has_other_than(&self, members: &Rc<Members>) -> bool {
        self.use_newest(self.newest.load_full());
        !self.has(members)
    }

    /// Takes over a change of its servers.
    pub fn adopt(&self, shared: &Shared) {
        self.use_newest(shared.membership());
    }

    /// Idle connections to those that have left are closed.
    fn use_newest(&self, membership: Arc<Membership>) {
        if Arc::ptr_eq(&self.members.borrow().shared, &membership) {
            return;
        }
        self.open.resume(|id| membership.is_down(id));
        self.idle.borrow_mut().keep_only(&membership.present);
        if let Some(bound) = &self.bound {
            bound.keep_only(&membership.present);
        }
        self.multiplexed.borrow_mut().keep_only(&membership.present);
        if let Some(prober) = &*self.prober.borrow() {
            prober.keep_only(&membership.present);
        }
        let mut viewer = self.viewer.borrow_mut();
        viewer.seed = viewer.seed.wrapping_add(1);
        let same_method = Arc::ptr_eq(&self.members.borrow().shared.balancing, &membership.balancing);
        let members = Rc::new(Members::new(membership, &viewer, Some(&self.members())));
        if !same_method {
            let prober = Prober::of(&self.conf, &members, &self.errors).map(Rc::new);
            if let Some(before) = self.prober.replace(prober) {
                before.close();
            }
        }
        *self.members.borrow_mut() = members;
    }

    /// Closes what the same upstream of the next configuration has not taken over.
    pub fn leave_to(&self, next: Option<&Upstream>) {
        if next.is_none_or(|next| !Rc::ptr_eq(&self.idle, &next.idle)) {
            self.idle.borrow_mut().close();
        }
        if let Some(bound) = &self.bound
            && !next.is_some_and(|next| is_in(bound, &next.bound))
        {
            bound.keep_only(&Present::default());
        }
        if next.is_none() {
            self.multiplexed.borrow_mut().close();
        }
        if let Some(external) = &self.external
            && !next.is_some_and(|next| is_in(external, &next.external))
        {
            external.end();
        }
        if let Some(prober) = &*self.prober.borrow()
            && !next.is_some_and(|next| is_in(prober, &next.prober.borrow()))
        {
            prober.close();
        }
    }
}

fn is_in<T>(mine: &Rc<T>, theirs: &Option<Rc<T>>) -> bool {
    theirs.as_ref().is_some_and(|theirs| Rc::ptr_eq(mine, theirs))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The places of servers of a list in one before.
    fn places(before: &[u32], now: &[u32]) -> Vec<Option<usize>> {
        let ids = |numbers: &[u32]| numbers.iter().copied().map(ServerId::new).collect::<Vec<_>>();
        let (before, now) = (ids(before), ids(now));
        let present = Arc::new(now.iter().copied().collect());
        let mut places = PlacesBefore { before: &before, next: 0 };
        now.iter().map(|id| places.of(*id, &present)).collect()
    }

    #[test]
    fn servers_that_stay_are_found_where_they_were() {
        assert_eq!(places(&[], &[1]), [None]);
        assert_eq!(places(&[1, 2, 3, 4], &[1, 3, 4]), [Some(0), Some(2), Some(3)]);
        assert_eq!(places(&[1, 2, 3, 4], &[1, 5, 6, 3, 4]), [Some(0), None, None, Some(2), Some(3)]);
        assert_eq!(places(&[1, 2], &[2, 1, 3]), [None, Some(0), None], "another order costs a lookup, no more");
    }
}
