//! Connections of HTTP/2 to the servers of one upstream: requests share them, up to what the server allows.
//!
//! A request that finds no connection with room opens one, and those that come meanwhile wait for it: a burst does not open a
//! connection for each request. `keepalive` says how many connections without requests are kept.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use balanza_config::model::UpstreamKeepalive;
use balanza_http2::client::{Connection, Opener};
use balanza_net::clock::{self, Nanos};
use balanza_net::event_loop;

use rustc_hash::FxHashMap as HashMap;

use super::membership::{Present, ServerId};

/// Requests that share a connection at most, also where the server would take more.
pub const MOST_STREAMS: u32 = 128;

/// Where a connection may be used: the server, and the tag of [`IdlePool`](super::pool::IdlePool).
type Key = (ServerId, usize);

/// The connections to one server.
#[derive(Default)]
struct Place {
    lines: Vec<Rc<SharedLine>>,
    /// A request opens one.
    dialing: bool,
    /// Requests that wait for it.
    waiting: Vec<Waker>,
}

impl Place {
    fn wake(&mut self) {
        self.waiting.drain(..).for_each(Waker::wake);
    }
}

/// The connections of one worker to one upstream.
pub struct SharedPool {
    keepalive: UpstreamKeepalive,
    places: HashMap<Key, Place>,
    /// Connections without requests by age, with when that began; those that were used since are left out when found.
    idle: VecDeque<(Nanos, Rc<SharedLine>)>,
    /// Connections without requests.
    idle_count: usize,
    /// Servers whose connections are kept.
    servers: Present,
}

/// A connection that requests share.
pub struct SharedLine {
    /// None when it takes no more requests.
    opener: RefCell<Option<Opener>>,
    /// Requests at present.
    active: Cell<u32>,
    /// Requests that it has carried.
    requests: Cell<u64>,
    opened: Nanos,
    /// Since when it has had none; 0 while it has some.
    idle_since: Cell<Nanos>,
    home: Option<(Weak<RefCell<SharedPool>>, Key)>,
    /// Of the task that drives it.
    driver: RefCell<Option<Waker>>,
}

impl SharedLine {
    /// Takes no more requests, and ends with the last of those that it has.
    pub fn retire(&self) {
        self.opener.borrow_mut().take();
        self.wake_driver();
    }

    /// The same for one that is in no list any more.
    fn forget(&self) {
        self.idle_since.set(0);
        self.retire();
    }

    /// The way to open a stream; none when the connection takes no more.
    pub fn opener(&self) -> &RefCell<Option<Opener>> {
        &self.opener
    }

    /// Whether it has carried requests before.
    pub fn is_reused(&self) -> bool {
        self.requests.get() > 1
    }

    fn wake_driver(&self) {
        if let Some(waker) = &*self.driver.borrow() {
            waker.wake_by_ref();
        }
    }

    fn has_room(&self, opener: &Opener) -> bool {
        (self.active.get() as usize) < opener.capacity().min(MOST_STREAMS as usize)
    }

    fn is_over(&self) -> bool {
        self.active.get() == 0 && self.opener.borrow().is_none()
    }
}

/// A request's part of a connection.
pub struct Seat(pub Rc<SharedLine>);

impl Seat {
    fn take(line: &Rc<SharedLine>) -> Seat {
        line.active.set(line.active.get() + 1);
        line.requests.set(line.requests.get() + 1);
        line.idle_since.set(0);
        Seat(Rc::clone(line))
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let line = &self.0;
        line.active.set(line.active.get() - 1);
        if line.active.get() > 0 {
            return;
        }
        match line.home.as_ref().and_then(|(pool, key)| Some((pool.upgrade()?, *key))) {
            Some((pool, key)) => pool.borrow_mut().begin_idle(key, line),
            None => line.retire(),
        }
        line.wake_driver();
    }
}

