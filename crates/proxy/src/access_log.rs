//! The access log: one line for each request or session, buffered if so configured.
//!
//! Without a buffer the lines of one event-loop iteration are written together, at most some milliseconds later than
//! with a system call for each line.

use std::cell::{Cell, RefCell};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use balanza_config::log_text::Escaped;
use balanza_config::model::{AccessLog, AccessLogTarget, Level, LogEscape};
use balanza_config::template::{Part, Template, Variable};
use balanza_net::event_loop::{self, Deferred};
use balanza_net::shortage::describe;
use flate2::Compression;
use flate2::write::GzEncoder;

use crate::essential;
use crate::fault;
use crate::log::error::ErrorWriter;
use crate::log::{LogFile, LogFiles, syslog};
use crate::undecided::Undecided;
use crate::values::is_true;

/// Bytes of lines that a turn of the event loop collects for a log without a buffer.
const TURN_BYTES: usize = 64 * 1024;

/// A worker's buffer in front of one log file.
struct AccessWriter {
    file: Arc<LogFile>,
    lines: RefCell<Vec<u8>>,
    /// `gzip=`: the level at which what is written is compressed.
    gzip: Cell<Option<u8>>,
    /// Whether the lines are written when this turn of the event loop ends.
    is_due: Cell<bool>,
}

impl AccessWriter {
    fn new(file: Arc<LogFile>) -> AccessWriter {
        AccessWriter { file, lines: RefCell::default(), gzip: Cell::default(), is_due: Cell::default() }
    }

    fn path(&self) -> &std::path::Path {
        self.file.path()
    }

    fn flush(&self) {
        let mut lines = self.lines.borrow_mut();
        self.write(&mut lines);
    }

    /// Writes the lines, compressed as a member of a gzip file if so configured: the members together are one file.
    fn write(&self, lines: &mut Vec<u8>) {
        if lines.is_empty() {
            return;
        }
        match self.gzip.get() {
            None => self.file.append(lines),
            Some(level) => {
                let packed = Vec::with_capacity(lines.len() / 4);
                let mut encoder = GzEncoder::new(packed, Compression::new(level.into()));
                // Nothing fails that writes to a vector.
                if let Ok(packed) = encoder.write_all(lines).and_then(|()| encoder.finish()) {
                    self.file.append(&packed);
                }
            }
        }
        lines.clear();
    }

    fn add(self: &Rc<Self>, log: &AccessLog, line: &[u8]) {
        let mut lines = self.lines.borrow_mut();
        let room = if log.buffer == 0 { TURN_BYTES } else { log.buffer };
        if lines.len() + line.len() > room {
            self.write(&mut lines);
        }
        self.gzip.set(log.gzip);
        if log.buffer == 0 {
            if !self.is_due.replace(true) {
                event_loop::defer(Rc::clone(self) as _);
            }
        } else if lines.is_empty()
            && let Some(flush) = log.flush
        {
            let writer = Rc::clone(self);
            tokio::task::spawn_local(essential::task("the writer of an access log", async move {
                tokio::time::sleep(flush).await;
                fault::point("timer");
                writer.flush();
            }));
        }
        lines.extend_from_slice(line);
    }
}

impl Deferred for AccessWriter {
    fn run(&self) {
        fault::point("deferred");
        self.is_due.set(false);
        self.flush();
    }
}

impl Drop for AccessWriter {
    fn drop(&mut self) {
        self.flush();
    }
}

/// The access logs of a worker.
pub struct AccessLogs {
    writers: Vec<Rc<AccessWriter>>,
}

impl AccessLogs {
    /// Those with these paths, with what `previous` has of them.
    pub fn new<'a>(
        paths: impl Iterator<Item = &'a PathBuf>,
        files: &LogFiles,
        previous: Option<&AccessLogs>,
    ) -> AccessLogs {
        let open = |path: &PathBuf| {
            let kept = previous.and_then(|previous| previous.writer(path));
            kept.cloned().or_else(|| Some(Rc::new(AccessWriter::new(Arc::clone(files.find(path)?)))))
        };
        AccessLogs { writers: paths.filter_map(open).collect() }
    }

    fn writer(&self, path: &Path) -> Option<&Rc<AccessWriter>> {
        // As bytes: comparing paths takes them apart.
        self.writers.iter().find(|writer| writer.path().as_os_str() == path.as_os_str())
    }

    /// Writes a composed line; `path` is that of a log whose path has variables.
    pub fn write(&self, log: &AccessLog, line: &[u8], path: &[u8], errors: &ErrorWriter) {
        match &log.target {
            AccessLogTarget::File(file) => {
                if let Some(writer) = self.writer(file) {
                    writer.add(log, line);
                }
            }
            AccessLogTarget::Syslog(syslog) => syslog::send(syslog, line),
            AccessLogTarget::Dynamic(_) => {
                if let Err((path, error)) = append_by_path(path, line) {
                    let (path, error) = (Escaped(path.as_os_str().as_encoded_bytes()), describe(&error));
                    errors.write(Level::Crit, format_args!("open() \"{path}\" failed {error}"));
                }
            }
        }
    }

    /// Writes what is buffered.
    pub fn flush(&self) {
        for writer in &self.writers {
            writer.flush();
        }
    }
}

