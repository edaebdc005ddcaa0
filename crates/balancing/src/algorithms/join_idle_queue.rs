//! Join idle queue: idle servers queue up with the dispatchers, and a dispatcher takes the first of its queue.
//!
//! A server that becomes idle enlists with one dispatcher, at random or with the one of the shorter queue of two. A
//! request takes the server that has waited longest in its own dispatcher's queue; if that queue is empty it goes to a
//! server drawn at random, or to the better of two. So a choice costs the same for any number of servers, and the work
//! of finding idle ones is done when they become idle, not when a request waits.
//!
//! Every worker is a dispatcher. The workers share the queues, without locks, and a flag for each server that has
//! enlisted, so that no server enlists twice. Workers whose own queue is empty also use the queues of workers that have
//! ended. A server that got a request in another way meanwhile is dropped when it comes to the head of the queue. Each
//! dispatch also looks at one more server, in rotation, so that servers that were closed while idle, or are new, enlist
//! as well.
//! Source: Lu et al., "Join-Idle-Queue: a novel load balancing algorithm for dynamically scalable web services" (2011),
//! JIQ-Random and JIQ-SQ(2). Cost: O(1).
//! If no server is eligible, the driver goes to the next tier.

use std::sync::atomic::{
    AtomicBool, AtomicU32, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};
use std::sync::{Arc, OnceLock};

use super::least_conn::Connections;
use super::two_choices::BestOf;
use crate::Nanos;
use crate::policy::{Basis, Context, Start};
use crate::report::Report;
use crate::rng::Rng;
use crate::spec::{Entry, Host, Key, Kind, Parameter, Share, Times};
use crate::structures::alias::Alias;
use crate::structures::fallback::{Search, with_turns};
use crate::structures::queue::Queue;
use crate::structures::round_robin::RoundRobin;
use crate::tier::Tier;

/// Servers of the queue that a request looks at before it goes elsewhere.
const LOOKS: usize = 16;

pub(crate) const ENTRY: Entry = Entry {
    name: "join_idle_queue",
    aliases: &["jiq"],
    summary: "the server that has been idle longest, from a queue of idle servers; if none is idle, a random one",
    what: "\
        A server that becomes idle joins the queue of one worker. A request takes the server that has waited longest \
        in the queue of its own worker. If that queue is empty, the request goes to a server drawn in proportion to \
        the weights, or with by=two_choices to the better of two. by also selects the queue that an idle server \
        joins: a random one, or the shorter of two.\n\n\
        A server is idle if it has no request from this process. That is exact for the workers of one process. \
        Weights count only when no server is idle. During slow start a server goes back to the end of the queue with \
        probability 1 - current weight / full weight. Backup servers are used when all others are closed or full. In \
        the simulator an idle server joins the queue of one dispatcher, drawn at random, even if the dispatchers do \
        not know of each other's requests.",
    when: "\
        Use it for very many servers and several workers, as long as some servers are idle: a worker finds an idle \
        server without a search.",
    when_not: "\
        Do not use it if several balancers share the servers: servers do not report to Balanza that they are idle, \
        so each balancer sends requests to servers that the others keep busy; use two_choices or least_time. Do not \
        use it if all servers are busy: it then chooses at random. A server that fails fast is often idle and \
        attracts requests.",
    nginx: None,
    parameters: &[Parameter {
        name: "by",
        summary: "how a server is chosen when none is idle, and a queue for a server that becomes idle",
        kind: Kind::Choice(&["random", "two_choices"]),
        default: "random",
    }],
    source: "Lu et al. 2011 (Microsoft)",
    cost: "O(1)",
    linear: false,
    times: Times::Never,
    host: Host::Idleness,
    share: Share::Load,
    key: Key::None,
    needs_key: false,
    strict: None,
    backup: true,
    build: |spec, tier| {
        let choices = if spec.choice("by") == "two_choices" { 2 } else { 1 };
        let (alias, score) = (Arc::new(Alias::new(tier)), Arc::new(Connections));
        let enlisted = tier.slots.iter().map(|_| AtomicBool::new(false)).collect();
        let deserted = AtomicU32::new(0);
        let idle = Arc::new(Idle { queues: OnceLock::new(), deserted, enlisted, choices: choices as u64 });
        let tier_of = tier.clone();
        with_turns(tier, move |start, rng| {
            idle.open(&tier_of, start.workers.max(1));
            idle.join(start.worker);
            let draws = BestOf::new(alias.clone(), choices, score.clone());
            JoinIdleQueue { idle: idle.clone(), draws, start, rng: Rng::new(rng.next()), next: 0, basis: Basis::Idle }
        })
    },
};

/// The part shared by the workers.
struct Idle {
    /// One for each dispatcher, once it is known how many there are.
    queues: OnceLock<Box<[Dispatcher]>>,
    /// How many of them no worker takes from.
    deserted: AtomicU32,
    /// Whether a server is in a queue, or on its way in or out.
    enlisted: Box<[AtomicBool]>,
    /// Queues that an idle server looks at.
    choices: u64,
}

struct Dispatcher {
    queue: Queue,
    /// How many workers take from it.
    workers: AtomicU32,
}