/// What a request finds.
pub enum Found {
    /// A place on a connection.
    Seat(Seat),
    /// It has to open a connection.
    Dial(Dial),
}

/// A request that opens a connection; others wait as long as this is kept.
pub struct Dial {
    pool: Rc<RefCell<SharedPool>>,
    key: Key,
}

impl Drop for Dial {
    fn drop(&mut self) {
        if let Some(place) = self.pool.borrow_mut().places.get_mut(&self.key) {
            place.dialing = false;
            place.wake();
        }
    }
}

impl SharedPool {
    /// An empty pool for these servers.
    pub fn new(keepalive: UpstreamKeepalive, servers: &Present) -> SharedPool {
        SharedPool {
            keepalive,
            places: HashMap::default(),
            idle: VecDeque::new(),
            idle_count: 0,
            servers: Arc::clone(servers),
        }
    }

    /// Uses these limits from now on.
    pub fn set_keepalive(&mut self, keepalive: UpstreamKeepalive) {
        self.keepalive = keepalive;
    }

    /// Closes connections without requests, and the others when they have none.
    pub fn close(&mut self) {
        self.keepalive.connections = 0;
        self.keep_only(&Present::default());
    }

    /// The same for the connections to all but these servers.
    pub fn keep_only(&mut self, servers: &Present) {
        self.servers = Arc::clone(servers);
        for ((server, _), place) in &mut self.places {
            if !self.servers.contains(server) {
                place.lines.drain(..).for_each(|line| line.forget());
            }
        }
        self.tidy();
    }

    /// Closes the connection without requests for longest; false when there is none.
    pub fn close_oldest(&mut self) -> bool {
        while let Some((since, line)) = self.idle.pop_front() {
            if line.idle_since.get() == since {
                self.remove(&line);
                self.idle_count = self.idle_count.saturating_sub(1);
                return true;
            }
        }
        false
    }

    /// Closes connections that have been without requests for too long.
    pub fn sweep(&mut self, now: Nanos) {
        let patience = clock::nanos(self.keepalive.timeout);
        while self
            .idle
            .front()
            .is_some_and(|(since, line)| line.idle_since.get() != *since || now.saturating_sub(*since) >= patience)
        {
            match self.idle.front() {
                Some((since, line)) if line.idle_since.get() == *since => {
                    self.close_oldest();
                }
                _ => {
                    self.idle.pop_front();
                }
            }
        }
        self.tidy();
    }

    fn tidy(&mut self) {
        self.places.retain(|_, place| !place.lines.is_empty() || place.dialing);
        self.idle.retain(|(since, line)| line.idle_since.get() == *since && line.opener.borrow().is_some());
        self.idle_count = self.idle.len();
    }

    fn remove(&mut self, line: &Rc<SharedLine>) {
        if let Some((_, key)) = &line.home
            && let Some(place) = self.places.get_mut(key)
        {
            place.lines.retain(|other| !Rc::ptr_eq(other, line));
        }
        line.forget();
    }

    /// A connection has no request any more.
    fn begin_idle(&mut self, key: Key, line: &Rc<SharedLine>) {
        if line.opener.borrow().is_none() {
            return;
        }
        if self.keepalive.connections == 0 || !self.servers.contains(&key.0) {
            return self.remove(line);
        }
        let now = clock::recent().max(1);
        line.idle_since.set(now);
        self.idle.push_back((now, Rc::clone(line)));
        self.idle_count += 1;
        if self.idle_count > self.keepalive.connections {
            self.close_oldest();
        }
        if self.idle.len() > 2 * self.keepalive.connections + 16 {
            self.tidy();
        }
    }

