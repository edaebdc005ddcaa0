//! A network in memory, one for a thread: what is on its way, and when it arrives. Only with the feature `simulation`.

mod backlog;
mod link;
mod random;

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::future::poll_fn;
use std::hash::{DefaultHasher, Hasher};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::time::{Instant, Sleep};

pub use self::backlog::Backlog;
pub use self::link::End;
use self::link::{Content, Link};
pub use self::random::Random;
use crate::clock::{self, Nanos};
use crate::shortage::ConnectError;

/// What the network does to its connections. Times are in milliseconds, the finest that deadlines have.
#[derive(Debug, Clone)]
pub struct Conditions {
    /// Most time that bytes are under way.
    pub delay: u64,
    /// Least and most bytes that a connection holds in each direction, under way or unread.
    pub capacity: (u64, u64),
    /// How many writes in a hundred arrive in several pieces.
    pub split: u64,
    /// How many events in a hundred are followed by others before any task runs.
    pub together: u64,
    /// The trace is kept in words.
    pub keeps_trace: bool,
}

impl Default for Conditions {
    fn default() -> Conditions {
        Conditions { delay: 3, capacity: (2_000, 300_000), split: 30, together: 40, keeps_trace: false }
    }
}

/// What a listener does with a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reception {
    /// It takes it.
    Accept,
    /// It refuses it.
    Refuse,
    /// It says nothing.
    Silence,
}

/// What happened in a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trace {
    /// A digest of all events: equal if and (nearly) only if the runs were the same.
    pub digest: u64,
    /// Number of events.
    pub events: u64,
    /// The events in words, with [`Conditions::keeps_trace`].
    pub lines: Vec<String>,
}

/// Something that arrives at an end.
struct Arrival {
    at: Nanos,
    /// Arrivals of the same moment keep their order.
    order: u64,
    end: (Rc<Link>, usize),
    content: Content,
}

impl PartialEq for Arrival {
    fn eq(&self, other: &Arrival) -> bool {
        self.order == other.order
    }
}

impl Eq for Arrival {}

