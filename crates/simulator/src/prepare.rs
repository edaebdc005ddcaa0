//! From a scenario to setups: checks, defaults, files.

use std::borrow::Cow;
use std::path::Path;

use balanza_balancing::Nanos;
use balanza_balancing::registry::{Host, Method, Spec};

use crate::engine::{Guards, Scripted, Setup};
use crate::error::Error;
use crate::model::arrivals::{Arrivals, Line};
use crate::model::distribution::Distribution;
use crate::model::keys::Keys;
use crate::scenario::{self, Action, Scenario, Servers, Service};

/// Requests of a replication when the scenario does not say; but at least so many mean service times.
const REQUESTS: f64 = 1e6;
const SERVICE_TIMES: f64 = 50.0;
/// As many as fit a fleet.
const SERVERS_MAX: u64 = 1 << 24;
/// States of servers, one for each view: a few hundred bytes each.
const STATES_MAX: u64 = 1 << 25;

/// Requests in the order of their times.
pub type Trace = std::sync::Arc<[Line]>;

/// One of a scenario's loads.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Load {
    /// A part of the capacity.
    Offered(f64),
    /// Requests a second.
    Rate(f64),
    Users(u32),
    Trace,
}

/// A scenario that has been checked.
pub(crate) struct Parts {
    pub scenario: Scenario,
    /// As written, ready, and the servers as that algorithm is told of them.
    pub specs: Vec<(String, Spec, Guards, Vec<Servers>)>,
    pub loads: Vec<Load>,
    pub servers: usize,
    work: Distribution,
    think: Distribution,
    keys: Keys,
    trace: Trace,
    /// One for each replication, if they do not share `trace`.
    traces: Vec<Trace>,
    script: Vec<Scripted>,
    /// Work a second.
    capacity: f64,
}

/// The algorithm of a text like `two_choices choices=3`.
pub fn algorithm(text: &str) -> Result<Spec, Error> {
    let method = Method::parse(text).map_err(|error| Error::value(format!("{text}: {error}")))?;
    match method.key {
        Some(_) => Err(Error::value(format!("{text}: a simulated request has a number as its key; leave \"key\" out"))),
        None => Ok(method.spec),
    }
}

/// Takes `weights=3,1` out of an algorithm's text: one weight for each group of servers, instead of theirs.
fn weights(text: &str, groups: usize) -> Result<(String, Vec<u32>), Error> {
    let (weights, rest): (Vec<&str>, Vec<&str>) =
        text.split_whitespace().partition(|word| word.starts_with("weights="));
    let Some(list) = weights.last().and_then(|word| word.strip_prefix("weights=")) else {
        return Ok((rest.join(" "), Vec::new()));
    };
    let numbers: Option<Vec<u32>> = list.split(',').map(|number| number.parse().ok().filter(|n| *n > 0)).collect();
    match numbers {
        Some(numbers) if numbers.len() == groups => Ok((rest.join(" "), numbers)),
        _ => Err(Error::value(format!(
            "{text}: \"{list}\" has to be {groups} weights, one for each group of servers, as in weights={}",
            vec!["1"; groups].join(",")
        ))),
    }
}

/// Checks a scenario and reads its files.
pub(crate) fn parts(scenario: &Scenario, directory: &Path) -> Result<Parts, Error> {
    with_traces(scenario, directory, &[])
}

