//! Access logs.

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
