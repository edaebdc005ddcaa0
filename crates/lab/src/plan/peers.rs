//! More balancers beside those of a plan: `--peers`.

use super::{Plan, Selection, System};

impl Plan {
    /// The plan with another balancer, which takes part wherever NGINX or HAProxy does. Its claims remain about the
    /// balancers that it names itself.
    pub fn with_peer(&self, peer: &System) -> Plan {
        let mut plan = self.clone();
        if plan.systems.contains(peer) {
            return plan;
        }
        for check in &mut plan.checks {
            check.systems = self.asked(check);
        }
        plan.systems.push(peer.clone());
        let is_peer = |system: &System| matches!(system, System::Nginx | System::Haproxy);
        let join = |systems: &mut Vec<System>| {
            if systems.iter().any(is_peer) {
                systems.push(peer.clone());
            }
        };
        let selections = plan.cells.iter_mut().chain(&mut plan.quick.cells);
        selections.filter_map(|Selection { systems, .. }| systems.as_mut()).for_each(join);
        plan.algorithms.iter_mut().for_each(|algorithm| join(&mut algorithm.systems));
        plan
    }
}
