//! What happens at a server.

use balanza_balancing::Nanos;

use super::request::NONE;
use super::server::Health;
use super::{Engine, Event, GENERATION, SYN_RETRIES};
use crate::scenario::{Discipline, Overflow};

impl Engine<'_> {
    /// A request reaches its server.
    #[inline]
    pub(super) fn reach(&mut self, id: u32) {
        let request = self.requests.get(id);
        let (s, orphan) = (request.server, request.orphan);
        if orphan {
            // Its client has closed the connection before it was there.
            return self.requests.remove(id);
        }
        let server = &mut self.servers[s as usize];
        if server.health != Health::Well && server.health != Health::Hung {
            self.requests.get_mut(id).error = server.health == Health::FailsFast;
            return self.answer(id, false);
        }
        let serve = server.busy < server.concurrency && server.health == Health::Well;
        if !serve && server.waiting >= server.queue_limit {
            return self.overflow(id);
        }
        self.measures.max_queue = self.measures.max_queue.max(server.queue() + 1);
        let found = server.queue().min(u32::from(u16::MAX)) as u16;
        let request = self.requests.get_mut(id);
        (request.at_server, request.found_there) = (true, found);
        if serve {
            self.servers[s as usize].busy += 1;
            self.start(id);
        } else {
            self.wait(id);
        }
    }

    /// Joins the queue.
    #[inline]
    fn wait(&mut self, id: u32) {
        let server = &mut self.servers[self.requests.get(id).server as usize];
        server.waiting += 1;
        self.requests.get_mut(id).next = NONE;
        if server.head == NONE {
            server.head = id;
        } else {
            self.requests.get_mut(server.tail).next = id;
        }
        server.tail = id;
    }

    fn overflow(&mut self, id: u32) {
        let request = self.requests.get(id);
        let kind = &self.setup.kinds[usize::from(self.servers[request.server as usize].kind)];
        let wait = SYN_RETRIES.get(usize::from(request.knocks)).filter(|_| kind.overflow == Overflow::SynRetry);
        match wait {
            Some(wait) => {
                let generation = request.generation;
                self.requests.get_mut(id).knocks += 1;
                self.measures.counts.syn_retries += 1;
                self.schedule(self.now + wait, Event::Reach, generation, id);
            }
            None => self.answer(id, false),
        }
    }

    /// Service begins; the server has counted it.
    #[inline]
    fn start(&mut self, id: u32) {
        let request = self.requests.get(id);
        let (s, work, generation) = (request.server, request.work, request.generation);
        let server = &self.servers[s as usize];
        let mut speed = server.speed;
        if !server.plain {
            match self.start_special(id) {
                Some(throttled) => speed = throttled,
                None => return,
            }
        }
        self.requests.get_mut(id).started = self.now;
        let time = if speed == 1.0 { work } else { (work as f64 / speed).min(2.3e18) as Nanos };
        self.schedule(self.now.saturating_add(time), Event::Depart, generation, id);
    }

    /// The speed of a server with credits; `None` if it is shared.
    #[cold]
    fn start_special(&mut self, id: u32) -> Option<f64> {
        let (s, work) = (self.requests.get(id).server, self.requests.get(id).work);
        let server = &self.servers[s as usize];
        let kind = &self.setup.kinds[usize::from(server.kind)];
        if kind.discipline == Discipline::Fifo {
            return Some(server.speed * self.throttle(s, server.busy - 1));
        }
        let speed = server.speed * self.throttle(s, server.busy - 1);
        self.requests.get_mut(id).started = self.now;
        let sharing = &mut self.sharing[s as usize];
        sharing.advance(self.now, kind.concurrency);
        sharing.add(work, id);
        self.announce(s, speed);
        None
    }

    /// What the credits leave of a server's speed, after `busy` of its processors were in use.
    fn throttle(&mut self, s: u32, busy: u32) -> f64 {
        let kind = &self.setup.kinds[usize::from(self.servers[s as usize].kind)];
        let Some(bucket) = kind.credits else { return 1.0 };
        self.sharing[s as usize].throttle(self.now, bucket, kind.concurrency, busy)
    }

    /// Announces when the first of those that share a server will be done.
    fn announce(&mut self, s: u32, speed: f64) {
        let processors = self.setup.kinds[usize::from(self.servers[s as usize].kind)].concurrency;
        let sharing = &mut self.sharing[s as usize];
        sharing.version = sharing.version.wrapping_add(1);
        let version = sharing.version;
        if let Some((at, _)) = sharing.first(processors, speed) {
            self.schedule(at.max(self.now), Event::SharedDone, version, s);
        }
    }

    pub(super) fn shared_done(&mut self, s: u32, version: u32) {
        let server = &self.servers[s as usize];
        if self.sharing[s as usize].version & GENERATION != version || server.health == Health::Hung {
            return;
        }
        let busy = server.busy;
        let processors = self.setup.kinds[usize::from(server.kind)].concurrency;
        let speed = server.speed * self.throttle(s, busy);
        let sharing = &mut self.sharing[s as usize];
        sharing.advance(self.now, processors);
        let Some(id) = sharing.take() else { return };
        self.announce(s, speed);
        let time = (self.requests.get(id).work as f64 / speed) as Nanos;
        self.served(id, time);
    }

    /// The end of a service in order.
    #[inline]
    pub(super) fn depart(&mut self, id: u32) {
        let request = self.requests.get(id);
        let s = request.server;
        if self.servers[s as usize].health == Health::Hung {
            // It is done when the server is well again.
            self.servers[s as usize].busy -= 1;
            return self.wait(id);
        }
        let time = self.now - request.started;
        if !self.servers[s as usize].plain {
            let busy = self.servers[s as usize].busy;
            self.throttle(s, busy);
        }
        self.served(id, time);
    }

    /// A request has been served for so long; the next takes its place.
    #[inline]
    fn served(&mut self, id: u32, time: Nanos) {
        let request = self.requests.get_mut(id);
        request.at_server = false;
        let there = self.now - request.sent - self.setup.delay;
        let server = &mut self.servers[request.server as usize];
        server.busy -= 1;
        server.busy_time += time;
        server.sojourn += there;
        if let Some(latencies) = self.latencies.get(request.server as usize) {
            latencies.add(self.now, u32::from(request.found_there), there);
        }
        let (s, rate) = (request.server, f64::from(server.error_rate));
        let fails = rate > 0.0 && self.errors.unit() < rate;
        let next = self.first_waiting(s);
        if next != NONE {
            self.start_next(next);
        }
        self.requests.get_mut(id).error = fails;
        self.answer(id, !fails);
    }

    /// The first of those that wait, without what the server drops.
    #[inline]
    fn first_waiting(&mut self, s: u32) -> u32 {
        let server = &mut self.servers[s as usize];
        if !server.plain && self.setup.kinds[usize::from(server.kind)].drops_abandoned {
            while server.head != NONE && self.requests.get(server.head).orphan {
                let dropped = server.head;
                server.head = self.requests.get(dropped).next;
                server.waiting -= 1;
                self.requests.remove(dropped);
            }
        }
        server.head
    }

    /// The first of those that wait is served.
    #[inline]
    pub(super) fn start_next(&mut self, first: u32) {
        let request = self.requests.get(first);
        let server = &mut self.servers[request.server as usize];
        server.head = request.next;
        server.waiting -= 1;
        server.busy += 1;
        self.start(first);
    }

    /// The server answers, or refuses.
    #[inline]
    pub(super) fn answer(&mut self, id: u32, ok: bool) {
        if self.setup.delay == 0 {
            return self.back(id, ok);
        }
        let generation = self.requests.get(id).generation;
        self.schedule(self.now + self.setup.delay, if ok { Event::Back } else { Event::BackFailed }, generation, id);
    }

    /// A server is not there any more, or answers with errors: what it had fails.
    pub(super) fn lose(&mut self, s: u32) {
        let lost = self.requests.at_server(s);
        let server = &mut self.servers[s as usize];
        let error = server.health == Health::FailsFast;
        (server.head, server.tail, server.waiting, server.busy) = (NONE, NONE, 0, 0);
        if let Some(sharing) = self.sharing.get_mut(s as usize) {
            sharing.clear();
        }
        for id in lost {
            let request = self.requests.get_mut(id);
            (request.at_server, request.error) = (false, error);
            // The end of its service will not come. A time-out of its own neither, but the news is nearer.
            request.generation = request.generation.wrapping_add(1);
            self.answer(id, false);
        }
    }

    /// A server's speed changes: at once for those that share it, for the others from the next service on.
    pub(super) fn set_speed(&mut self, s: u32, speed: f64) {
        let kind = &self.setup.kinds[usize::from(self.servers[s as usize].kind)];
        self.servers[s as usize].speed = speed;
        if kind.discipline == Discipline::Ps {
            let busy = self.servers[s as usize].busy;
            let throttle = self.throttle(s, busy);
            self.sharing[s as usize].advance(self.now, kind.concurrency);
            self.announce(s, speed * throttle);
        }
    }

    /// A server falls silent.
    pub(super) fn pause(&mut self, s: u32) {
        let server = &self.servers[s as usize];
        let kind = &self.setup.kinds[usize::from(server.kind)];
        if kind.discipline == Discipline::Ps {
            let sharing = &mut self.sharing[s as usize];
            sharing.advance(self.now, kind.concurrency);
            sharing.version = sharing.version.wrapping_add(1);
        }
    }

    /// A server that was silent goes on with what it has.
    pub(super) fn resume(&mut self, s: u32) {
        let kind = &self.setup.kinds[usize::from(self.servers[s as usize].kind)];
        if kind.discipline == Discipline::Ps {
            let speed = self.servers[s as usize].speed;
            self.sharing[s as usize].skip_to(self.now);
            self.announce(s, speed);
        }
        while self.servers[s as usize].busy < self.servers[s as usize].concurrency {
            let first = self.first_waiting(s);
            if first == NONE {
                break;
            }
            self.start_next(first);
        }
    }
}
