//! The event loop of a load: one thread, edge-triggered epoll, connections in slots that are used again.

use std::sync::atomic::Ordering;
use std::time::Duration;

use nix::sys::epoll::{Epoll, EpollEvent, EpollFlags};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::arrivals::Arrivals;
use super::connection::{Arrived, Connection, Request, State, connect_error};
use super::slots::Slots;
use super::tally::{Answer, Tally};
use super::text::RequestText;
use super::timers::{Due, TIMER, Timers, event_loop, nanoseconds};
use super::{Spec, Watch};
use crate::record::{ErrorKind, Measured};

/// A user whose request failed without an answer sends the next one so much after the start of that one at the earliest.
const PAUSE_AFTER_FAILURE: u64 = 10_000_000;

/// How long the peer has to close a connection that served its last answer.
const CLOSING: u64 = 1_000_000_000;

/// Arrivals that are sent before the loop looks at the sockets again, when it is behind.
const BURST: usize = 64;

pub(super) struct Engine<'a> {
    spec: &'a Spec,
    watch: &'a Watch,
    epoll: Epoll,
    timers: Timers,
    tally: Tally,
    slots: Slots,
    /// Idle connections of an open loop, by source; the last one is used first.
    idle: Vec<Vec<u32>>,
    /// The connection of each user of a closed loop.
    users: Vec<Option<u32>>,
    arrivals: Option<Arrivals>,
    /// Sent and not ended.
    outstanding: u64,
    text: RequestText,
    pages: SmallRng,
    buffer: Box<[u8]>,
    warmup: u64,
    end: Option<u64>,
    /// Half of the added delay.
    delay: u64,
    timeout: u64,
    /// When every user should have begun.
    all_begun: u64,
}

impl<'a> Engine<'a> {
    pub fn new(spec: &'a Spec, watch: &'a Watch) -> anyhow::Result<Self> {
        let load = &spec.load;
        let epoll = event_loop()?;
        let warmup = nanoseconds(load.warmup.0);
        let end = load.duration.map(|duration| nanoseconds(duration.0));
        let users = load.users.unwrap_or(0);
        let mut timers = Timers::new(&epoll)?;
        let delay = nanoseconds(load.rtt.0) / 2;
        for user in 0..users {
            let start = (load.ramp.0.as_nanos() as f64 * f64::from(user) / f64::from(users)) as u64;
            timers.push(start + delay, Due::User(user));
        }
        let arrivals = match &spec.schedule {
            Some(schedule) => Some(Arrivals::of_log(schedule, warmup, end, load.requests)),
            None => load.rate.map(|rate| Arrivals::new(rate, load.arrivals, spec.seed, warmup, end, load.requests)),
        };
        // A log may be shorter than what is wanted of it.
        let end = end.map(|end| spec.schedule.as_ref().map_or(end, |schedule| end.min(schedule.length())));
        Ok(Self {
            spec,
            watch,
            epoll,
            timers,
            tally: Tally::new(warmup),
            slots: Slots::default(),
            idle: vec![Vec::new(); spec.sources.len().max(1)],
            users: vec![None; users as usize],
            arrivals,
            outstanding: 0,
            text: match &spec.schedule {
                Some(schedule) => RequestText::of_log(&spec.host, schedule, load.keep_alive),
                None => RequestText::new(&spec.host, &load.path, load.keep_alive),
            },
            pages: SmallRng::seed_from_u64(spec.seed.wrapping_add(1)),
            buffer: vec![0; 64 * 1024].into(),
            warmup,
            end,
            delay,
            timeout: nanoseconds(load.timeout.0),
            all_begun: nanoseconds(load.ramp.0) + delay,
        })
    }

