//! What happens to servers, by the scenario or at random.

use super::server::Health;
use super::{Engine, Event};
use crate::scenario::Action;

impl Engine<'_> {
    pub(super) fn begin_failures(&mut self) {
        for s in 0..self.servers.len() as u32 {
            self.next_failure(s);
        }
    }

    fn next_failure(&mut self, s: u32) {
        let Some(failing) = self.setup.failing(self.servers[s as usize].kind) else { return };
        let at = self.now + (failing.between * self.failures.exponential()) as u64;
        self.schedule(at, Event::Fail, 0, s);
    }

    pub(super) fn random_failure(&mut self, s: u32) {
        let Some(failing) = self.setup.failing(self.servers[s as usize].kind) else { return };
        let lasts = (failing.lasts * self.failures.exponential()) as u64;
        self.schedule(self.now + lasts, Event::Heal, 0, s);
        self.act(failing.action, s, None);
    }

    pub(super) fn healed(&mut self, s: u32) {
        self.act(Action::Recover, s, None);
        self.next_failure(s);
    }

    /// An event of the scenario.
    pub(super) fn scripted(&mut self, at: usize) {
        let setup = self.setup;
        let scripted = &setup.script[at];
        match scripted.action {
            Action::Rate => {
                self.source.set_factor(self.now, scripted.value.unwrap_or(1.0));
                self.next_arrival = self.source.next();
            }
            // The servers are those of the fleet that was built from them before.
            Action::Reload => drop(self.balancers.restart(self.now, true)),
            Action::Restart => drop(self.balancers.restart(self.now, false)),
            action => scripted.servers.iter().for_each(|s| self.act(action, *s, scripted.value)),
        }
    }

    fn act(&mut self, action: Action, s: u32, value: Option<f64>) {
        let server = &mut self.servers[s as usize];
        let was = server.health;
        match action {
            Action::Crash => {
                server.health = Health::Crashed;
                self.lose(s);
            }
            Action::FailFast => {
                server.health = Health::FailsFast;
                self.lose(s);
            }
            Action::Hang => {
                server.health = Health::Hung;
                self.pause(s);
            }
            Action::Recover => {
                server.health = Health::Well;
                if was == Health::Hung {
                    self.resume(s);
                }
            }
            Action::Down => self.balancers.states(s).for_each(|state| state.set_down(true)),
            Action::Up => self.balancers.states(s).for_each(|state| state.set_down(false)),
            Action::Share => {
                let share = value.unwrap_or(100.0) as u32;
                self.balancers.states(s).for_each(|state| state.set_share(share));
            }
            Action::Errors => server.error_rate = value.unwrap_or(0.0) as f32,
            Action::Speed => self.set_speed(s, value.unwrap_or(1.0).max(1e-9)),
            // Not of single servers.
            Action::Rate | Action::Reload | Action::Restart => {}
        }
    }
}