/// The same for arrivals in memory, one trace for each replication, which `arrivals` of the scenario does not name.
pub(crate) fn with_traces(scenario: &Scenario, directory: &Path, traces: &[Trace]) -> Result<Parts, Error> {
    let specs = scenario.algorithms.iter().map(|text| {
        let mut directives = text.split(" + ");
        let (algorithm_alone, weights) = weights(directives.next().unwrap_or_default(), scenario.servers.len())?;
        let guards = Guards::parse(directives).map_err(|error| Error::value(format!("{text}: {error}")))?;
        let mut groups = scenario.servers.clone();
        groups.iter_mut().zip(weights).for_each(|(group, weight)| group.weight = weight);
        Ok((text.clone(), algorithm(&algorithm_alone)?, guards, groups))
    });
    let specs = specs.collect::<Result<Vec<_>, Error>>()?;
    if specs.is_empty() {
        return Err(Error::value("algorithms: there is none"));
    }
    let count: u64 = scenario.servers.iter().map(|g| u64::from(g.count)).sum();
    if count == 0 || count > SERVERS_MAX {
        return Err(Error::value(format!("servers: there have to be 1 to {SERVERS_MAX}, and there are {count}")));
    }
    scenario.servers.iter().enumerate().try_for_each(|(i, group)| check(i, group))?;
    if scenario.servers.len() > usize::from(u16::MAX) {
        return Err(Error::value("servers: there are more than 65,535 groups"));
    }
    if scenario.replications == 0 {
        return Err(Error::value("replications: there has to be at least 1"));
    }
    let dispatchers = &scenario.dispatchers;
    if dispatchers.count == 0 || dispatchers.count > 65_535 {
        return Err(Error::value("dispatchers: there have to be 1 to 65535"));
    }
    if states(scenario, count) > STATES_MAX {
        return Err(Error::value(format!(
            "dispatchers: {count} servers in {} views of their own are more than {STATES_MAX}, which is what fits; \
             fewer of either, or a shared view",
            dispatchers.count
        )));
    }
    if scenario.requests.retries > 255 {
        return Err(Error::value("requests: retries cannot be above 255"));
    }
    let distribution = |service: &Service, what: &str| {
        let read = |file: &str| {
            let lines = read(directory, file).map_err(|wrong| wrong.to_string())?;
            lines.iter().map(|(number, line)| time(file, *number, line)).collect()
        };
        Distribution::new(service, read).map_err(|wrong| Error::value(format!("{what}: {wrong}")))
    };
    let work = distribution(&scenario.service, "service")?;
    let think = match &scenario.arrivals {
        scenario::Arrivals::Closed { think, .. } => distribution(think, "think")?,
        _ => distribution(&Service::Constant { mean: Default::default() }, "think")?,
    };
    let trace: Trace = match (&scenario.arrivals, traces) {
        (scenario::Arrivals::Trace { .. }, [first, ..]) => first.clone(),
        (scenario::Arrivals::Trace { file }, []) => read_trace(directory, file)?.into(),
        _ => Trace::default(),
    };
    let keys = Keys::new(scenario.requests.keys, scenario.requests.zipf).map_err(Error::Value)?;
    let script = scenario.events.iter().map(|event| scripted(event, count as u32)).collect::<Result<_, _>>()?;
    let capacity = scenario.servers.iter().map(|g| f64::from(g.count) * f64::from(g.concurrency) * g.speed).sum();
    let parts = Parts {
        specs,
        loads: loads(scenario)?,
        servers: count as usize,
        work,
        think,
        keys,
        trace,
        traces: traces.to_vec(),
        script,
        capacity,
        scenario: scenario.clone(),
    };
    if parts.work.mean() <= 0.0 && matches!(parts.loads[0], Load::Offered(_)) {
        return Err(Error::value("service: its mean is 0, so that a load has no meaning; give a rate to arrivals"));
    }
    let (duration, warmup) = (parts.duration(parts.loads[0]), scenario.run.warmup.map_or(0, |w| w.nanos()));
    if warmup >= duration {
        return Err(Error::value("run: the warm-up is as long as the run, so that nothing is measured"));
    }
    Ok(parts)
}

fn states(scenario: &Scenario, servers: u64) -> u64 {
    let own = scenario.dispatchers.view == scenario::View::Own;
    servers * if own { u64::from(scenario.dispatchers.count) } else { 1 }
}

