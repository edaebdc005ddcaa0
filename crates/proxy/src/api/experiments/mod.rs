//! `experiment`: methods of an upstream that take turns, and what was measured of each.
//!
//! The thread of the API drives experiments. `plan` is what is to be run and where it comes from, `trial` runs it block by
//! block and ends it, `shown` is what the API answers.

mod plan;
mod shown;
mod trial;

use std::collections::BTreeMap;
use std::fmt::Arguments;
use std::time::{Duration, Instant, SystemTime};

use balanza_config::model::Level;
use balanza_config::model::membership::Protocol;
use balanza_net::clock::{self, Nanos};
use serde_json::Value;

pub use self::plan::Plan;
use self::trial::Trial;
use super::Failure;
use super::history::{Event, Events, TICK};
use super::plane::{Plane, View};
use crate::log::error::ErrorWriter;
use crate::servers::membership::Shared;

/// Which upstream.
type Key = (Protocol, String);

/// What an experiment happens on.
pub struct Ground<'a> {
    /// The engine.
    pub plane: &'a dyn Plane,
    /// What runs.
    pub view: &'a View,
    /// Where it is told.
    pub events: &'a mut Events,
    now: Nanos,
    today: SystemTime,
}

impl<'a> Ground<'a> {
    /// At this time.
    pub fn new(plane: &'a dyn Plane, view: &'a View, events: &'a mut Events) -> Ground<'a> {
        Ground { plane, view, events, now: clock::now(), today: SystemTime::now() }
    }

    /// Tells of something, in the error log and as an event.
    fn tell(&mut self, level: Level, key: &Key, text: Arguments<'_>) {
        let generation = &self.view.generation;
        let log = ErrorWriter::new(&generation.config.core.error_log, &generation.logs);
        log.write(level, format_args!("upstream \"{}\": {text}", key.1));
        let upstream = Some(key.clone());
        self.events.add(self.today, Event { kind: "experiment", text: text.to_string(), upstream, server: None });
    }
}

/// The experiments of all upstreams, also those that have ended: the last one of each upstream is kept.
#[derive(Default)]
pub struct Experiments {
    trials: BTreeMap<Key, Trial>,
    /// Experiments with `start=on` of a process that died and that this one replaces: they have begun there.
    lost: BTreeMap<Key, Plan>,
    due: Option<Instant>,
    generation: u64,
}

impl Experiments {
    /// How long until something is to be done.
    pub fn wait(&self, now: Instant) -> Duration {
        self.due.map_or(Duration::ZERO, |due| due.saturating_duration_since(now))
    }

    /// Does what is due.
    pub fn drive(&mut self, ground: &mut Ground<'_>) {
        self.trials.values_mut().for_each(|trial| trial.drive(ground));
        self.begin_configured(ground);
        self.plan_next(ground);
    }

    fn plan_next(&mut self, ground: &Ground<'_>) {
        let wait = self.trials.values().filter_map(|trial| trial.wait(ground.now)).min();
        self.due = Some(Instant::now() + wait.unwrap_or(TICK).min(TICK));
    }

    /// Begins those with `start=on`. One that has ended does not begin again with a configuration that has the same, nor in
    /// a process that takes the place of one that died.
    fn begin_configured(&mut self, ground: &mut Ground<'_>) {
        let (before, number) = (self.generation, ground.view.generation.number);
        if before == number {
            return;
        }
        self.generation = number;
        let view = ground.view;
        self.trials.retain(|(protocol, upstream), _| view.upstream(*protocol, upstream).is_some());
        self.lost.retain(|(protocol, upstream), _| view.upstream(*protocol, upstream).is_some());
        let takes_over = before == 0 && view.respawned > 0;
        for shared in view.upstreams().filter(|shared| shared.conf.experiment.as_ref().is_some_and(|it| it.starts)) {
            let key = (shared.protocol, shared.conf.name.clone());
            let Some(plan) = Plan::configured(&shared.conf) else { continue };
            if takes_over {
                self.lost.insert(key, plan);
                continue;
            }
            let has_begun = self.trials.get(&key).is_some_and(|trial| trial.is_running() || trial.plan == plan);
            if has_begun || self.lost.get(&key) == Some(&plan) {
                continue;
            }
            if let Err(failure) = self.begin(ground, shared, plan) {
                ground.tell(Level::Error, &key, format_args!("its experiment cannot begin: {}", failure.text()));
            }
        }
    }

    /// Begins an experiment.
    ///
    /// # Errors
    /// One runs, or it cannot be run here.
    pub fn begin(&mut self, ground: &mut Ground<'_>, shared: &Shared, plan: Plan) -> Result<(), Failure> {
        let key = (shared.protocol, shared.conf.name.clone());
        if self.trials.get(&key).is_some_and(Trial::is_running) {
            return Err(Failure::new(409, "ExperimentRunning", "an experiment runs in this upstream: stop it first"));
        }
        plan.check(ground.plane, shared)?;
        let mut trial = Trial::new(key.clone(), shared, plan, ground)?;
        trial.drive(ground);
        self.lost.remove(&key);
        self.trials.insert(key, trial);
        self.plan_next(ground);
        Ok(())
    }

    /// Ends one.
    ///
    /// # Errors
    /// None runs.
    pub fn stop(&mut self, ground: &mut Ground<'_>, shared: &Shared) -> Result<(), Failure> {
        let trial = self.trials.get_mut(&(shared.protocol, shared.conf.name.clone()));
        let trial = trial.filter(|trial| trial.is_running());
        let trial =
            trial.ok_or_else(|| Failure::new(404, "ExperimentNotRunning", "no experiment runs in this upstream"))?;
        trial.stop(ground);
        Ok(())
    }

    /// The experiment of an upstream: the last one, or what its configuration has.
    pub fn shown(&self, shared: &Shared) -> Option<Value> {
        match self.trials.get(&(shared.protocol, shared.conf.name.clone())) {
            Some(trial) => Some(shown::trial(trial)),
            None => Plan::configured(&shared.conf).map(|plan| shown::planned(shared, &plan)),
        }
    }

    /// Those of all upstreams.
    pub fn all(&self, view: &View) -> Value {
        view.upstreams().filter_map(|shared| self.shown(shared)).collect()
    }

    /// Those that run: the upstream, the names of the arms, which of them runs, and the number of the block.
    pub fn running(&self) -> impl Iterator<Item = (&Key, Vec<&str>, usize, u64)> {
        self.trials.iter().filter_map(|(key, trial)| {
            let block = trial.current()?;
            Some((key, trial.names().collect(), block.arm, block.number))
        })
    }
}
