//! The error log, in NGINX's line format, so that tools that read it keep working.

use std::fmt::Arguments;
use std::io::Write;
use std::sync::Arc;

use balanza_config::log_text::OneLine;
use balanza_config::model::{ErrorLog, Level, LogTarget, Syslog};

use super::{LogFile, LogFiles};
use crate::dates;

/// Where a context's errors go.
#[derive(Default, Clone)]
pub struct ErrorWriter {
    sinks: Vec<(Level, Sink)>,
}

#[derive(Clone)]
enum Sink {
    Stderr,
    File(Arc<LogFile>),
    Syslog(Arc<Syslog>),
}

impl ErrorWriter {
    /// The writer for these directives. A file that could not be opened is left out: the supervisor has refused
    /// the configuration then.
    pub fn new(directives: &[ErrorLog], files: &LogFiles) -> ErrorWriter {
        let sinks = directives.iter().filter_map(|directive| {
            let sink = match &directive.target {
                LogTarget::Stderr => Sink::Stderr,
                LogTarget::Syslog(syslog) => Sink::Syslog(Arc::clone(syslog)),
                LogTarget::File(path) => Sink::File(Arc::clone(files.find(path)?)),
            };
            Some((directive.level, sink))
        });
        ErrorWriter { sinks: sinks.collect() }
    }

    /// Whether a log takes messages of this level.
    pub fn wants(&self, level: Level) -> bool {
        self.sinks.iter().any(|(least, _)| level <= *least)
    }

    /// Writes a line: `2026/01/02 03:04:05 [error] 12#13: message`.
    pub fn write(&self, level: Level, message: Arguments<'_>) {
        if !self.wants(level) {
            return;
        }
        let mut line = Vec::with_capacity(256);
        dates::write_error_log_time(&mut line);
        let thread = rustix::thread::gettid().as_raw_nonzero();
        let _ = writeln!(line, " [{}] {}#{thread}: {}", level.name(), std::process::id(), OneLine(&message));
        for (least, sink) in &self.sinks {
            if level <= *least {
                match sink {
                    Sink::Stderr => drop(std::io::stderr().write_all(&line)),
                    Sink::Syslog(syslog) => super::syslog::send_error(syslog, level, &line),
                    Sink::File(file) => file.append(&line),
                }
            }
        }
    }
}
