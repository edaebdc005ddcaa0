//! The engine as the API sees it.

use std::sync::{Arc, Mutex, Weak};

use balanza_config::model::UpstreamServer;
use balanza_config::model::membership::{Arm, ChangeError, Protocol};

use super::{Engine, State, lock};
use crate::api::{self, Decide, Failure, Plane, View};
use crate::running_config::Generation;
use crate::servers::blocks::Running;

/// The engine, for as long as it exists.
struct Access(Weak<Mutex<State>>);

impl Plane for Access {
    fn view(&self) -> Option<View> {
        let state = self.0.upgrade()?;
        let state = lock(&state);
        Some(View {
            generation: Arc::clone(&state.generation),
            respawned: state.respawned,
            workers: state.workers.iter().map(|worker| worker.serial).collect(),
            zombies: state.servers.zombies(state.generation.upstreams()),
            deadlines: state.generation.upstreams().flat_map(|shared| state.deadlines(shared)).collect(),
            cut_off: state.cut_off.iter().map(|(server, (_, left))| (*server, *left)).collect(),
        })
    }

    fn listed(&self, protocol: Protocol, upstream: &str) -> Option<Vec<UpstreamServer>> {
        let state = self.0.upgrade()?;
        let state = lock(&state);
        state.listed.get(&(protocol, upstream.to_owned())).cloned()
    }

    fn own(&self, protocol: Protocol, upstream: &str) -> Option<usize> {
        let state = self.0.upgrade()?;
        let state = lock(&state);
        let shared = state.generation.upstream(protocol, upstream)?;
        Some(state.own(shared).len())
    }

    fn change(&self, protocol: Protocol, upstream: &str, decide: Decide<'_>) -> Result<(), Failure> {
        let gone = || Failure::new(404, "UpstreamNotFound", "upstream not found");
        let state = self.0.upgrade().ok_or_else(gone)?;
        let mut state = lock(&state);
        let generation = Arc::clone(&state.generation);
        let shared = generation.upstream(protocol, upstream).ok_or_else(gone)?;
        let configured = state.own(shared).len();
        let changes = decide(shared, configured)?;
        Ok(state.change(protocol, upstream, changes)?)
    }

    fn set_arm(&self, protocol: Protocol, upstream: &str, arm: Option<(Arm, Arc<Running>)>) -> Result<(), ChangeError> {
        let state = self.0.upgrade().ok_or_else(|| ChangeError::NoUpstream(upstream.to_owned()))?;
        lock(&state).set_arm(protocol, upstream, arm)
    }
}

impl Engine {
    /// Starts what answers questions about all workers, if the configuration has a use for it.
    pub(super) fn open_desk(&self) -> anyhow::Result<()> {
        let generation = Arc::clone(&self.state().generation);
        self.open_desk_of(&generation)
    }

    /// The same for a configuration that has just been loaded.
    pub(super) fn open_desk_of(&self, generation: &Generation) -> anyhow::Result<()> {
        let is_needed = generation.config.http.is_controlled
            || generation.upstreams().any(|shared| shared.conf.experiment.is_some());
        if is_needed && let Some(questions) = generation.desk.open() {
            api::start(Box::new(Access(Arc::downgrade(&self.state))), questions)?;
        }
        Ok(())
    }
}
