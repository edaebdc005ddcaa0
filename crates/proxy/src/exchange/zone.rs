//! The zone that a request is in flight for.

use std::rc::Rc;

use super::Exchange;
use crate::running_config::RunningConfig;

/// Counts the request of an exchange as in flight, for as long as it exists.
#[derive(Default)]
pub struct InZone(Option<(Rc<RunningConfig>, usize)>);

impl Drop for InZone {
    fn drop(&mut self) {
        if let Some((running, zone)) = &self.0 {
            running.zones[*zone].processing.subtract(1);
        }
    }
}

impl Exchange {
    /// The request is in flight for the zone of its server.
    pub fn enter_zone(&mut self) {
        let (running, zone) = (Rc::clone(self.running()), self.server().status_zone);
        running.zones[zone].processing.add(1);
        self.zone = InZone(Some((running, zone)));
    }

    /// The request has ended.
    pub fn leave_zone(&mut self) {
        self.zone = InZone(None);
    }
}
