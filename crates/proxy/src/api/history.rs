//! What the thread of the API remembers: how servers and zones did in the last minutes, and what happened to servers.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, SystemTime};

use balanza_balancing::Member;
use balanza_config::model::membership::Protocol;

use super::plane::View;
use super::upstreams;
use crate::metrics::{Attempts, Requests, Times};
use crate::servers::membership::{Membership, ServerId, Shared};

mod events;
mod series;

pub use self::events::{Event, Events};
pub use self::series::Series;

/// How often servers are looked at.
pub const TICK: Duration = Duration::from_secs(1);
/// Ticks in a step of the series.
const STEP_TICKS: u32 = 10;
/// Seconds in a step of the series.
pub const STEP_SECONDS: u32 = 10;

/// What is counted.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum Subject {
    /// The requests or sessions of a server's zone.
    Zone(Protocol, String),
    /// The requests of a location's zone.
    Location(String),
    /// The attempts to reach a server of an upstream.
    Server(ServerId),
}

/// A server, as it was found last.
pub struct Known {
    upstream: (Protocol, String),
    address: String,
    state: &'static str,
    /// How many requests it had been sent.
    requests: u64,
    /// When it was sent one, to the second.
    pub selected: Option<SystemTime>,
    /// Since when it is not tried because of failures.
    pub down_since: Option<SystemTime>,
    /// How long that was the case before.
    downtime: Duration,
    /// Since when it drains, and how many requests were in flight then.
    pub drains: Option<(SystemTime, u32)>,
}

impl Known {
    /// How long it was not tried because of failures.
    pub fn downtime(&self) -> Duration {
        let now = self.down_since.and_then(|since| since.elapsed().ok());
        self.downtime + now.unwrap_or_default()
    }
}

/// What is remembered.
#[derive(Default)]
pub struct History {
    /// What happened.
    pub events: Events,
    servers: HashMap<ServerId, Known>,
    /// Methods in the place of those of the configuration.
    methods: HashMap<(Protocol, String), String>,
    series: HashMap<Subject, Series>,
    generation: u64,
    ticks: u32,
}

impl History {
    /// What is known of a server.
    pub fn server(&self, id: ServerId) -> Option<&Known> {
        self.servers.get(&id)
    }

    /// How something did.
    pub fn series(&self, subject: &Subject) -> Option<&Series> {
        self.series.get(subject)
    }

    /// Looks at everything. To be called once in a [`TICK`].
    pub fn tick(&mut self, view: &View, now: SystemTime) {
        let is_first = self.generation == 0;
        let number = view.generation.number;
        if number != self.generation {
            let (kind, text) = match self.generation {
                0 if view.respawned > 0 => {
                    ("respawn", format!("worker process {} was started for one that died", std::process::id()))
                }
                0 => ("start", format!("worker process {} serves configuration {number}", std::process::id())),
                _ => ("reload", format!("configuration {number} is served")),
            };
            self.generation = number;
            self.events.add(now, Event { kind, text, ..Event::default() });
        }
        self.look_at_servers(view, now, is_first);
        self.look_at_methods(view, now);
        if self.ticks == 0 {
            self.step(view);
        }
        self.ticks = (self.ticks + 1) % STEP_TICKS;
    }

    fn look_at_servers(&mut self, view: &View, now: SystemTime, is_first: bool) {
        let mut present = HashSet::new();
        for shared in view.upstreams() {
            let membership = shared.membership();
            for (nth, id) in membership.ids.iter().enumerate() {
                present.insert(*id);
                let state = upstreams::state(&membership, nth);
                match self.servers.get_mut(id) {
                    Some(known) => {
                        let cut_off = view.cut_off.get(id).copied();
                        known.look(&membership, nth, state, now, cut_off, &mut self.events);
                    }
                    None => {
                        let upstream = (shared.protocol, shared.conf.name.clone());
                        let known = Known::new(upstream, &membership, nth, state, now);
                        if !is_first {
                            self.events.add(now, known.event("added", format!("added, {state}")));
                        }
                        self.servers.insert(*id, known);
                    }
                }
            }
        }
        let events = &mut self.events;
        self.servers.retain(|id, known| {
            let stays = present.contains(id);
            if !stays {
                events.add(now, known.event("removed", "removed".to_owned()));
            }
            stays
        });
    }