    pub fn run(mut self) -> anyhow::Result<Measured> {
        let mut events = [EpollEvent::empty(); 256];
        while !self.is_over() {
            let wake = [self.arrivals.as_ref().and_then(|arrivals| Some(arrivals.next()? + self.delay)), self.end];
            let wake = wake.into_iter().flatten().min().unwrap_or(u64::MAX);
            let count = match self.timers.wait(&self.epoll, &mut events, wake) {
                Err(nix::errno::Errno::EINTR) => 0,
                result => result?,
            };
            let told = self.timers.now();
            if self.tally.begins(told) {
                self.tally.note_processor_time(told);
            }
            for event in &events[..count] {
                if event.data() != TIMER {
                    let now = self.timers.now();
                    self.tally.late(now, now - told);
                    self.on_event(*event, now);
                }
            }
            self.on_deadlines();
            self.on_arrivals();
        }
        Ok(self.finish())
    }

    fn is_over(&mut self) -> bool {
        let now = self.timers.now();
        let over = self.watch.stop.load(Ordering::Relaxed);
        match &self.arrivals {
            Some(arrivals) if arrivals.next().is_some() => over,
            // All that was meant to be sent is accounted for.
            Some(_) => over || self.outstanding == 0,
            None => {
                over || self.end.is_some_and(|end| now >= end)
                    || self.spec.load.requests.is_some_and(|requests| self.tally.ended >= requests)
            }
        }
    }

    fn finish(mut self) -> Measured {
        let now = self.timers.now();
        let closed_loop = self.arrivals.is_none();
        if closed_loop {
            self.tally.note_processor_time(now);
        }
        let stopped = self.watch.stop.load(Ordering::Relaxed);
        let until = match (stopped, self.end, self.spec.load.requests) {
            (true, ..) => now,
            (_, Some(end), _) if !closed_loop => end.max(self.tally.last),
            (_, Some(end), requests) if requests.is_none_or(|requests| self.tally.ended < requests) => end,
            _ => self.tally.last,
        };
        let replayed = self.spec.schedule.as_ref().map(|schedule| schedule.replayed());
        Measured { replayed, ..self.tally.measured(closed_loop, until) }
    }

    fn on_deadlines(&mut self) {
        let now = self.timers.now();
        while let Some((when, due)) = self.timers.pop(now) {
            match due {
                Due::User(user) => {
                    let now = self.timers.now();
                    // That all cannot begin at once is not the generator's fault.
                    if when > self.all_begun {
                        self.tally.late(now, now - when);
                    }
                    self.start(user, now);
                }
                Due::Deadline(slot) => self.on_deadline(slot, when, now),
            }
        }
    }

    fn on_arrivals(&mut self) {
        for _ in 0..BURST {
            let now = self.timers.now();
            let Some(arrivals) = &mut self.arrivals else { return };
            let Some((intended, number)) = now.checked_sub(self.delay).and_then(|now| arrivals.pop(now)) else {
                return;
            };
            let late = now - intended - self.delay;
            self.tally.late(now, late);
            self.tally.sent(intended, late);
            let logged = self.spec.schedule.as_ref().and_then(|schedule| schedule.arrival(number));
            let (from, page) = match logged {
                // A client of the log keeps its address.
                Some(arrival) => (u64::from(arrival.client), arrival.asked),
                None => (number, self.page()),
            };
            let source = (from % self.idle.len() as u64) as u32;
            let request = Request {
                user: None,
                source,
                page,
                started: intended,
                sent: now,
                deadline: intended + self.timeout,
                reused: false,
            };
            self.outstanding += 1;
            let idle = self.idle[source as usize].pop();
            self.dispatch(request, idle, now);
            if self.arrivals.as_ref().is_some_and(|arrivals| arrivals.next().is_none()) {
                // What follows is waiting for the last answers, and costs nothing.
                self.tally.note_processor_time(now);
            }
        }
    }

    /// A user sends, unless as many requests as wanted have ended or are on their way.
    fn start(&mut self, user: u32, now: u64) {
        let enough = |requests| now >= self.warmup && self.tally.ended + self.outstanding >= requests;
        if self.spec.load.requests.is_some_and(enough) {
            return;
        }
        let request = Request {
            user: Some(user),
            source: user % self.idle.len() as u32,
            page: self.page(),
            started: now.saturating_sub(self.delay),
            sent: now,
            deadline: now + self.timeout,
            reused: false,
        };
        self.outstanding += 1;
        let own = self.users[user as usize].take();
        self.dispatch(request, own, now);
    }

