//! A load that is an access log.

use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{Load, Plan, Time};
use crate::units::show_duration;

/// An access log whose requests are sent again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Replay {
    /// The file, also compressed by gzip. A relative path starts where the plan is.
    pub file: String,
    /// The text of the `log_format`; without it the formats that are known, or JSON.
    pub format: Option<String>,
    /// How values are escaped: `escape=` of the `log_format`.
    #[serde(default)]
    pub escape: Escape,
    /// So many times as fast as the log.
    #[serde(default = "as_it_was")]
    pub speed: f64,
    /// Where to begin, in the log's own time since its first request.
    #[serde(default, skip_serializing_if = "Time::is_zero")]
    pub from: Time,
}

/// `escape=` of a `log_format`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Escape {
    /// `\xXX`.
    #[default]
    Default,
    /// As in JSON's strings.
    Json,
    /// As they are.
    None,
}

/// `the log access.log at 10 times its speed from 5m`.
impl fmt::Display for Replay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = Path::new(&self.file).file_name().unwrap_or_default();
        write!(f, "the log {}", file.display())?;
        if self.speed != 1.0 {
            write!(f, " at {} times its speed", self.speed)?;
        }
        if !self.from.is_zero() {
            write!(f, " from {}", show_duration(self.from.0))?;
        }
        Ok(())
    }
}

fn as_it_was() -> f64 {
    1.0
}

impl Load {
    /// Whether requests are sent whatever became of earlier ones.
    pub fn is_open(&self) -> bool {
        self.rate.is_some() || self.log.is_some()
    }
}

impl Plan {
    /// Relative paths of logs start in the directory of the plan.
    pub(super) fn find_logs_beside(&mut self, plan: &Path) {
        let directory = plan.parent().unwrap_or(Path::new(""));
        for log in self.loads.iter_mut().filter_map(|load| load.log.as_mut()) {
            log.file = directory.join(&log.file).to_string_lossy().into_owned();
        }
    }
}