    /// A place on a connection with room, or the task to open one; pending while another request does.
    pub fn poll_seat(
        pool: &Rc<RefCell<SharedPool>>,
        cx: &mut Context<'_>,
        server: ServerId,
        tag: usize,
        now: Nanos,
    ) -> Poll<Found> {
        let key = (server, tag);
        let mut it = pool.borrow_mut();
        let SharedPool { keepalive, places, idle_count, .. } = &mut *it;
        let place = places.entry(key).or_default();
        let mut unsettled = false;
        let mut found = None;
        place.lines.retain(|line| {
            if found.is_some() {
                return true;
            }
            let mut slot = line.opener.borrow_mut();
            let idle_since = line.idle_since.get();
            let old = idle_since != 0 && now.saturating_sub(idle_since) >= clock::nanos(keepalive.timeout);
            let spent = line.requests.get() >= keepalive.requests
                || now.saturating_sub(line.opened) >= clock::nanos(keepalive.time);
            let mut usable = slot.as_mut().filter(|_| !old && !spent);
            if usable.as_mut().is_some_and(|opener| !opener.is_open(cx)) {
                usable = None;
            }
            let Some(opener) = usable else {
                *idle_count = idle_count.saturating_sub(usize::from(idle_since != 0));
                drop(slot);
                line.forget();
                return false;
            };
            if line.has_room(opener) {
                *idle_count = idle_count.saturating_sub(usize::from(idle_since != 0));
                found = Some(Rc::clone(line));
            } else {
                unsettled |= !opener.is_settled();
            }
            true
        });
        if let Some(line) = found {
            return Poll::Ready(Found::Seat(Seat::take(&line)));
        }
        if place.dialing || unsettled {
            place.waiting.push(cx.waker().clone());
            return Poll::Pending;
        }
        place.dialing = true;
        drop(it);
        Poll::Ready(Found::Dial(Dial { pool: Rc::clone(pool), key }))
    }
}

/// Has a new connection driven by a task of its own, and takes the first place on it. With the `dial` it is opened for, others
/// may use it too.
pub fn share(connection: Connection, opener: Opener, dial: Option<Dial>) -> Seat {
    let home = dial.as_ref().map(|dial| (Rc::downgrade(&dial.pool), dial.key));
    let line = Rc::new(SharedLine {
        opener: RefCell::new(Some(opener)),
        active: Cell::new(0),
        requests: Cell::new(0),
        opened: clock::recent(),
        idle_since: Cell::new(0),
        home,
        driver: RefCell::new(None),
    });
    if let Some(dial) = &dial {
        dial.pool.borrow_mut().places.entry(dial.key).or_default().lines.push(Rc::clone(&line));
    }
    let seat = Seat::take(&line);
    event_loop::spawn(drive(connection, End(line)));
    seat
}

/// The end of a connection, however it comes.
struct End(Rc<SharedLine>);

impl Drop for End {
    fn drop(&mut self) {
        let line = &self.0;
        line.retire();
        if let Some((pool, key)) = &line.home
            && let Some(pool) = pool.upgrade()
        {
            let mut pool = pool.borrow_mut();
            if line.idle_since.replace(0) != 0 {
                pool.idle_count = pool.idle_count.saturating_sub(1);
            }
            if let Some(place) = pool.places.get_mut(key) {
                place.lines.retain(|other| !Rc::ptr_eq(other, line));
                place.wake();
            }
        }
    }
}

/// Moves a connection until its end.
async fn drive(mut connection: Connection, end: End) {
    let line = &end.0;
    let mut settled = false;
    std::future::poll_fn(|cx| {
        if !line.driver.borrow().as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            *line.driver.borrow_mut() = Some(cx.waker().clone());
        }
        // What went wrong, the requests are told.
        if connection.poll(cx).is_ready() || connection.is_flooded() {
            return Poll::Ready(());
        }
        if !settled && connection.is_settled() {
            settled = true;
            if let Some((pool, key)) = &line.home
                && let Some(pool) = pool.upgrade()
                && let Some(place) = pool.borrow_mut().places.get_mut(key)
            {
                place.wake();
            }
        }
        // What could be said to the server has been sent, or it does not read.
        if line.is_over() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}
