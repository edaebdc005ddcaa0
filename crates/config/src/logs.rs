//! `access_log`, `log_format` and `error_log`.

use std::sync::Arc;
use std::time::Duration;

use balanza_balancing::registry::nearest;

use crate::block::Given;
use crate::diagnostics::{MISSING, Severity};
use crate::drafts::Format;
use crate::lexer::Word;
use crate::load::{Builder, Protocol};
use crate::model::{AccessLog, AccessLogTarget, ErrorLog, Level, LogEscape, LogFormat, LogTarget};
use crate::parameter::{Argument, Parameter, Wrong, parameter};
use crate::tree::Statement;
use crate::values;

/// The format that is always there.
const COMBINED: &[u8] = b"$remote_addr - $remote_user [$time_local] \"$request\" $status $body_bytes_sent \
                          \"$http_referer\" \"$http_user_agent\"";

/// The parameters of `access_log`.
const PARAMETERS: &[Parameter<AccessLog>] = &[
    parameter("buffer=", |_, log, a| {
        let size = values::size(a.value, false).filter(|size| *size > 0).and_then(|size| usize::try_from(size).ok());
        log.buffer = size.ok_or_else(|| invalid("buffer size", a))?;
        Ok(())
    }),
    parameter("flush=", |_, log, a| {
        let time = values::milliseconds(a.value).filter(|time| *time > Duration::ZERO);
        log.flush = Some(time.ok_or_else(|| invalid("flush time", a))?);
        Ok(())
    }),
    parameter("if=", |b, log, a| {
        log.condition = Some(b.template_of(a.value, a.word.span, true).ok_or(Wrong::Reported)?);
        Ok(())
    }),
    parameter("gzip", |_, log, _| {
        log.gzip = Some(FASTEST);
        Ok(())
    }),
    parameter("gzip=", |_, log, a| {
        let level = values::number(a.value).and_then(|level| u8::try_from(level).ok());
        log.gzip = Some(level.filter(|level| (1..=9).contains(level)).ok_or_else(|| invalid("compression level", a))?);
        Ok(())
    }),
];

/// The level of `gzip` without a number.
const FASTEST: u8 = 1;
/// The buffer of a compressed log unless it is given.
const GZIP_BUFFER: usize = 64 * 1024;

fn invalid(what: &str, a: &Argument<'_>) -> Wrong {
    Wrong::Message(format!("invalid {what} \"{}\"", String::from_utf8_lossy(a.value)))
}

