//! What the thread of the API knows from one request to the next.

use std::collections::HashMap;

use super::Failure;
use super::experiments::{Experiments, Ground};
use super::history::History;
use super::plane::{Plane, View};
use crate::limits::Decisions;
use crate::metrics::Connections;

/// The thread's own knowledge.
pub struct Service {
    /// The engine.
    pub plane: Box<dyn Plane>,
    /// What was decided before the last reset of a zone of limits, by kind and name.
    pub decisions: HashMap<(&'static str, String), Decisions>,
    /// What was counted before the last reset of a worker, by its serial number.
    pub workers: HashMap<u64, Connections>,
    /// What was counted before the last reset of a resolver.
    pub resolvers: HashMap<String, balanza_resolver::Counts>,
    /// How many processes had been replaced at the last reset.
    pub respawned: u64,
    /// How everything did in the last minutes.
    pub history: History,
    /// The experiments of upstreams.
    pub experiments: Experiments,
}

impl Service {
    /// Nothing was reset yet.
    pub fn new(plane: Box<dyn Plane>) -> Service {
        Service {
            plane,
            decisions: HashMap::new(),
            workers: HashMap::new(),
            resolvers: HashMap::new(),
            respawned: 0,
            history: History::default(),
            experiments: Experiments::default(),
        }
    }

    /// Does what is due of experiments.
    pub fn drive_experiments(&mut self, view: &View) {
        let mut ground = Ground::new(&*self.plane, view, &mut self.history.events);
        self.experiments.drive(&mut ground);
    }

    /// What runs now.
    ///
    /// # Errors
    /// The engine has ended.
    pub fn view(&self) -> Result<View, Failure> {
        self.plane.view().ok_or_else(|| Failure::new(503, "Ended", "the workers have ended"))
    }
}
