//! One replication: the loop of events.

mod balancers;
mod faults;
mod guards;
mod hedging;
mod measures;
mod news;
mod request;
mod server;
mod service;
mod setup;

use balanza_balancing::{Latencies, Member, Nanos, Outcome};

use crate::calendar::Calendar;
use crate::error::Error;
use crate::model::arrivals::{Arrivals, Source};
use crate::model::keys::address;
use crate::progress::Progress;
use crate::random::{Purpose, Random};
use balancers::{Balancers, Picked};
use measures::{Ending, GROUPS, Measures};
use request::{Request, Requests};
use server::{Server, Sharing};

pub(crate) use guards::Guards;
pub(crate) use measures::{checkpoint, deviation};
pub(crate) use setup::{Scripted, Setup};

/// Times after which the client's kernel asks again when the listen queue was full.
const SYN_RETRIES: [Nanos; 4] = [1_000_000_000, 2_000_000_000, 4_000_000_000, 8_000_000_000];

/// How soon a user comes again whose request failed.
const REFUSED_WAIT: Nanos = 10_000_000;

/// So many servers that their state does not fit a processor's cache, and how many events are then prepared at a time.
const FAR_APART: usize = 20_000;
const ANTICIPATED: usize = 128;

/// What an event is; its number is in the top eight bits, below it 24 bits of a generation and 32 of a place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
enum Event {
    /// A service is over.
    Depart,
    /// The first of those that share a server is done.
    SharedDone,
    /// A request reaches its server.
    Reach,
    /// An answer is back; or the news of a failure.
    Back,
    BackFailed,
    Timeout,
    /// A request is late.
    Late,
    /// A user sends a request.
    User,
    /// A probe reaches its server, and is back.
    Probe,
    ProbeBack,
    Refresh,
    Report,
    /// A server fails at random, and is well again.
    Fail,
    Heal,
    /// Of the scenario.
    Scenario,
    /// The end of a span of time, and of the warm-up.
    Span,
    Warm,
}

const EVENTS: [Event; 17] = [
    Event::Depart,
    Event::SharedDone,
    Event::Reach,
    Event::Back,
    Event::BackFailed,
    Event::Timeout,
    Event::Late,
    Event::User,
    Event::Probe,
    Event::ProbeBack,
    Event::Refresh,
    Event::Report,
    Event::Fail,
    Event::Heal,
    Event::Scenario,
    Event::Span,
    Event::Warm,
];

const GENERATION: u32 = (1 << 24) - 1;

/// How closely a replication is looked at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Looks {
    /// Into how many spans of time it is divided.
    pub spans: u32,
    /// Whether queues are sampled at their ends.
    pub queues: bool,
}

/// What a replication gives.
pub(crate) struct Outcomes {
    pub measures: Measures,
    pub utilization: f64,
    pub jain: f64,
    pub mean_queue: f64,
    /// Seconds of measurement.
    pub measured: f64,
    /// (requests, mean queue, utilisation) of each server, or the means of groups.
    pub per_server: Vec<(f64, f64, f64)>,
}

/// The state of one replication.
pub(crate) struct Engine<'a> {
    setup: &'a Setup,
    now: Nanos,
    calendar: Calendar,
    requests: Requests,
    servers: Vec<Server>,
    /// One for each server, if any server is not plain.
    sharing: Vec<Sharing>,
    /// What each server answers to probes, if it is asked any.
    latencies: Vec<Latencies>,
    /// Sums of the requests at each server since its last report; empty where none are wanted.
    sampled: Vec<u64>,
    balancers: Balancers,
    source: Source,
    next_arrival: Nanos,
    service: Random,
    keys: Random,
    dispatch: Random,
    failures: Random,
    errors: Random,
    thinking: Random,
    /// Probes under way: dispatcher, server, its requests in flight when the probe was there, its latency.
    probes: Vec<(u16, u32, u32, Nanos)>,
    free_probes: Vec<u32>,
    /// Servers to be probed now.
    asked: Vec<Member>,
    /// The servers of the services that end next.
    soon: Vec<u32>,
    measures: Measures,
    span: Nanos,
    looks: Looks,
    progress: &'a Progress,
}

