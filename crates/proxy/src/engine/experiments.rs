//! Arms of experiments: an upstream changes to one as to a method that the API chooses.

use std::sync::Arc;

use balanza_config::model::membership::{Arm, Change, ChangeError, Changed, Changes, Protocol};
use balanza_config::model::{Level, Upstream};

use super::State;
use crate::log::error::ErrorWriter;
use crate::servers::blocks::Running;
use crate::servers::membership::{Balancing, method};

impl State {
    /// An upstream goes on in an arm, or as it was before the experiment.
    pub(super) fn set_arm(
        &mut self,
        protocol: Protocol,
        upstream: &str,
        arm: Option<(Arm, Arc<Running>)>,
    ) -> Result<(), ChangeError> {
        let generation = Arc::clone(&self.generation);
        let shared = generation.upstream(protocol, upstream);
        let shared = shared.ok_or_else(|| ChangeError::NoUpstream(upstream.to_owned()))?;
        let mut changed = self.changed(shared);
        let (arm, block) = arm.unzip();
        changed.change(Change::Arm(arm))?;
        let balancing = Balancing::of(&shared.conf, protocol, &changed, block).map_err(ChangeError::Refused)?;
        self.use_balancing(shared, changed, balancing)
    }
}

/// An experiment ends with its process: nothing knows any more when its block ends. The upstreams have their own methods again.
pub(super) fn ended(mut changes: Changes, log: &ErrorWriter) -> Changes {
    for ((_, upstream), changed) in &mut changes {
        if let Some(arm) = changed.end_arm() {
            let message = format_args!(
                "the experiment of upstream \"{upstream}\" has ended with its worker process, in arm \"{}\"",
                arm.name
            );
            log.write(Level::Warn, message);
        }
    }
    changes
}

/// An experiment goes on with another configuration unless that has another method, or the arm is impossible there.
pub(super) fn keep_arm(changed: &mut Changed, protocol: Protocol, upstream: &Upstream) {
    let Some(arm) = changed.arm() else { return };
    let suits = |text: &String| method(text, protocol, upstream, changed.servers()).is_ok();
    if arm.instead_of != upstream.method || !arm.method.as_ref().is_none_or(suits) {
        changed.end_arm();
    }
}
