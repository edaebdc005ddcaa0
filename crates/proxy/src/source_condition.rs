//! The state of a resolved name or a discovery source, for the API, the metrics and the log.

use std::time::SystemTime;

/// The state of a name or a source.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Condition {
    /// The name that messages use.
    pub name: String,
    /// How many servers it has now.
    pub servers: usize,
    /// Entries that were left out because they are not valid servers.
    pub wrong: usize,
    /// When it last answered; none before the first answer.
    pub answered: Option<SystemTime>,
    /// The error since the last answer.
    pub error: Option<String>,
}

impl Condition {
    /// The state of a name or a source that has not been queried yet.
    pub fn new(name: String) -> Condition {
        Condition { name, ..Condition::default() }
    }

    /// Notes an answer.
    pub fn answered(&mut self, servers: usize) {
        self.servers = servers;
        self.answered = Some(SystemTime::now());
        self.error = None;
    }
}