impl Builder<'_> {
    /// The format `combined`.
    pub fn combined(&mut self) -> Arc<LogFormat> {
        if let Some(known) = self.formats.iter().find(|known| known.format.name == "combined") {
            return known.format.clone();
        }
        let template = self.variables.template(COMBINED, None, false).unwrap_or_default();
        let format = Arc::new(LogFormat { name: "combined".into(), escape: LogEscape::Default, template });
        self.formats.push(Format { format: format.clone(), order: 0 });
        format
    }

    pub fn log_format(&mut self, s: &Statement) {
        let name = s.words[1].text();
        if self.formats.iter().any(|known| known.format.name == name) {
            return self.error(s.words[1].span, format!("duplicate \"log_format\" name \"{name}\""));
        }
        let mut escape = LogEscape::Default;
        let mut pieces = &s.words[2..];
        if let Some(kind) = pieces[0].value.strip_prefix(b"escape=") {
            escape = match kind {
                b"default" => LogEscape::Default,
                b"json" => LogEscape::Json,
                b"none" => LogEscape::None,
                _ => {
                    let kind = String::from_utf8_lossy(kind).into_owned();
                    let message = format!("unknown log format escaping \"{kind}\"");
                    return self.error_hint(pieces[0].span, message, "one of default, json, none");
                }
            };
            pieces = &pieces[1..];
        }
        let mut parts = Vec::new();
        for word in pieces {
            match self.variables.template(&word.value, Some(word.span), false) {
                Ok(template) => parts.extend_from_slice(template.parts()),
                Err(error) if error.hint.is_none() => return self.error(word.span, error.message),
                // NGINX's wording for a "$" without a name differs here.
                Err(_) => return self.invalid_parameter(word, &[]),
            }
        }
        let template = crate::template::Template::new(parts);
        self.formats.push(Format { format: Arc::new(LogFormat { name, escape, template }), order: s.order });
    }

    pub fn access_log(&mut self, given: &Given, logs: &mut Vec<AccessLog>, s: &Statement) {
        let logs = given.list(logs);
        // As in NGINX, `off` goes before all others of its level: an empty list behind the first is that of `off`.
        let after_off = !given.is_first() && logs.is_empty();
        let path = &s.words[1];
        if path.value == b"off" {
            if let Some(word) = s.words.get(2) {
                return self.invalid_parameter(word, &[]);
            }
            return logs.clear();
        }
        let Some(format) = self.format_of(s) else { return };
        let target = match self.access_log_target(path) {
            Some(target) => target,
            None => return,
        };
        let mut log = AccessLog { target, format, buffer: 0, gzip: None, flush: None, condition: None };
        if self.parameters(PARAMETERS, &mut log, s, 3) && self.check_access_log(&mut log, s).is_some() && !after_off {
            logs.push(log);
        }
    }

    fn access_log_target(&mut self, path: &Word) -> Option<AccessLogTarget> {
        if path.value.starts_with(b"syslog:") {
            return self.syslog(path).map(|syslog| AccessLogTarget::Syslog(Arc::new(syslog)));
        }
        let template = self.template(path)?;
        Some(match template.as_literal() {
            Some(text) => {
                let file = self.file_path(text);
                self.access_log_files.insert(file.clone());
                AccessLogTarget::File(file)
            }
            None if path.value.first() == Some(&b'$') => AccessLogTarget::Dynamic(template),
            None => {
                use std::os::unix::ffi::OsStringExt;
                let full = self.path(&path.value).into_os_string().into_vec();
                AccessLogTarget::Dynamic(self.template_of(&full, path.span, true)?)
            }
        })
    }

    fn format_of(&mut self, s: &Statement) -> Option<Arc<LogFormat>> {
        // The second argument is a format unless it is a parameter, which NGINX allows only behind a format.
        let Some(word) = s.words.get(2) else {
            if self.protocol == Protocol::Stream {
                self.error_hint(
                    s.span(),
                    "log format is not specified",
                    "add the name of a \"log_format\" of the stream block",
                );
                return None;
            }
            return Some(self.combined());
        };
        let name = word.text();
        let known = self.formats.iter().find(|known| known.format.name == name);
        if let Some(known) = known
            && (known.order < s.order || name == "combined")
        {
            return Some(known.format.clone());
        }
        let hint = if known.is_some() {
            Some("write the log_format before its use".to_string())
        } else if name.contains('=') {
            Some("write the name of a format before the parameters; the default format is `combined`".to_string())
        } else {
            let names = self.formats.iter().map(|known| known.format.name.as_str());
            nearest(&name, names).map(|near| format!("did you mean `{near}`?"))
        };
        self.report(Severity::Error, word.span, format!("unknown log format \"{name}\"")).hint = hint;
        None
    }

    /// What the parameters say together.
    fn check_access_log(&mut self, log: &mut AccessLog, s: &Statement) -> Option<()> {
        if log.gzip.is_some() && log.buffer == 0 {
            log.buffer = GZIP_BUFFER;
        }
        if log.flush.is_some() && log.buffer == 0 {
            let message = format!("no buffer is defined for access_log \"{}\"", s.words[1].text());
            self.error(s.span(), message);
            return None;
        }
        if log.buffer > 0 && matches!(log.target, AccessLogTarget::Dynamic(_)) {
            self.error(s.words[1].span, "buffered logs cannot have variables in name");
            return None;
        }
        if log.buffer > 0 && matches!(log.target, AccessLogTarget::Syslog(_)) {
            self.error(s.words[1].span, "logs to syslog cannot be buffered");
            return None;
        }
        Some(())
    }

    /// `error_log`.
    pub fn error_log(&mut self, statement: &Statement) -> Option<ErrorLog> {
        let word = &statement.words[1];
        let target = if word.value == b"stderr" {
            LogTarget::Stderr
        } else if word.value.starts_with(b"syslog:") {
            LogTarget::Syslog(Arc::new(self.syslog(word)?))
        } else if word.value.starts_with(b"memory:") {
            let message = format!("\"{}\" of \"error_log\" is a parameter of NGINX {MISSING}", word.text());
            let hint = "NGINX keeps such a log in memory for a debugger; write a file, \"stderr\" or \"syslog:…\"";
            self.error_hint(word.span, message, hint);
            return None;
        } else {
            LogTarget::File(self.file_path(&word.value))
        };
        let mut found = None;
        for word in &statement.words[2..] {
            let text = word.text();
            match level(&word.value) {
                Some(level) if found.is_none() => found = Some(level),
                Some(_) => {
                    self.error(word.span, format!("duplicate log level \"{text}\""));
                    return None;
                }
                // NGINX's masks of what to debug.
                None if text.starts_with("debug_") => {
                    self.unsupported_parameter(statement, word);
                    return None;
                }
                None => {
                    let hint = nearest(&text, Level::ALL.iter().map(|level| level.name()))
                        .map(|near| format!("did you mean `{near}`?"));
                    self.report(Severity::Error, word.span, format!("invalid log level \"{text}\"")).hint = hint;
                    return None;
                }
            }
        }
        let level = found.unwrap_or(Level::Error);
        Some(ErrorLog { target, level })
    }
}

fn level(text: &[u8]) -> Option<Level> {
    Level::ALL.into_iter().find(|level| level.name().as_bytes() == text)
}
