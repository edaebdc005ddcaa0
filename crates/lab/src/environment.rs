//! Where an experiment ran.

use serde::{Deserialize, Serialize};

/// Facts about the machine and the programs, as pairs of name and value, in the order in which a report shows them:
/// processor, cores, memory, kernel, settings that matter (`net.core.somaxconn`), versions of all systems and tools.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Environment {
    /// Name and value.
    pub facts: Vec<(String, String)>,
}