/// Composes a line, and in `scratch` the path of a log whose path has variables; false when it is not to be written.
/// `value` appends a variable's value, false when it has none. An undecided condition does not keep a line out of the log.
pub fn compose(
    log: &AccessLog,
    line: &mut Vec<u8>,
    scratch: &mut Vec<u8>,
    mut value: impl FnMut(&Variable, &mut Vec<u8>) -> Result<bool, Undecided>,
) -> bool {
    if let Some(condition) = &log.condition {
        scratch.clear();
        let decided = render(condition, scratch, &mut value).is_ok();
        if decided && !is_true(scratch) {
            return false;
        }
    }
    line.clear();
    for part in log.format.template.parts() {
        match part {
            Part::Literal(bytes) => line.extend_from_slice(bytes),
            Part::Variable(variable) => {
                let begin = line.len();
                let found = value(variable, line).unwrap_or(false);
                escape(log.format.escape, found, line, begin, scratch);
            }
        }
    }
    line.push(b'\n');
    if let AccessLogTarget::Dynamic(template) = &log.target {
        scratch.clear();
        return render(template, scratch, &mut value).is_ok();
    }
    true
}

fn render(
    template: &Template,
    out: &mut Vec<u8>,
    value: &mut impl FnMut(&Variable, &mut Vec<u8>) -> Result<bool, Undecided>,
) -> Result<(), Undecided> {
    for part in template.parts() {
        match part {
            Part::Literal(bytes) => out.extend_from_slice(bytes),
            Part::Variable(variable) => {
                value(variable, out)?;
            }
        }
    }
    Ok(())
}

/// A path with variables: opened for each line, as NGINX does without `open_log_file_cache`.
fn append_by_path(path: &[u8], line: &[u8]) -> Result<(), (PathBuf, std::io::Error)> {
    use std::os::unix::ffi::OsStringExt;
    let path = PathBuf::from(std::ffi::OsString::from_vec(path.to_vec()));
    let file = std::fs::OpenOptions::new().append(true).create(true).open(&path);
    // A full disk loses lines, as with logs of a fixed path.
    file.map(|mut file| drop(file.write_all(line))).map_err(|error| (path, error))
}

/// Escapes the value at the line's end, from `begin` on, as the format's `escape=` asks for; one that was not found is "-"
/// (JSON and none: nothing).
fn escape(how: LogEscape, found: bool, line: &mut Vec<u8>, begin: usize, scratch: &mut Vec<u8>) {
    if !found {
        line.truncate(begin);
        if how == LogEscape::Default {
            line.push(b'-');
        }
        return;
    }
    let most = match how {
        LogEscape::None => return,
        LogEscape::Default => 0x7e,
        LogEscape::Json => 0xff,
    };
    let needs_it = |byte: u8| byte < 0x20 || byte == b'"' || byte == b'\\' || byte > most;
    // Few values do: all bytes are looked at, since that is done many at a time.
    if !line[begin..].iter().fold(false, |some, &byte| some | needs_it(byte)) {
        return;
    }
    scratch.clear();
    scratch.extend_from_slice(&line[begin..]);
    line.truncate(begin);
    for &byte in &*scratch {
        match (how, byte) {
            _ if !needs_it(byte) => line.push(byte),
            (LogEscape::Json, b'"' | b'\\') => line.extend_from_slice(&[b'\\', byte]),
            (LogEscape::Json, b'\n') => line.extend_from_slice(b"\\n"),
            (LogEscape::Json, b'\r') => line.extend_from_slice(b"\\r"),
            (LogEscape::Json, b'\t') => line.extend_from_slice(b"\\t"),
            (LogEscape::Json, 0x08) => line.extend_from_slice(b"\\b"),
            (LogEscape::Json, 0x0c) => line.extend_from_slice(b"\\f"),
            (LogEscape::Json, _) => {
                line.extend_from_slice(b"\\u00");
                push_hex(line, byte);
            }
            _ => {
                line.extend_from_slice(b"\\x");
                push_hex(line, byte);
            }
        }
    }
}

/// Appends two hexadecimal digits.
fn push_hex(line: &mut Vec<u8>, byte: u8) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    line.extend_from_slice(&[DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn escaped(how: LogEscape, value: Option<&str>) -> String {
        let mut line = format!("\"{}", value.unwrap_or_default()).into_bytes();
        escape(how, value.is_some(), &mut line, 1, &mut Vec::new());
        String::from_utf8(line).unwrap()[1..].to_owned()
    }

    #[test]
    fn values_are_escaped_as_the_format_asks() {
        assert_eq!(escaped(LogEscape::Default, Some("a\"b\\c\u{e9}\n")), "a\\x22b\\x5Cc\\xC3\\xA9\\x0A");
        assert_eq!(escaped(LogEscape::Json, Some("a\"b\\c\u{e9}\n\u{1}")), "a\\\"b\\\\c\u{e9}\\n\\u0001");
        assert_eq!(escaped(LogEscape::None, Some("a\"b")), "a\"b");
        assert_eq!(escaped(LogEscape::Json, Some("plain")), "plain");
        assert_eq!(escaped(LogEscape::Default, Some("")), "");
        assert_eq!(escaped(LogEscape::Default, None), "-");
        assert_eq!(escaped(LogEscape::Json, None), "");
    }
}
