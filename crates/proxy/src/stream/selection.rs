//! Which of the servers of an address a session is for: the one of the name that the client asks for by TLS.

use std::net::SocketAddr;
use std::sync::Arc;

use balanza_config::model::StreamServer;
use balanza_config::regex::{Captures, MatchError, Regex};

use super::{Session, Status, StreamListener};
use crate::lookup::Subject;

/// The server of a name.
pub struct Selected {
    /// It.
    pub server: Arc<StreamServer>,
    /// The expression that has matched, and its groups.
    matched: Option<(Regex, Captures)>,
}

/// Looks for the server of a name behind this local address; none means the server that the session is for already.
///
/// # Errors
/// An expression of which it is not known whether it matches.
pub fn find(
    listener: &StreamListener,
    local: Option<SocketAddr>,
    name: Option<&str>,
) -> Result<Option<Selected>, Box<MatchError>> {
    let Some(name) = name else { return Ok(None) };
    let mut captures = Captures::default();
    let found = listener.conf().group(|| local).names.find(name.as_bytes(), &mut captures)?;
    Ok(found.map(|(server, regex)| Selected {
        server: Arc::clone(server),
        matched: regex.map(|regex| (regex.clone(), captures)),
    }))
}

impl Session {
    /// Goes on with the server of this name, if there is one.
    ///
    /// # Errors
    /// It is not known which one.
    pub(super) fn select(&mut self, name: Option<&str>) -> Result<(), Status> {
        let found = find(&self.listener, self.local(), name);
        self.enter(found)
    }

    /// Goes on with this server.
    ///
    /// # Errors
    /// It is not known which one.
    pub(super) fn enter(&mut self, found: Result<Option<Selected>, Box<MatchError>>) -> Result<(), Status> {
        let found = match found {
            Ok(Some(found)) => found,
            Ok(None) => return Ok(()),
            Err(error) => {
                self.undecided(&error);
                return Err(Status::InternalError);
            }
        };
        if let Some((regex, captures)) = found.matched {
            *self.captures() = captures;
            self.keep_named_groups(&regex);
        }
        let zones = &self.listener.running.stream_zones;
        zones[self.server.status_zone].processing.subtract(1);
        zones[found.server.status_zone].processing.add(1);
        self.server = found.server;
        Ok(())
    }
}
