//! What happens to servers while they are measured: churn and faults.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::check::near;
use super::{Farm, Load, Time};
use crate::units::show_duration;

/// How many times slower a slow server is, unless the plan says otherwise.
const SLOWER: f64 = 4.0;

/// Something that happens to servers of a farm, at the same time in every run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Event {
    /// When, counted from the beginning of the measured time.
    pub at: Time,
    /// What.
    #[serde(rename = "do")]
    pub action: Action,
    /// To these servers, counted servers one by one; to all if there is none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub servers: Vec<String>,
    /// After so long the server is as before; never if absent. Of a deploy: how long each server is away.
    pub duration: Option<Time>,
    /// How many times slower a slow server is.
    pub factor: Option<f64>,
}

/// What happens to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// It finishes the requests that it has and ends.
    Stop,
    /// Its process is killed.
    Kill,
    /// Its process is frozen: connections are accepted by the kernel and not answered.
    Freeze,
    /// It works slower.
    Slow,
    /// It answers every request with 503 at once.
    Fail,
    /// One server after the other is stopped and started again.
    Deploy,
}

impl Event {
    /// The names of the servers that it happens to.
    pub fn servers(&self, farm: &Farm) -> Vec<String> {
        if self.servers.is_empty() { farm.names() } else { self.servers.clone() }
    }

    /// How many times slower a slow server is.
    pub fn factor(&self) -> f64 {
        self.factor.unwrap_or(SLOWER)
    }

    /// When the plan has the server as before, if it does; a deploy takes longer than this, by the time of its restarts.
    fn end(&self, servers: usize) -> Option<Duration> {
        match (self.action, self.duration) {
            (Action::Deploy, away) => {
                Some(self.at.0 + away.unwrap_or_default().0 * u32::try_from(servers).unwrap_or(u32::MAX))
            }
            (_, duration) => duration.map(|duration| self.at.0 + duration.0),
        }
    }
}

impl Farm {
    /// The events of these servers alone.
    pub fn events_of(&self, names: &[String]) -> Vec<Event> {
        let of = |event: &Event| {
            let servers: Vec<String> =
                event.servers(self).into_iter().filter(|server| names.contains(server)).collect();
            (!servers.is_empty()).then(|| Event { servers, ..event.clone() })
        };
        self.events.iter().filter_map(of).collect()
    }
}

/// `5s: freeze b for 2s`.
impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", show_duration(self.at.0), self.action)?;
        match self.servers.as_slice() {
            [] => f.write_str(" all servers")?,
            servers => write!(f, " {}", servers.join(", "))?,
        }
        if self.action == Action::Slow {
            write!(f, " by {}", self.factor())?;
        }
        match (self.action, self.duration) {
            (Action::Deploy, Some(away)) => write!(f, ", each away for {}", show_duration(away.0)),
            (_, Some(duration)) => write!(f, " for {}", show_duration(duration.0)),
            (_, None) => Ok(()),
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Action::Stop => "stop",
            Action::Kill => "kill",
            Action::Freeze => "freeze",
            Action::Slow => "slow",
            Action::Fail => "fail",
            Action::Deploy => "deploy",
        })
    }
}

/// What is wrong with the events of a farm: where below `events`, what is wrong, what to do.
pub(super) fn problems_of_events(farm: &Farm, loads: &[Load]) -> Vec<(String, String, String)> {
    let mut problems = Vec::new();
    let mut wrong = |place: String, message: String, hint: &str| problems.push((place, message, hint.to_owned()));
    let names = farm.names();
    // Loads that end with a number of requests may last as long as they like.
    let measured = |load: &Load| load.duration.map(|duration| duration.0.saturating_sub(load.warmup.0));
    let longest = loads.iter().map(measured).collect::<Option<Vec<Duration>>>().and_then(|all| all.into_iter().max());
    let mut times: BTreeMap<String, Vec<(Duration, Option<Duration>)>> = BTreeMap::new();
    for (at, event) in farm.events.iter().enumerate() {
        for (number, name) in event.servers.iter().enumerate() {
            if !names.contains(name) {
                let message = format!("the farm \"{}\" has no server \"{name}\"", farm.name);
                wrong(format!("{at}.servers.{number}"), message, &near(name, &names));
            }
        }
        let servers = event.servers(farm);
        if let Some((name, _)) = farm.each().find(|(name, server)| servers.contains(name) && server.address.is_some()) {
            let message = format!("\"{name}\" is not a server of the lab, which cannot {} it", event.action);
            wrong(format!("{at}.do"), message, "events are for servers that the lab starts, those without an address");
        }
        if let Some(longest) = longest.filter(|longest| event.at.0 >= *longest) {
            let message = format!("at {} no load is measured any more", show_duration(event.at.0));
            let hint = format!("times count from the end of the warm-up, and {} are measured", show_duration(longest));
            wrong(format!("{at}.at"), message, &hint);
        }
        if event.action != Action::Deploy && event.duration.is_some_and(|duration| duration.is_zero()) {
            wrong(format!("{at}.duration"), "a duration of nothing".into(), "leave it out: to the end of the load");
        }
        match (event.action, event.factor) {
            (Action::Slow, Some(factor)) if !(factor > 1.0 && factor <= 1e6) => {
                wrong(format!("{at}.factor"), "no factor".into(), "above 1; 4 is four times slower");
            }
            (Action::Slow, _) | (_, None) => {}
            (action, Some(_)) => {
                let message = format!("a factor is of slow servers, not of {action}");
                wrong(format!("{at}.factor"), message, "leave it out");
            }
        }
        let (from, to) = (event.at.0, event.end(servers.len()));
        for name in servers {
            let before = times.entry(name.clone()).or_default();
            let overlaps = |(begin, end): &(Duration, Option<Duration>)| {
                end.is_none_or(|end| from < end) && to.is_none_or(|to| *begin < to) || *begin == from
            };
            if before.iter().any(overlaps) {
                let message = format!("two things happen to \"{name}\" at {}", show_duration(from));
                wrong(format!("{at}.at"), message, "one has to be over, by its duration, before the next begins");
            }
            before.push((from, to));
        }
    }
    problems
}