    fn page(&mut self) -> u32 {
        let pages = self.spec.load.pages;
        if self.text.has_pages() && pages > 1 { self.pages.random_range(1..=pages) } else { 1 }
    }

    /// Sends a request on a connection that is there, or opens one.
    fn dispatch(&mut self, mut request: Request, idle: Option<u32>, now: u64) {
        let Some(slot) = idle else { return self.connect(request, now) };
        request.reused = true;
        self.send(slot, request, now);
    }

    fn connect(&mut self, request: Request, now: u64) {
        let live = self.slots.live();
        let opened = if self.spec.load.connections_max.is_some_and(|most| live >= most) {
            Err(ErrorKind::Descriptors)
        } else {
            let address = self.spec.sources.get(request.source as usize).copied();
            Connection::open(self.spec.target, address, request.source, request, now)
        };
        let connection = match opened {
            Ok(connection) => connection,
            Err(kind) => return self.end(request, Err(kind), now),
        };
        let slot = self.slots.take();
        let interest = EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT | EpollFlags::EPOLLRDHUP | EpollFlags::EPOLLET;
        let watched = self.epoll.add(&connection.stream, EpollEvent::new(interest, self.slots.name(slot)));
        self.slots[slot].connection = Some(connection);
        self.tally.connections_max = self.tally.connections_max.max(u64::from(live) + 1);
        match watched {
            Ok(()) => self.arm(slot, request.deadline),
            Err(_) => self.fail(slot, ErrorKind::Client, now),
        }
    }

    fn send(&mut self, slot: u32, mut request: Request, now: u64) {
        request.sent = now;
        let place = &mut self.slots[slot];
        let Some(connection) = &mut place.connection else { return };
        place.reader.reset(self.text.is_head(request.page));
        connection.state = State::Busy(request);
        match connection.send(self.text.of(request.page)) {
            Ok(()) => self.arm(slot, request.deadline),
            Err(kind) => self.fail(slot, kind, now),
        }
    }

    fn on_event(&mut self, event: EpollEvent, now: u64) {
        let (slot, generation) = Slots::of_name(event.data());
        let flags = event.events();
        let ending = flags.intersects(EpollFlags::EPOLLRDHUP | EpollFlags::EPOLLHUP | EpollFlags::EPOLLERR);
        let Some((connection, reader)) = self.slots[slot].connection_of(generation) else { return };
        match connection.state {
            State::Connecting(request) => match connection.stream.take_error() {
                Ok(None) if flags.contains(EpollFlags::EPOLLOUT) => {
                    self.tally.connected(now, now - connection.opened);
                    self.send(slot, request, now);
                    if ending || flags.contains(EpollFlags::EPOLLIN) {
                        // It will not be told again.
                        self.on_event(event, now);
                    }
                }
                Ok(None) => {}
                Ok(Some(error)) | Err(error) => self.fail(slot, connect_error(&error), now),
            },
            State::Busy(request) => {
                if flags.contains(EpollFlags::EPOLLOUT)
                    && let Err(kind) = connection.flush()
                {
                    return self.fail(slot, kind, now);
                }
                if !ending && !flags.contains(EpollFlags::EPOLLIN) {
                    return;
                }
                let begun = reader.has_begun();
                let arrived = connection.receive(reader, &mut self.buffer, ending);
                if !begun && reader.has_begun() {
                    self.tally.first_byte(now, now - request.sent);
                }
                match arrived {
                    Arrived::Part => {}
                    Arrived::Whole { reusable } => self.answered(slot, request, reusable, ending, now),
                    Arrived::Failed(kind) => self.fail(slot, kind, now),
                }
            }
            State::Idle | State::Closing => {
                let unasked = flags.contains(EpollFlags::EPOLLIN) && matches!(connection.state, State::Idle);
                if ending || unasked || !connection.discard(&mut self.buffer) {
                    self.close(slot);
                }
            }
        }
    }