    fn look_at_methods(&mut self, view: &View, now: SystemTime) {
        let chosen = |shared: &Shared| {
            let key = (shared.protocol, shared.conf.name.clone());
            let membership = shared.membership();
            // Experiments have events of their own.
            let method = match membership.balancing.block {
                Some(_) => self.methods.get(&key).cloned(),
                None => membership.balancing.chosen.clone(),
            };
            method.map(|method| (key, method))
        };
        let methods: HashMap<(Protocol, String), String> = view.upstreams().filter_map(chosen).collect();
        if methods == self.methods {
            return;
        }
        for shared in view.upstreams() {
            let key = (shared.protocol, shared.conf.name.clone());
            let configured = &shared.conf.method;
            let text = match (self.methods.get(&key), methods.get(&key)) {
                (before, now) if before == now => continue,
                (_, Some(method)) => format!("the method is \"{method}\"; the configuration has \"{configured}\""),
                (_, None) => format!("the method is \"{configured}\" again, as in the configuration"),
            };
            self.events.add(now, Event { kind: "method", text, upstream: Some(key), server: None });
        }
        self.methods = methods;
    }

    /// Ends a step of all series.
    fn step(&mut self, view: &View) {
        let metrics = &view.generation.metrics;
        let mut before = std::mem::take(&mut self.series);
        let series = &mut self.series;
        let mut put = |subject: Subject, counted: (u64, u64), times: &Times| {
            let mut of = before.remove(&subject).unwrap_or_default();
            of.step(counted, times);
            series.insert(subject, of);
        };
        let of_zone = |zone: &Requests| (zone.ended(), zone.statuses.range(500..600).map(|(_, count)| count).sum());
        for protocol in [Protocol::Http, Protocol::Stream] {
            for (name, zone) in super::zones::counted(view, protocol) {
                put(Subject::Zone(protocol, name.to_owned()), of_zone(&zone), &zone.times);
            }
        }
        for name in &view.generation.config.http.location_zones {
            let zone = metrics.locations.sum(name);
            put(Subject::Location(name.clone()), of_zone(&zone), &zone.times);
        }
        for shared in view.upstreams() {
            let membership = shared.membership();
            let sums = metrics.servers.sums(membership.ids.iter());
            let of_server = |sum: &Attempts| (sum.attempts, sum.failures);
            for (id, sum) in membership.ids.iter().zip(&sums) {
                put(Subject::Server(*id), of_server(sum), &sum.times);
            }
        }
    }
}

impl Known {
    fn new(
        upstream: (Protocol, String),
        membership: &Membership,
        nth: usize,
        state: &'static str,
        now: SystemTime,
    ) -> Known {
        let cell = membership.fleet.state(Member(nth as u32));
        Known {
            upstream,
            address: membership.servers[nth].address.to_string(),
            state,
            requests: cell.requests(),
            selected: None,
            down_since: is_failed(state).then_some(now),
            downtime: Duration::ZERO,
            drains: (state == "draining").then_some((now, cell.in_flight())),
        }
    }

    fn look(
        &mut self,
        membership: &Membership,
        nth: usize,
        state: &'static str,
        now: SystemTime,
        cut_off: Option<u32>,
        events: &mut Events,
    ) {
        let cell = membership.fleet.state(Member(nth as u32));
        let requests = cell.requests();
        if requests != self.requests {
            (self.requests, self.selected) = (requests, Some(now));
        }
        if state != self.state {
            let event = match cut_off {
                Some(left) if state == "down" => {
                    let text = format!("is down: the time to drain is over, {left} in flight were closed");
                    self.event("cut_off", text)
                }
                _ => self.event("state", format!("was {}, is {state}", self.state)),
            };
            events.add(now, event);
            match (is_failed(self.state), is_failed(state)) {
                (false, true) => self.down_since = Some(now),
                (true, false) => {
                    self.downtime = self.downtime();
                    self.down_since = None;
                }
                _ => {}
            }
            self.drains = (state == "draining").then_some((now, cell.in_flight()));
            self.state = state;
        }
        if let Some((since, begun @ 1..)) = self.drains
            && cell.in_flight() == 0
        {
            let seconds = now.duration_since(since).unwrap_or_default().as_secs();
            let text = format!("has no requests left of {begun}, after {seconds} s");
            events.add(now, self.event("drained", text));
            self.drains = Some((since, 0));
        }
    }

    fn event(&self, kind: &'static str, text: String) -> Event {
        let upstream = Some(self.upstream.clone());
        Event { kind, text, upstream, server: Some(self.address.clone()) }
    }
}

/// Whether this is a state in which NGINX counts downtime.
fn is_failed(state: &str) -> bool {
    matches!(state, "unavail" | "checking" | "unhealthy")
}
