//! The access log: one line for each request or session, buffered if so configured.

use std::cell::RefCell;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use balanza_config::model::{AccessLog, AccessLogTarget, LogEscape};
use balanza_config::template::{Part, Template, Variable};

use super::LogFile;
use crate::connection::Client;
use crate::exchange::Exchange;
use crate::site::Site;
use crate::variables;

/// A worker's buffer in front of one log file.
pub struct AccessWriter {
    file: Arc<LogFile>,
    lines: RefCell<Vec<u8>>,
}

impl AccessWriter {
    /// A writer to this file.
    pub fn new(file: Arc<LogFile>) -> AccessWriter {
        AccessWriter { file, lines: RefCell::default() }
    }

    /// The file's path.
    pub fn path(&self) -> &std::path::Path {
        self.file.path()
    }

    /// Writes what is buffered.
    pub fn flush(&self) {
        let mut lines = self.lines.borrow_mut();
        if !lines.is_empty() {
            self.file.append(&lines);
            lines.clear();
        }
    }

    fn add(self: &Rc<Self>, log: &AccessLog, line: &[u8]) {
        if log.buffer == 0 {
            return self.file.append(line);
        }
        let mut lines = self.lines.borrow_mut();
        if lines.len() + line.len() > log.buffer && !lines.is_empty() {
            self.file.append(&lines);
            lines.clear();
        }
        if lines.is_empty()
            && let Some(flush) = log.flush
        {
            let writer = Rc::clone(self);
            tokio::task::spawn_local(async move {
                tokio::time::sleep(flush).await;
                writer.flush();
            });
        }
        lines.extend_from_slice(line);
    }
}

impl Drop for AccessWriter {
    fn drop(&mut self) {
        self.flush();
    }
}

/// Writes the request to the access logs of its location.
pub fn write(x: &mut Exchange, client: &Client) {
    let location = x.location().clone();
    let mut value = std::mem::take(&mut x.scratch);
    let mut line = std::mem::take(&mut x.line);
    for log in &location.settings.access_logs {
        if compose(log, &mut line, &mut value, |variable, out| variables::value(variable, x, client, out)) {
            deliver(x.site(), log, &line, &value);
        }
    }
    x.scratch = value;
    x.line = line;
}

/// Composes a line, and in `scratch` the path of a log whose path has variables; false when it is not to be written.
/// `value` appends a variable's value, false when it has none.
pub fn compose(
    log: &AccessLog,
    line: &mut Vec<u8>,
    scratch: &mut Vec<u8>,
    mut value: impl FnMut(&Variable, &mut Vec<u8>) -> bool,
) -> bool {
    if let Some(condition) = &log.condition {
        scratch.clear();
        render(condition, scratch, &mut value);
        if scratch.is_empty() || scratch == b"0" {
            return false;
        }
    }
    line.clear();
    for part in log.format.template.parts() {
        match part {
            Part::Literal(bytes) => line.extend_from_slice(bytes),
            Part::Variable(variable) => {
                scratch.clear();
                let found = value(variable, scratch);
                escape(log.format.escape, found.then_some(&*scratch), line);
            }
        }
    }
    line.push(b'\n');
    if let AccessLogTarget::Dynamic(template) = &log.target {
        scratch.clear();
        render(template, scratch, &mut value);
    }
    true
}

fn render(template: &Template, out: &mut Vec<u8>, value: &mut impl FnMut(&Variable, &mut Vec<u8>) -> bool) {
    for part in template.parts() {
        match part {
            Part::Literal(bytes) => out.extend_from_slice(bytes),
            Part::Variable(variable) => {
                value(variable, out);
            }
        }
    }
}

/// Writes a composed line; `path` is that of a log whose path has variables.
pub fn deliver(site: &Site, log: &AccessLog, line: &[u8], path: &[u8]) {
    match &log.target {
        AccessLogTarget::File(file) => {
            if let Some(writer) = site.access_writer(file) {
                writer.add(log, line);
            }
        }
        AccessLogTarget::Dynamic(_) => append_by_path(path, line),
    }
}

/// A path with variables: opened for each line, as NGINX does without `open_log_file_cache`.
fn append_by_path(path: &[u8], line: &[u8]) {
    use std::io::Write;
    use std::os::unix::ffi::OsStringExt;
    let path = PathBuf::from(std::ffi::OsString::from_vec(path.to_vec()));
    match std::fs::OpenOptions::new().append(true).create(true).open(&path) {
        Ok(mut file) => drop(file.write_all(line)),
        Err(error) => eprintln!("balanza: [crit] open() \"{}\" failed: {error}", path.display()),
    }
}

/// Appends a value as the format's `escape=` asks for; a missing one is "-" (JSON and none: nothing).
fn escape(how: LogEscape, value: Option<&Vec<u8>>, line: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    let Some(value) = value else {
        if how == LogEscape::Default {
            line.push(b'-');
        }
        return;
    };
    match how {
        LogEscape::None => line.extend_from_slice(value),
        LogEscape::Default => {
            for &byte in value {
                if byte == b'"' || byte == b'\\' || !(0x20..0x7f).contains(&byte) {
                    line.extend_from_slice(&[b'\\', b'x', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
                } else {
                    line.push(byte);
                }
            }
        }
        LogEscape::Json => {
            for &byte in value {
                match byte {
                    b'"' | b'\\' => line.extend_from_slice(&[b'\\', byte]),
                    b'\n' => line.extend_from_slice(b"\\n"),
                    b'\r' => line.extend_from_slice(b"\\r"),
                    b'\t' => line.extend_from_slice(b"\\t"),
                    0x08 => line.extend_from_slice(b"\\b"),
                    0x0c => line.extend_from_slice(b"\\f"),
                    0..0x20 => {
                        line.extend_from_slice(b"\\u00");
                        line.extend_from_slice(&[HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
                    }
                    _ => line.push(byte),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn escaped(how: LogEscape, value: Option<&str>) -> String {
        let mut line = Vec::new();
        escape(how, value.map(|value| value.as_bytes().to_vec()).as_ref(), &mut line);
        String::from_utf8(line).unwrap()
    }

    #[test]
    fn values_are_escaped_as_the_format_asks() {
        assert_eq!(escaped(LogEscape::Default, Some("a\"b\\c\u{e9}\n")), "a\\x22b\\x5Cc\\xC3\\xA9\\x0A");
        assert_eq!(escaped(LogEscape::Json, Some("a\"b\\c\u{e9}\n\u{1}")), "a\\\"b\\\\c\u{e9}\\n\\u0001");
        assert_eq!(escaped(LogEscape::None, Some("a\"b")), "a\"b");
        assert_eq!(escaped(LogEscape::Default, None), "-");
        assert_eq!(escaped(LogEscape::Json, None), "");
    }
}