    fn answered(&mut self, slot: u32, request: Request, reusable: bool, ending: bool, now: u64) {
        let place = &mut self.slots[slot];
        let Some(connection) = &mut place.connection else { return };
        if reusable && self.spec.load.keep_alive {
            connection.state = State::Idle;
            match request.user {
                Some(user) => self.users[user as usize] = Some(slot),
                None => self.idle[connection.source as usize].push(slot),
            }
            self.end(request, Ok(slot), now);
        } else {
            self.slots.leave(slot);
            if ending {
                self.close(slot)
            } else {
                self.arm(slot, now + CLOSING)
            }
            self.end(request, Ok(slot), now);
        }
    }

    /// The connection has failed, and its request with it; but a connection that was used again may have been closed by
    /// the peer before it saw the request, which then goes to a new one.
    fn fail(&mut self, slot: u32, kind: ErrorKind, now: u64) {
        let place = &mut self.slots[slot];
        let stale = !place.reader.has_begun() && matches!(kind, ErrorKind::Closed | ErrorKind::Reset);
        let state = place.connection.as_ref().map(|connection| connection.state);
        self.close(slot);
        match state {
            Some(State::Busy(request)) if stale && request.reused => {
                self.connect(Request { reused: false, ..request }, now);
            }
            Some(State::Busy(request) | State::Connecting(request)) => self.end(request, Err(kind), now),
            _ => {}
        }
    }

    fn close(&mut self, slot: u32) {
        let Some(connection) = self.slots.close(slot) else { return };
        if matches!(connection.state, State::Idle) {
            self.idle[connection.source as usize].retain(|&idle| idle != slot);
            if let Some(own) = self.users.iter_mut().find(|own| **own == Some(slot)) {
                *own = None;
            }
        }
    }

    /// A request has ended: with the answer that this slot's reader has, or without.
    fn end(&mut self, request: Request, outcome: Result<u32, ErrorKind>, now: u64) {
        self.outstanding -= 1;
        // The answer is still on its way through the network that the client plays.
        let at = if outcome.is_ok() { now + self.delay } else { now };
        let counted = match request.user {
            Some(_) => at >= self.warmup && self.end.is_none_or(|end| at <= end),
            None => request.started >= self.warmup,
        };
        let outcome = outcome.map(|slot| {
            let reader = &self.slots[slot].reader;
            let latency = Duration::from_nanos(at.saturating_sub(request.started));
            Answer { status: reader.status(), bytes: reader.bytes(), server: reader.server(), latency }
        });
        let answered = outcome.is_ok();
        let good = self.tally.end(at, counted, outcome);
        let counter = if good { &self.watch.answered } else { &self.watch.failed };
        counter.fetch_add(1, Ordering::Relaxed);

        let Some(user) = request.user else { return };
        let mut next = at + nanoseconds(self.spec.load.think.0) + self.delay;
        if !answered {
            next = next.max(request.started + PAUSE_AFTER_FAILURE);
        }
        if next <= now { self.start(user, now) } else { self.timers.push(next, Due::User(user)) }
    }

    /// Sees to it that the slot is looked at when this deadline has come.
    fn arm(&mut self, slot: u32, deadline: u64) {
        let place = &mut self.slots[slot];
        if place.armed.is_none_or(|armed| armed > deadline) {
            place.armed = Some(deadline);
            self.timers.push(deadline, Due::Deadline(slot));
        }
    }

    fn on_deadline(&mut self, slot: u32, when: u64, now: u64) {
        let place = &mut self.slots[slot];
        if place.armed != Some(when) {
            return;
        }
        place.armed = None;
        match place.connection.as_ref().map(|connection| connection.state) {
            Some(State::Connecting(request) | State::Busy(request)) if request.deadline > now => {
                self.arm(slot, request.deadline);
            }
            Some(State::Connecting(_)) => self.fail(slot, ErrorKind::ConnectTimeout, now),
            Some(State::Busy(_)) => self.fail(slot, ErrorKind::Timeout, now),
            Some(State::Closing) => self.close(slot),
            Some(State::Idle) | None => {}
        }
    }
}