fn check(i: usize, group: &Servers) -> Result<(), Error> {
    let wrong = |what: &str| Err(Error::value(format!("servers, group {}: {what}", i + 1)));
    if !(group.speed > 0.0 && group.speed.is_finite()) {
        return wrong("speed has to be above 0");
    }
    if group.concurrency == 0 {
        return wrong("concurrency has to be at least 1");
    }
    if !(0.0..=1.0).contains(&group.error_rate) {
        return wrong("error_rate has to be between 0 and 1");
    }
    if !matches!(group.failure, Action::Crash | Action::Hang | Action::FailFast) {
        return wrong("failure has to be crash, hang or fail_fast");
    }
    if group.credits.is_some_and(|c| !(0.0 < c.baseline && c.baseline <= 1.0)) {
        return wrong("baseline of credits has to be above 0 and at most 1");
    }
    Ok(())
}

fn loads(scenario: &Scenario) -> Result<Vec<Load>, Error> {
    use scenario::Arrivals::{Closed, Deterministic, Mmpp, Poisson, Trace};
    let rate = match &scenario.arrivals {
        Poisson { rate } | Deterministic { rate } | Mmpp { rate, .. } => *rate,
        Closed { users, .. } if users.is_empty() || users.contains(&0) => {
            return Err(Error::value("arrivals: users has to be a list of numbers of at least 1, as in [10, 100]"));
        }
        Closed { users, .. } if scenario.loads.is_empty() => {
            return Ok(users.iter().map(|u| Load::Users(*u)).collect());
        }
        Trace { .. } if scenario.loads.is_empty() => return Ok(vec![Load::Trace]),
        Closed { .. } | Trace { .. } => {
            return Err(Error::value("loads: users and traces come as they come; leave loads out"));
        }
    };
    if let Mmpp { burst, on, off, .. } = &scenario.arrivals
        && !(*burst > 0.0 && burst.is_finite() && on.nanos() > 0 && off.nanos() > 0)
    {
        return Err(Error::value("arrivals: burst, on and off have to be above 0"));
    }
    match (rate, &scenario.loads[..]) {
        (Some(_), [_, ..]) => Err(Error::value("loads: the arrivals have a rate already; leave one of them out")),
        (Some(rate), []) if rate > 0.0 && rate.is_finite() => Ok(vec![Load::Rate(rate)]),
        (Some(_), []) => Err(Error::value("arrivals: rate has to be above 0")),
        (None, []) => Err(Error::value("loads: how much work? Give loads, as in [0.5, 0.9], or a rate to arrivals")),
        (None, loads) => match loads.iter().find(|l| !(**l > 0.0 && l.is_finite())) {
            Some(wrong) => Err(Error::value(format!("loads: {wrong} is not above 0"))),
            None => Ok(loads.iter().map(|l| Load::Offered(*l)).collect()),
        },
    }
}

fn scripted(event: &scenario::Event, servers: u32) -> Result<Scripted, Error> {
    let wrong = |what: String| Error::value(format!("events, at {}: {what}", event.at));
    let of = match &event.servers {
        Some(text) => ranges(text, servers).map_err(wrong)?,
        None => (0..servers).collect(),
    };
    let needs = matches!(event.action, Action::Speed | Action::Errors | Action::Share | Action::Rate);
    if needs && !event.value.is_some_and(|v| v >= 0.0 && v.is_finite()) {
        return Err(wrong("the action needs a value of at least 0".into()));
    }
    if event.action == Action::Errors && event.value.is_some_and(|part| part > 1.0) {
        return Err(wrong("a part of the requests is at most 1".into()));
    }
    if !needs && event.value.is_some() {
        return Err(wrong("the action has no value".into()));
    }
    Ok(Scripted { at: event.at.nanos(), action: event.action, servers: of, value: event.value })
}

/// `0,4,7-9`: numbers below `count`.
fn ranges(text: &str, count: u32) -> Result<Vec<u32>, String> {
    let mut all = Vec::new();
    for part in text.split(',') {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| text.trim().parse::<u32>().ok().filter(|n| *n < count);
        match (number(from), number(to)) {
            (Some(from), Some(to)) if from <= to => all.extend(from..=to),
            _ => return Err(format!("\"{part}\" is not a server or a range of them: they are 0 to {}", count - 1)),
        }
    }
    Ok(all)
}