impl<'a> Engine<'a> {
    pub fn new(setup: &'a Setup, replication: u32, looks: Looks, progress: &'a Progress) -> Result<Engine<'a>, Error> {
        let stream = |purpose| Random::new(setup.seed, replication, purpose);
        let servers: Vec<Server> = setup.servers().map(|(kind, of)| Server::new(kind, of)).collect();
        let sharing = if servers.iter().all(|s| s.plain) {
            Vec::new()
        } else {
            setup.servers().map(|(kind, _)| Sharing::new(kind)).collect()
        };
        let dispatchers = &setup.dispatchers;
        let count = dispatchers.count.max(1) as usize;
        let seeds = Balancers::seeds(setup.seed, replication);
        let balancers = Balancers::new(&setup.spec, &setup.guards, || setup.specs(), count, dispatchers.view, seeds)?;
        let asked = if balancers.wants_probes { servers.len() } else { 0 };
        let latencies = (0..asked).map(|_| Latencies::default()).collect();
        let sampled = vec![0; if setup.reports > 0 { servers.len() } else { 0 }];
        Ok(Engine {
            setup,
            now: 0,
            calendar: Calendar::new(),
            requests: Requests::new(setup.retries > 0, setup.guards.hedge.is_some()),
            servers,
            sharing,
            latencies,
            sampled,
            balancers,
            source: Source::new(&setup.arrivals, stream(Purpose::Arrivals)),
            next_arrival: Nanos::MAX,
            service: stream(Purpose::Service),
            keys: stream(Purpose::Keys),
            dispatch: stream(Purpose::Dispatchers),
            failures: stream(Purpose::Failures),
            errors: stream(Purpose::Errors),
            thinking: stream(Purpose::Thinking),
            probes: Vec::new(),
            free_probes: Vec::new(),
            asked: Vec::new(),
            soon: Vec::new(),
            measures: Measures::new(),
            span: (setup.duration / Nanos::from(looks.spans.max(1))).max(1),
            looks,
            progress,
        })
    }

    /// Runs to the end.
    pub fn run(mut self) -> Result<Outcomes, Error> {
        self.begin();
        let end = self.setup.duration;
        let far_apart = self.servers.len() >= FAR_APART;
        loop {
            let event = self.calendar.time();
            if far_apart {
                self.anticipate();
            }
            if self.next_arrival < event {
                if self.next_arrival >= end {
                    break;
                }
                self.now = self.next_arrival;
                self.measures.events += 1;
                let line = self.source.line();
                self.next_arrival = self.source.next();
                self.arrive(line.and_then(|l| l.work), line.and_then(|l| l.key));
            } else {
                if event >= end {
                    break;
                }
                self.now = event;
                self.measures.events += 1;
                let Some(event) = self.calendar.take() else { break };
                self.handle(event);
            }
        }
        self.now = end;
        if let Some(error) = self.balancers.trouble() {
            return Err(Error::Program { program: self.setup.spec.text("program").into(), error });
        }
        Ok(self.finish())
    }

    /// Reads what the next few events will need. The state of so many servers is in memory and not in the processor's
    /// cache; read one by one each would be waited for, read together they are waited for once.
    #[inline]
    fn anticipate(&mut self) {
        let Some(events) = self.calendar.anticipated() else { return };
        let departs = events.filter(|bits| bits >> 56 == Event::Depart as u64).take(ANTICIPATED);
        let requests = &self.requests;
        self.soon.clear();
        self.soon.extend(departs.map(|bits| requests.get(bits as u32).server));
        let open = self.soon.iter().filter(|s| self.balancers.accepts(self.now, **s)).count();
        let heads = self.soon.iter().map(|s| self.servers[*s as usize].head).filter(|head| *head != request::NONE);
        let next = heads.map(|head| requests.get(head).work).fold(0, Nanos::wrapping_add);
        std::hint::black_box((open, next));
    }

    fn begin(&mut self) {
        self.next_arrival = self.source.next();
        if let Arrivals::Closed { users } = self.setup.arrivals {
            // Not all in one moment, but as if they came one by one in the time of a first turn.
            let spread = (self.setup.think.mean() + self.setup.work.mean()).max(1.0);
            for _ in 0..users {
                let at = (self.thinking.unit() * spread) as Nanos;
                self.schedule(at, Event::User, 0, 0);
            }
        }
        for (i, scripted) in self.setup.script.iter().enumerate() {
            self.schedule(scripted.at, Event::Scenario, 0, i as u32);
        }
        self.begin_failures();
        if self.setup.board() {
            self.schedule(self.setup.dispatchers.refresh.nanos().max(1), Event::Refresh, 0, 0);
        }
        if self.setup.reports > 0 {
            self.schedule(0, Event::Report, 0, 0);
        }
        self.schedule(self.span, Event::Span, 0, 0);
        self.schedule(self.setup.warmup, Event::Warm, 0, 0);
    }

    #[inline]
    fn schedule(&mut self, at: Nanos, event: Event, generation: u32, place: u32) {
        let bits = (event as u64) << 56 | u64::from(generation & GENERATION) << 32 | u64::from(place);
        self.calendar.add(at, bits);
    }

    #[inline]
    fn handle(&mut self, bits: u64) {
        let event = EVENTS[(bits >> 56) as usize % EVENTS.len()];
        let (generation, place) = ((bits >> 32) as u32 & GENERATION, bits as u32);
        let valid = |requests: &Requests| requests.get(place).generation & GENERATION == generation;
        match event {
            Event::Depart => {
                if valid(&self.requests) {
                    self.depart(place);
                }
            }
            Event::SharedDone => self.shared_done(place, generation),
            Event::Reach => {
                if valid(&self.requests) {
                    self.reach(place);
                }
            }
            Event::Back | Event::BackFailed => {
                if valid(&self.requests) {
                    self.back(place, event == Event::Back);
                }
            }
            Event::Timeout => {
                let request = self.requests.get(place);
                if valid(&self.requests) && !request.orphan {
                    self.attempt_over(place, Ending::TimedOut);
                }
            }
            Event::Late => {
                let request = self.requests.get(place);
                if valid(&self.requests) && !request.orphan {
                    self.late(place);
                }
            }
            Event::User => self.arrive(None, None),
            Event::Probe => self.probe_there(place),
            Event::ProbeBack => self.probe_back(place),
            Event::Refresh => {
                let servers = &self.servers;
                self.balancers.refresh(self.now, |i| servers[i].queue());
                self.schedule(self.now + self.setup.dispatchers.refresh.nanos().max(1), Event::Refresh, 0, 0);
            }
            Event::Report => self.report(place),
            Event::Fail => self.random_failure(place),
            Event::Heal => self.healed(place),
            Event::Scenario => self.scripted(place as usize),
            Event::Span => self.end_span(),
            Event::Warm => self.end_warmup(),
        }
    }

    /// A request comes.
    #[inline]
    fn arrive(&mut self, work: Option<Nanos>, key: Option<u32>) {
        let work = work.unwrap_or_else(|| self.setup.work.draw(&mut self.service));
        let key = match key {
            Some(key) => key,
            None if self.balancers.keyed => self.setup.keys.draw(&mut self.keys),
            None => 0,
        };
        let dispatcher = match self.balancers.count() {
            1 => 0,
            count => self.dispatch.below(count as u64) as u16,
        };
        self.balancers.begins(self.now, dispatcher);
        let look = self.measures.arrived();
        let request = Request { arrived: self.now, work, key, dispatcher, ..Request::default() };
        let id = self.requests.add(request);
        self.dispatch(id);
        if look {
            self.measures.look(&self.servers);
        }
    }

    /// Chooses a server for an attempt and sends the request there.
    #[inline]
    fn dispatch(&mut self, id: u32) {
        if !self.send(id) {
            self.leave(id, Ending::Failed);
        }
    }

    /// The same; false if there is no server for it.
    #[inline]
    fn send(&mut self, id: u32) -> bool {
        let (dispatcher, key) = {
            let request = self.requests.get(id);
            (request.dispatcher, request.key)
        };
        let address = address(key);
        let key: &[u8] = if self.balancers.keyed { &address } else { b"" };
        let Some(Picked { server, found, probe }) =
            self.balancers.pick(self.now, dispatcher, key, self.requests.tried(id))
        else {
            return false;
        };
        let (epoch, now) = (self.balancers.epoch(), self.now);
        let request = self.requests.get_mut(id);
        (request.server, request.sent, request.epoch, request.knocks, request.error) = (server, now, epoch, 0, false);
        request.probe = probe;
        request.found = found.min(u32::from(u16::MAX)) as u16;
        let generation = request.generation;
        self.servers[server as usize].sent += 1;
        if self.setup.timeout != 0 {
            self.schedule(self.now + self.setup.timeout, Event::Timeout, generation, id);
        }
        if let Some(delay) = self.balancers.hedge_delay(self.now, dispatcher) {
            self.schedule(self.now + delay, Event::Late, generation, id);
        }
        if self.setup.delay == 0 {
            self.reach(id);
        } else {
            self.schedule(self.now + self.setup.delay, Event::Reach, generation, id);
        }
        if self.balancers.wants_probes {
            self.probe(dispatcher);
        }
        true
    }

    /// An answer, or the news of a failure, has come back from the server.
    #[inline]
    fn back(&mut self, id: u32, ok: bool) {
        if self.requests.get(id).orphan {
            self.requests.remove(id);
        } else {
            self.attempt_over(id, if ok { Ending::Ok } else { Ending::Failed });
        }
    }

    /// An attempt has ended, for the dispatcher. After a time-out the server does not know, and keeps it.
    #[inline]
    fn attempt_over(&mut self, mut id: u32, ending: Ending) {
        let request = self.requests.get(id);
        let outcome = match ending {
            Ending::Ok => Outcome::Success,
            Ending::Failed if request.error && self.setup.errors_pass => Outcome::ErrorResponse,
            _ => Outcome::Failure,
        };
        self.balancers.complete(self.now, request, outcome, self.setup.bytes);
        let request = self.requests.get(id);
        if outcome != Outcome::Failure && !request.hedge {
            self.balancers.note_time(request.dispatcher, self.now - request.sent);
        }
        if let Some(twin) = self.requests.twin(id)
            && self.end_double(id, twin, ending, outcome)
        {
            return;
        }
        let request = self.requests.get(id);
        let (again, dispatcher) = (u32::from(request.attempt) < self.setup.retries, request.dispatcher);
        if outcome == Outcome::Failure && again && self.balancers.may_retry(self.now, dispatcher) {
            if ending == Ending::TimedOut {
                id = self.requests.split(id);
            }
            let request = self.requests.get_mut(id);
            request.generation = request.generation.wrapping_add(1);
            request.attempt += 1;
            self.measures.counts.retries += 1;
            return self.dispatch(id);
        }
        if ending == Ending::TimedOut {
            id = self.requests.split(id);
        }
        self.leave(id, ending);
    }

    /// A request has ended, for its client.
    #[inline]
    fn leave(&mut self, id: u32, ending: Ending) {
        let time = self.now - self.requests.get(id).arrived + self.setup.client_rtt;
        self.requests.remove(id);
        self.measures.ended(time, ending);
        if let Arrivals::Closed { .. } = self.setup.arrivals {
            let think = self.setup.think.draw(&mut self.thinking);
            // Users whom nobody serves are not back in the same moment, or no time would pass.
            let least = if ending == Ending::Ok { 1 } else { REFUSED_WAIT };
            self.schedule(self.now + (self.setup.client_rtt + think).max(least), Event::User, 0, 0);
        }
    }

    fn end_span(&mut self) {
        self.measures.end_span();
        if self.looks.queues {
            self.measures.sample(self.now, &self.servers);
        }
        self.progress.add(self.span as f64 / self.setup.duration as f64);
        if self.progress.is_cancelled() {
            // Nothing more comes.
            self.calendar = Calendar::new();
            self.next_arrival = Nanos::MAX;
            return;
        }
        self.schedule(self.now + self.span, Event::Span, 0, 0);
    }

    fn end_warmup(&mut self) {
        self.measures.begin();
        for server in &mut self.servers {
            (server.busy_time, server.sojourn, server.sent_before) = (0, 0, server.sent);
        }
    }

    fn finish(mut self) -> Outcomes {
        self.measures.counts.in_system = self.measures.in_system;
        debug_assert_eq!(self.measures.in_system, self.requests.waited_for(), "requests are lost");
        let measured = (self.setup.duration - self.setup.warmup) as f64;
        let part = |s: &Server| {
            let processors = self.setup.kinds[usize::from(s.kind)].concurrency;
            s.busy_time as f64 / measured / f64::from(processors)
        };
        let capacity: f64 = self.servers.iter().map(|s| self.setup.capacity_of(s.kind)).sum();
        let used: f64 = self.servers.iter().map(|s| part(s) * self.setup.capacity_of(s.kind)).sum();
        let n = self.servers.len() as f64;
        let (sum, squares) = self.servers.iter().map(part).fold((0.0, 0.0), |(s, q), u| (s + u, q + u * u));
        let sojourn: f64 = self.servers.iter().map(|s| s.sojourn as f64).sum();
        let group = |group: &[Server]| {
            let mean = |of: &dyn Fn(&Server) -> f64| group.iter().map(of).sum::<f64>() / group.len() as f64;
            (mean(&|s| f64::from(s.sent - s.sent_before)), mean(&|s| s.sojourn as f64 / measured), mean(&part))
        };
        Outcomes {
            utilization: used / capacity,
            jain: if squares > 0.0 { sum * sum / (n * squares) } else { 1.0 },
            mean_queue: sojourn / measured / n,
            measured: measured / 1e9,
            per_server: self.servers.chunks(self.servers.len().div_ceil(GROUPS)).map(group).collect(),
            measures: self.measures,
        }
    }
}
