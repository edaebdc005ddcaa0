//! `limit_conn` of `stream`.

use std::rc::Rc;

use balanza_config::log_text::Escaped;
use balanza_config::model::Level;

use super::{Session, Status, variables};
use crate::limits::{LONGEST_CONNECTION_KEY, Status as Decision};

impl Session {
    /// Counts the session, until it ends.
    ///
    /// # Errors
    /// There are too many with its key.
    pub(super) fn limit(&mut self) -> Result<(), Status> {
        let (server, running) = (self.server.clone(), Rc::clone(&self.listener.running));
        let limits = &server.limits;
        let mut key = Vec::new();
        for limit in &limits.connections {
            let zone = &running.limits.sessions[limit.zone];
            key.clear();
            variables::render(&zone.key, self, &mut key).map_err(|_| Status::InternalError)?;
            if key.is_empty() {
                continue;
            }
            if key.len() > LONGEST_CONNECTION_KEY {
                let (name, most, key) = (zone.key_text(), LONGEST_CONNECTION_KEY, Escaped(&key));
                let text = format_args!("the value of the \"{name}\" key is more than {most} bytes: \"{key}\"");
                self.report(Level::Error, text);
                continue;
            }
            self.limited = Some(Decision::Passed);
            match zone.enter(&key, limit.most) {
                Ok(place) => {
                    zone.counts().add(Decision::Passed);
                    self.places.push(place);
                }
                Err(reason) => {
                    self.places.clear();
                    let rejected =
                        if limits.connection_dry_run { Decision::RejectedDryRun } else { Decision::Rejected };
                    zone.counts().add(rejected);
                    self.limited = Some(rejected);
                    let (level, text) = reason.describe(limits, &zone.name);
                    self.report(level, format_args!("{text} while initializing session"));
                    return if limits.connection_dry_run { Ok(()) } else { Err(Status::ServiceUnavailable) };
                }
            }
        }
        Ok(())
    }
}