impl PartialOrd for Arrival {
    fn partial_cmp(&self, other: &Arrival) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Arrival {
    fn cmp(&self, other: &Arrival) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

/// The network of a thread.
pub struct Network {
    random: RefCell<Random>,
    pub conditions: Conditions,
    calendar: RefCell<BinaryHeap<Reverse<Arrival>>>,
    arrivals: Cell<u64>,
    /// Ends whose owners are to be told that something has changed.
    changed: RefCell<Vec<(Rc<Link>, usize)>>,
    pub backlogs: RefCell<BTreeMap<SocketAddr, Rc<Backlog>>>,
    links: Cell<u64>,
    pub open: Cell<usize>,
    waker: RefCell<Option<Waker>>,
    digest: RefCell<DefaultHasher>,
    trace: RefCell<Trace>,
}

thread_local! {
    static NETWORK: RefCell<Option<Rc<Network>>> = const { RefCell::new(None) };
}

impl Network {
    pub fn new(seed: u64, conditions: Conditions) -> Network {
        Network {
            random: RefCell::new(Random::new(seed)),
            conditions,
            calendar: RefCell::default(),
            arrivals: Cell::new(0),
            changed: RefCell::default(),
            backlogs: RefCell::default(),
            links: Cell::new(0),
            open: Cell::new(0),
            waker: RefCell::default(),
            digest: RefCell::default(),
            trace: RefCell::default(),
        }
    }

    pub fn install(self: &Rc<Self>) {
        NETWORK.set(Some(Rc::clone(self)));
    }

    pub fn uninstall() {
        NETWORK.set(None);
    }

    /// Acts on this thread's network, if it has one.
    pub fn with<T>(act: impl FnOnce(&Rc<Network>) -> T) -> Option<T> {
        let network = NETWORK.with_borrow(Option::clone);
        network.map(|network| act(&network))
    }

    pub fn open_ends(self: &Rc<Self>) -> usize {
        self.open.get()
    }

    pub fn random<T>(&self, draw: impl FnOnce(&mut Random) -> T) -> T {
        draw(&mut self.random.borrow_mut())
    }

    pub fn note(&self, event: std::fmt::Arguments<'_>) {
        let line = format!("{:>10.3} {event}", clock::monotonic() as f64 / 1e6);
        self.digest.borrow_mut().write(line.as_bytes());
        let mut trace = self.trace.borrow_mut();
        trace.events += 1;
        if self.conditions.keeps_trace {
            trace.lines.push(line);
        }
    }

    pub fn take_trace(&self) -> Trace {
        Trace { digest: self.digest.borrow().finish(), ..self.trace.take() }
    }

    /// A connection's number.
    pub fn number(&self) -> u64 {
        self.links.set(self.links.get() + 1);
        self.links.get()
    }

    /// A moment at which something that leaves now may arrive, not before `least`.
    pub fn arrival(&self, least: Nanos) -> Nanos {
        let delay = self.random(|random| if random.percent(50) { 0 } else { random.between(0, self.conditions.delay) });
        (clock::monotonic() + delay * 1_000_000).max(least)
    }

    pub fn schedule(&self, at: Nanos, end: (Rc<Link>, usize), content: Content) {
        let order = self.arrivals.get();
        self.arrivals.set(order + 1);
        self.calendar.borrow_mut().push(Reverse(Arrival { at, order, end, content }));
        self.wake();
    }

    /// An end has news, of which its owner will be told.
    pub fn change(&self, link: &Rc<Link>, side: usize) {
        self.changed.borrow_mut().push((Rc::clone(link), side));
        self.wake();
    }

    fn wake(&self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    /// Lets everything arrive, and tells the owners.
    pub async fn deliver(self: Rc<Self>) {
        let mut sleep: Option<Pin<Box<Sleep>>> = None;
        poll_fn(|cx| self.poll_deliver(cx, &mut sleep)).await;
    }

    fn poll_deliver(&self, cx: &mut Context<'_>, sleep: &mut Option<Pin<Box<Sleep>>>) -> Poll<()> {
        while self.step() {
            if !self.random(|random| random.percent(self.conditions.together)) {
                // Others run before the next event.
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
        }
        *self.waker.borrow_mut() = Some(cx.waker().clone());
        let next = self.calendar.borrow().peek().map(|Reverse(arrival)| arrival.at);
        if let Some(next) = next {
            let at = Instant::now() + Duration::from_nanos(next.saturating_sub(clock::monotonic()));
            let sleep = sleep.insert(Box::pin(tokio::time::sleep_until(at)));
            if sleep.as_mut().poll(cx).is_ready() {
                cx.waker().wake_by_ref();
            }
        }
        Poll::Pending
    }

    /// One event: an owner is told, or something arrives; false when there is nothing now.
    fn step(&self) -> bool {
        let is_due = |Reverse(arrival): &Reverse<Arrival>| arrival.at <= clock::monotonic();
        let arrives = self.calendar.borrow().peek().is_some_and(is_due);
        let changes = self.changed.borrow().len() as u64;
        if changes > 0 && (!arrives || self.random(|random| random.percent(70))) {
            // The kernel tells of several sockets in any order.
            let index = self.random(|random| random.below(changes)) as usize;
            let (link, side) = self.changed.borrow_mut().remove(index);
            link.tell(side);
            return true;
        }
        if !arrives {
            return false;
        }
        let popped = self.calendar.borrow_mut().pop();
        if let Some(Reverse(Arrival { end: (link, side), content, .. })) = popped {
            link.arrive(self, side, content);
        }
        true
    }

    /// A new connection from here to there: the caller's end, and the other's. It stands when the other is told.
    pub fn link(self: &Rc<Self>, from: SocketAddr, to: SocketAddr) -> (End, End) {
        let (least, most) = self.conditions.capacity;
        let capacity = || self.random(|random| least.max(random.size(most)) as usize);
        let link = Rc::new(Link::new(self, [from, to], [capacity(), capacity()]));
        self.open.set(self.open.get() + 2);
        (End::new(&link, 0), End::new(&link, 1))
    }
}

/// Begins a connection in this thread's network, if it has one. Nothing but addresses can be reached in it.
pub fn connect(to: Option<SocketAddr>) -> Option<Result<End, ConnectError>> {
    Network::with(|network| {
        let Some(to) = to else {
            return Err(ConnectError::Server(io::ErrorKind::NotFound.into()));
        };
        let from = SocketAddr::from((Ipv4Addr::new(192, 0, 2, 1), 10_000));
        let backlog = network.backlogs.borrow().get(&to).cloned();
        let reception = backlog.as_ref().map_or(Reception::Refuse, |backlog| backlog.reception());
        network.note(format_args!("connect to {to}: {reception:?}"));
        // A refusal is known at once, or later.
        if reception == Reception::Refuse && network.random(|random| random.percent(30)) {
            return Err(ConnectError::Server(rustix::io::Errno::CONNREFUSED.into()));
        }
        let (near, far) = network.link(from, to);
        match (reception, backlog) {
            (Reception::Accept, Some(backlog)) => {
                let at = network.arrival(0);
                far.establish_at(network, at);
                near.establish_at(network, network.arrival(at));
                backlog.come(far);
            }
            (Reception::Silence, _) => {}
            (Reception::Refuse | Reception::Accept, _) => {
                network.schedule(network.arrival(0), near.place(), Content::Refused);
            }
        }
        Ok(near)
    })
}
