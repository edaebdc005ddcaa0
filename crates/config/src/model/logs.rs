//! Access logs and error logs.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::Syslog;
use crate::template::Template;

/// `access_log`.
#[derive(Debug, Clone)]
pub struct AccessLog {
    /// The file; a path with variables is evaluated for each request.
    pub target: AccessLogTarget,
    /// `log_format`.
    pub format: Arc<LogFormat>,
    /// `buffer=`; 0 writes each line at once.
    pub buffer: usize,
    /// `gzip=`: the level at which buffers are compressed.
    pub gzip: Option<u8>,
    /// `flush=`.
    pub flush: Option<Duration>,
    /// `if=`: not logged when it evaluates to "" or "0".
    pub condition: Option<Template>,
}

/// Where an access log goes.
#[derive(Debug, Clone)]
pub enum AccessLogTarget {
    /// Absolute path.
    File(PathBuf),
    /// A path with variables.
    Dynamic(Template),
    /// `syslog:`.
    Syslog(Arc<Syslog>),
}

/// `log_format`.
#[derive(Debug, PartialEq, Eq)]
pub struct LogFormat {
    /// Its name.
    pub name: String,
    /// How values are escaped.
    pub escape: LogEscape,
    /// The line, without the line feed.
    pub template: Template,
}

/// `log_format … escape=`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogEscape {
    /// `"`, `\` and bytes outside 32..127 as `\xXX`; empty values as "-".
    Default,
    /// JSON string rules.
    Json,
    /// As they are.
    None,
}

/// Where errors are logged, and from which level on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErrorLog {
    /// Where to.
    pub target: LogTarget,
    /// The least severe level that is written.
    pub level: Level,
}

/// Severity, the most severe first, as in `error_log`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs)]
pub enum Level {
    Emerg,
    Alert,
    Crit,
    Error,
    Warn,
    Notice,
    Info,
    Debug,
}

impl Level {
    /// All of them.
    pub const ALL: [Level; 8] =
        [Level::Emerg, Level::Alert, Level::Crit, Level::Error, Level::Warn, Level::Notice, Level::Info, Level::Debug];

    /// As `error_log` spells it, and as it stands in a line.
    pub fn name(self) -> &'static str {
        match self {
            Level::Emerg => "emerg",
            Level::Alert => "alert",
            Level::Crit => "crit",
            Level::Error => "error",
            Level::Warn => "warn",
            Level::Notice => "notice",
            Level::Info => "info",
            Level::Debug => "debug",
        }
    }
}

/// A destination of log lines.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LogTarget {
    /// Standard error.
    Stderr,
    /// A file: absolute path.
    File(PathBuf),
    /// `syslog:`.
    Syslog(Arc<Syslog>),
}