impl Idle {
    /// Makes the queues; the servers that are idle are dealt out.
    fn open(&self, tier: &Tier, workers: usize) {
        self.queues.get_or_init(|| {
            let n = tier.len();
            // A queue that is full turns a server away; it will come to another.
            let capacity = n.min(4 * n / workers + 64);
            let dispatcher = |_| Dispatcher { queue: Queue::new(capacity), workers: AtomicU32::new(0) };
            let queues: Box<[Dispatcher]> = (0..workers).map(dispatcher).collect();
            for i in (0..n).filter(|i| tier.slots[*i].state.in_flight() == 0) {
                self.enlisted[i].store(queues[i % workers].queue.push(i as u32), Relaxed);
            }
            self.deserted.store(workers as u32, Release);
            queues
        });
    }

    fn queues(&self) -> &[Dispatcher] {
        self.queues.get().map_or(&[], |queues| queues)
    }

    /// That of a worker. When there are more workers than there were, some share one.
    #[inline]
    fn of(&self, worker: usize) -> Option<&Dispatcher> {
        let queues = self.queues();
        queues.get(worker % queues.len().max(1))
    }

    fn join(&self, worker: usize) {
        if self.of(worker).is_some_and(|own| own.workers.fetch_add(1, AcqRel) == 0) {
            self.deserted.fetch_sub(1, AcqRel);
        }
    }

    fn leave(&self, worker: usize) {
        if self.of(worker).is_some_and(|own| own.workers.fetch_sub(1, AcqRel) == 1) {
            self.deserted.fetch_add(1, AcqRel);
        }
    }

    /// The next of a worker's queue; when that is empty, of one that no worker takes from.
    #[inline]
    fn next(&self, worker: usize) -> Option<(&Queue, usize)> {
        let own = &self.of(worker)?.queue;
        if let Some(i) = own.pop() {
            return Some((own, i as usize));
        }
        if self.deserted.load(Relaxed) == 0 {
            return None;
        }
        let deserted = self.queues().iter().filter(|dispatcher| dispatcher.workers.load(Acquire) == 0);
        deserted.map(|dispatcher| &dispatcher.queue).find_map(|queue| Some((queue, queue.pop()? as usize)))
    }

    /// Server `i` is idle and enlists, unless it has.
    fn enlist(&self, i: usize, rng: &mut Rng) {
        if self.enlisted[i].load(Relaxed) || self.enlisted[i].swap(true, AcqRel) {
            return;
        }
        let queues = self.queues();
        let draws = (0..self.choices).map(|_| rng.below(queues.len() as u64) as usize);
        let queue = draws.min_by_key(|q| queues[*q].queue.len());
        if !queue.is_some_and(|q| queues[q].queue.push(i as u32)) {
            self.enlisted[i].store(false, Release);
        }
    }

    /// Server `i` is in no queue any more. It may have become idle meanwhile, and found itself enlisted.
    fn dismiss(&self, tier: &Tier, i: usize, rng: &mut Rng) {
        self.enlisted[i].store(false, Release);
        if tier.slots[i].state.in_flight() == 0 {
            self.enlist(i, rng);
        }
    }
}

/// One dispatcher.
struct JoinIdleQueue {
    idle: Arc<Idle>,
    /// For when no server is idle.
    draws: BestOf<Connections>,
    start: Start,
    rng: Rng,
    /// The server to be looked at next.
    next: usize,
    basis: Basis,
}

impl JoinIdleQueue {
    /// The first of the queue that is still idle and takes the request.
    fn idle_server(&mut self, cx: &mut Context<'_>) -> Option<usize> {
        let idle = &*self.idle;
        for _ in 0..LOOKS {
            let (queue, i) = idle.next(self.start.worker)?;
            if cx.tier.slots[i].state.in_flight() != 0 {
                idle.dismiss(cx.tier, i, &mut self.rng);
            } else if cx.admits(i) {
                idle.enlisted[i].store(false, Release);
                return Some(i);
            } else if !cx.tier.accepts(i, cx.now) || !queue.push(i as u32) {
                // Closed: it will be looked at in turn. Otherwise it was not for this request only.
                idle.enlisted[i].store(false, Release);
            }
        }
        None
    }
}

impl Drop for JoinIdleQueue {
    fn drop(&mut self) {
        self.idle.leave(self.start.worker);
    }
}

impl Search for JoinIdleQueue {
    fn find(&mut self, cx: &mut Context<'_>, turns: &mut RoundRobin) -> Option<usize> {
        if let Some(i) = self.idle_server(cx) {
            self.basis = Basis::Idle;
            return Some(i);
        }
        self.basis = if self.idle.choices == 1 { Basis::Draw } else { Basis::Score };
        self.draws.find(cx, turns)
    }

    fn on_dispatch(&mut self, now: Nanos, tier: &Tier, _index: usize, _by_policy: bool) {
        let i = self.next;
        self.next = if i + 1 == tier.len() { 0 } else { i + 1 };
        if tier.slots[i].state.in_flight() == 0 && tier.accepts(i, now) {
            self.idle.enlist(i, &mut self.rng);
        }
    }

    fn on_complete(&mut self, now: Nanos, tier: &Tier, index: usize, _report: &Report) {
        if tier.slots[index].state.in_flight() == 0 && tier.accepts(index, now) {
            self.idle.enlist(index, &mut self.rng);
        }
    }

    fn basis(&self) -> Basis {
        self.basis
    }
}
