//! How a name that is resolved, or a source that is followed, is at present: for the API, the metrics and the log.

use std::time::SystemTime;

/// How a name or a source is at present.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Condition {
    /// What messages call it.
    pub name: String,
    /// How many servers it has.
    pub servers: usize,
    /// Its entries that are no servers.
    pub wrong: usize,
    /// When it answered last; none before it has.
    pub answered: Option<SystemTime>,
    /// Why it has not answered since.
    pub error: Option<String>,
}

impl Condition {
    /// That of a name or a source that has not been asked yet.
    pub fn new(name: String) -> Condition {
        Condition { name, ..Condition::default() }
    }

    /// It has answered.
    pub fn answered(&mut self, servers: usize) {
        self.servers = servers;
        self.answered = Some(SystemTime::now());
        self.error = None;
    }
}