/// The lines that are not empty and no comments (`#`), with their numbers.
fn read(directory: &Path, file: &str) -> Result<Vec<(usize, String)>, Error> {
    let text =
        std::fs::read_to_string(directory.join(file)).map_err(|error| Error::File { file: file.into(), error })?;
    let lines = text.lines().enumerate().map(|(i, line)| (i + 1, line.trim().to_string()));
    Ok(lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#')).collect())
}

fn time(file: &str, number: usize, text: &str) -> Result<f64, String> {
    let time = text.parse().ok().filter(|t| (0.0..=3.2e9).contains(t));
    time.ok_or_else(|| format!("{file}:{number}: \"{text}\" is not a time in seconds"))
}

fn read_trace(directory: &Path, file: &str) -> Result<Vec<Line>, Error> {
    let mut lines: Vec<Line> = Vec::new();
    for (number, text) in read(directory, file)? {
        let mut words = text.split(|c: char| c == ',' || c.is_whitespace()).filter(|word| !word.is_empty());
        let mut nanos = || words.next().map(|word| time(file, number, word).map(|t| (t * 1e9).round() as Nanos));
        let at = nanos().unwrap_or(Ok(0)).map_err(Error::Value)?;
        let work = nanos().transpose().map_err(Error::Value)?;
        let key = words.next().map(|word| {
            word.parse().map_err(|_| Error::value(format!("{file}:{number}: \"{word}\" is not the number of a key")))
        });
        if lines.last().is_some_and(|last| last.at > at) {
            return Err(Error::value(format!("{file}:{number}: earlier than the line before")));
        }
        lines.push(Line { at, work, key: key.transpose()? });
    }
    if lines.is_empty() {
        return Err(Error::value(format!("{file}: no requests in it")));
    }
    Ok(lines)
}

impl Parts {
    /// States of servers that a replication keeps: one for each view.
    pub fn states(&self) -> usize {
        states(&self.scenario, self.servers as u64) as usize
    }

    /// Arrivals a second.
    pub fn rate(&self, load: Load) -> f64 {
        let mean = self.work.mean() / 1e9;
        match load {
            Load::Offered(load) => load * self.capacity / mean,
            Load::Rate(rate) => rate,
            Load::Users(users) => {
                let turn = mean + (self.think.mean() + self.scenario.network.client_rtt.nanos() as f64) / 1e9;
                (f64::from(users) / turn.max(1e-6)).min(self.capacity / mean.max(1e-6))
            }
            Load::Trace => {
                let last = self.trace.last().map_or(1.0, |line| line.at as f64 / 1e9);
                self.trace.len() as f64 / last.max(1e-9)
            }
        }
    }

    /// The part of the capacity that is asked for.
    pub fn offered(&self, load: Load) -> f64 {
        let work = self.trace.iter().filter_map(|line| line.work);
        let (sum, count) = work.fold((0.0, 0.0), |(sum, count), work| (sum + work as f64, count + 1.0));
        let mean = if count > 0.0 { sum / count } else { self.work.mean() };
        self.rate(load) * mean / 1e9 / self.capacity
    }

    /// Of a replication, the warm-up included.
    pub fn duration(&self, load: Load) -> Nanos {
        let run = &self.scenario.run;
        let seconds = match (run.duration, run.requests, load) {
            (Some(duration), ..) => duration.secs(),
            (None, Some(requests), _) => requests as f64 / self.rate(load),
            (None, None, Load::Trace) => self.trace.last().map_or(0.0, |line| line.at as f64 / 1e9 + 1e-9),
            (None, None, _) => (REQUESTS / self.rate(load)).max(SERVICE_TIMES * self.work.mean() / 1e9),
        };
        scenario::Time::from_secs(seconds).nanos().max(1)
    }

    /// The setup of one replication, which may have a trace of its own. A tenth of that is warm-up.
    pub fn of_replication<'a>(&self, setup: &'a Setup, replication: u32) -> Cow<'a, Setup> {
        let Some(trace) = self.traces.get(replication as usize) else { return Cow::Borrowed(setup) };
        let first = trace.first().map_or(0, |line| line.at);
        let last = trace.last().map_or(0, |line| line.at);
        Cow::Owned(Setup {
            arrivals: Arrivals::Trace(trace.clone()),
            duration: last + 1,
            warmup: first + (last - first) / 10,
            ..setup.clone()
        })
    }

    /// What a reader of the results has to know of this load.
    pub fn warnings(&self, load: Load) -> Vec<String> {
        let mut warnings = Vec::new();
        if !matches!(load, Load::Users(_)) && self.offered(load) >= 1.0 {
            warnings
                .push("the servers get more work than they can handle: queues grow until the end of the run".into());
        }
        if self.scenario.replications == 1 {
            warnings.push("one replication: there are no confidence intervals".into());
        }
        warnings
    }

    /// One algorithm at one load; the warm-up is to be added.
    pub fn setup(&self, spec: &Spec, guards: &Guards, groups: &[Servers], load: Load) -> Setup {
        let scenario = &self.scenario;
        let gap = 1e9 / self.rate(load);
        let arrivals = match &scenario.arrivals {
            scenario::Arrivals::Poisson { .. } => Arrivals::Poisson { gap },
            scenario::Arrivals::Deterministic { .. } => Arrivals::Deterministic { gap },
            scenario::Arrivals::Mmpp { burst, on, off, .. } => {
                Arrivals::mmpp(gap, *burst, on.nanos() as f64, off.nanos() as f64)
            }
            scenario::Arrivals::Trace { .. } => Arrivals::Trace(self.trace.clone()),
            scenario::Arrivals::Closed { .. } => match load {
                Load::Users(users) => Arrivals::Closed { users },
                _ => Arrivals::Closed { users: 1 },
            },
        };
        Setup {
            spec: spec.clone(),
            guards: guards.clone(),
            seed: scenario.seed,
            duration: self.duration(load),
            warmup: 0,
            arrivals,
            work: self.work.clone(),
            think: self.think.clone(),
            keys: self.keys.clone(),
            groups: groups.to_vec(),
            kinds: scenario.servers.iter().map(Setup::kind).collect(),
            dispatchers: scenario.dispatchers.clone(),
            delay: scenario.network.delay.nanos(),
            client_rtt: scenario.network.client_rtt.nanos(),
            timeout: scenario.requests.timeout.map_or(0, |t| t.nanos().max(1)),
            retries: scenario.requests.retries,
            bytes: scenario.requests.bytes,
            errors_pass: scenario.requests.errors == scenario::Errors::Pass,
            reports: match spec.entry().host {
                Host::Reports => scenario.reports.interval.nanos().max(1),
                _ => 0,
            },
            script: self.script.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_of_an_algorithm() {
        assert_eq!(weights("round_robin weights=3,1", 2).unwrap(), ("round_robin".into(), vec![3, 1]));
        assert_eq!(weights("two_choices choices=3", 2).unwrap(), ("two_choices choices=3".into(), vec![]));
        for wrong in ["weights=3", "weights=3,0", "weights=3,x", "weights=1,2,3", "weights="] {
            assert!(weights(wrong, 2).unwrap_err().to_string().contains("as in weights=1,1"), "{wrong}");
        }
    }

    #[test]
    fn servers_by_number() {
        assert_eq!(ranges("0,4,7-9", 10), Ok(vec![0, 4, 7, 8, 9]));
        assert_eq!(ranges("3-2", 10).unwrap_err(), "\"3-2\" is not a server or a range of them: they are 0 to 9");
        assert!(ranges("10", 10).is_err() && ranges("", 10).is_err() && ranges("x", 10).is_err());
    }
}
