//! `load_report`: where the servers' load becomes known from.

use std::time::Duration;

use super::UpstreamBlock;
use crate::lexer::Word;
use crate::load::{Builder, Protocol};
use crate::model::{LoadReport, LoadSource};
use crate::tree::Statement;
use crate::values;

/// The load average of the last minute in UCD-SNMP-MIB: laLoad.1.
const LOAD_OID: [u32; 11] = [1, 3, 6, 1, 4, 1, 2021, 10, 1, 3, 1];
/// What a field's number means unless `full=` says something else.
const PERCENT: f64 = 100.0;

const COMMON: [&str; 3] = ["interval=", "timeout=", "stale="];

/// The parameters, as far as they are given.
#[derive(Default)]
struct Given {
    port: Option<u16>,
    send: Option<Vec<u8>>,
    community: Option<String>,
    oid: Option<Vec<u32>>,
    full: Option<f64>,
    interval: Option<Duration>,
    timeout: Option<Duration>,
    stale: Option<u32>,
    stale_after: Option<Duration>,
}

/// The argument that comes before the parameters.
#[derive(Clone, Copy)]
struct Subject {
    what: &'static str,
    example: &'static str,
}

const FIELD: Subject = Subject { what: "the name of a response's field", example: "load_report header X-Load" };
const PROGRAM: Subject =
    Subject { what: "a program and its arguments", example: "load_report program \"/usr/local/bin/load --all\"" };

/// The kinds: name, parameters, and the argument before them.
const KINDS: [(&str, &[&str], Option<Subject>); 4] = [
    ("agent", &["port=", "send="], None),
    ("snmp", &["port=", "community=", "oid=", "full="], None),
    ("header", &["full=", "stale_after="], Some(FIELD)),
    ("program", &[], Some(PROGRAM)),
];

impl Builder<'_> {
    /// `load_report agent|snmp|header NAME|program COMMAND …`.
    pub fn load_report<'s>(&mut self, draft: &mut UpstreamBlock<'s>, s: &'s Statement) {
        let kinds = KINDS.map(|(name, _, _)| (name, name));
        let Some(kind) = self.choice(s, &kinds) else { return };
        if kind == "header" && self.protocol == Protocol::Stream {
            let hint = "a stream has no header fields: use agent, snmp or program";
            return self.error_hint(s.words[1].span, "\"load_report header\" is for HTTP", hint);
        }
        let Some(&(_, own, subject)) = KINDS.iter().find(|(name, _, _)| *name == kind) else { return };
        let subject_word = subject.and(s.words.get(2));
        if let (Some(subject), None) = (subject, subject_word) {
            let message = format!("\"load_report {kind}\" needs {}", subject.what);
            return self.error_hint(s.span(), message, format!("for example `{}`", subject.example));
        }
        let first = if subject.is_some() { 3 } else { 2 };
        let mut given = Given::default();
        let mut good = true;
        for word in s.words.iter().skip(first) {
            good &= self.report_parameter(&mut given, kind, own, word).is_some();
        }
        let Some(source) = self.load_source(kind, s, subject_word, &mut given).filter(|_| good) else { return };
        let interval = given.interval.unwrap_or(Duration::from_secs(5));
        if given.timeout.is_some_and(|timeout| timeout > interval) {
            let hint = "the next question must not be sent before the timeout of the one before";
            return self.error_hint(super::place(s, "timeout="), "\"timeout\" is above \"interval\"", hint);
        }
        let (interval, stale) = match given.stale_after {
            Some(time) => (time, 1),
            None => (interval, given.stale.unwrap_or(3)),
        };
        let timeout = given.timeout.unwrap_or(Duration::from_secs(1)).min(interval);
        let report = LoadReport { source, interval, timeout, stale };
        let same = |known: &LoadReport| std::mem::discriminant(&known.source) == std::mem::discriminant(&report.source);
        if draft.reports.iter().any(|(known, _)| same(known)) {
            let hint = "each kind of report may be used once";
            return self.error_hint(s.words[1].span, format!("duplicate \"load_report {kind}\""), hint);
        }
        draft.reports.push((report, s));
    }

    fn report_parameter(&mut self, given: &mut Given, kind: &str, own: &[&str], word: &Word) -> Option<()> {
        let (name, value) = word.parameter();
        let text = std::str::from_utf8(value).ok();
        let common: &[&str] = if kind == "header" { &[] } else { &COMMON };
        let known = || own.iter().chain(common).copied();
        if !known().any(|known| known.as_bytes() == name) {
            let list: Vec<&str> = known().map(|name| name.trim_end_matches('=')).collect();
            let hint = match list.as_slice() {
                [] => "it has no parameters".to_string(),
                _ => format!("it has {}", list.join(", ")),
            };
            self.error_hint(word.span, format!("invalid parameter \"{}\"", word.text()), hint);
            return None;
        }
        self.check_quotes(word)?;
        let time = || values::milliseconds(value).filter(|time| !time.is_zero());
        let number = || values::number(value).filter(|number| *number > 0);
        let fresh = match name {
            b"port=" => set(&mut given.port, number().and_then(|port| u16::try_from(port).ok())),
            b"send=" => set(&mut given.send, Some(value.to_vec())),
            b"community=" => set(&mut given.community, text.filter(|text| !text.is_empty()).map(str::to_string)),
            b"oid=" => set(&mut given.oid, text.and_then(object_identifier)),
            b"full=" => set(&mut given.full, text.and_then(positive)),
            b"interval=" => set(&mut given.interval, time()),
            b"timeout=" => set(&mut given.timeout, time()),
            b"stale=" => set(&mut given.stale, number().and_then(|count| u32::try_from(count).ok())),
            _ => set(&mut given.stale_after, time()),
        };
        match fresh {
            Ok(()) => Some(()),
            Err(Wrong::Twice) => {
                let name = String::from_utf8_lossy(name).into_owned();
                let message = format!("duplicate parameter \"{}\"", name.trim_end_matches('='));
                self.error_hint(word.span, message, "write it once");
                None
            }
            Err(Wrong::Value) => {
                let expected = match name {
                    b"port=" => "a port from 1 to 65535",
                    b"oid=" => "numbers separated by dots, at least two",
                    b"full=" => "a number above 0",
                    b"stale=" => "the number of intervals for which a report is valid, at least 1",
                    b"community=" => "a text",
                    _ => "a time above 0, for example 5s or 500ms",
                };
                self.error_hint(word.span, format!("invalid value in \"{}\"", word.text()), expected);
                None
            }
        }
    }

    fn load_source(
        &mut self,
        kind: &str,
        s: &Statement,
        subject: Option<&Word>,
        given: &mut Given,
    ) -> Option<LoadSource> {
        match (kind, subject) {
            ("agent", _) => {
                let Some(port) = given.port else {
                    if s.args().iter().all(|word| !word.value.starts_with(b"port=")) {
                        let hint = "the port of the agent on each server, for example `load_report agent port=8081`";
                        self.error_hint(s.span(), "\"load_report agent\" needs \"port=\"", hint);
                    }
                    return None;
                };
                Some(LoadSource::Agent { port, send: given.send.take().unwrap_or_default() })
            }
            ("snmp", _) => Some(LoadSource::Snmp {
                port: given.port.unwrap_or(161),
                community: given.community.take().unwrap_or_else(|| "public".into()),
                oid: given.oid.take().unwrap_or_else(|| LOAD_OID.to_vec()),
                full: given.full.unwrap_or(1.0),
            }),
            ("header", Some(name)) => {
                let token = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
                if name.value.is_empty() || !name.value.iter().all(token) {
                    let hint = "letters, digits and \"-\", for example X-Load";
                    self.error_hint(name.span, format!("invalid field name \"{}\"", name.text()), hint);
                    return None;
                }
                let full = given.full.unwrap_or(PERCENT);
                Some(LoadSource::Header { name: name.value.clone().into(), full })
            }
            (_, Some(command)) => {
                let argv: Vec<String> = command.text().split_ascii_whitespace().map(str::to_string).collect();
                if argv.is_empty() {
                    self.error_hint(
                        command.span,
                        "the program is missing",
                        format!("for example `{}`", PROGRAM.example),
                    );
                    return None;
                }
                Some(LoadSource::Program { argv })
            }
            _ => None,
        }
    }
}

/// Why a parameter cannot be used.
enum Wrong {
    Twice,
    Value,
}

fn set<T>(slot: &mut Option<T>, value: Option<T>) -> Result<(), Wrong> {
    match (slot.is_some(), value) {
        (true, _) => Err(Wrong::Twice),
        (_, None) => Err(Wrong::Value),
        (_, value) => {
            *slot = value;
            Ok(())
        }
    }
}

/// "1.3.6.1", or with a dot before it.
fn object_identifier(text: &str) -> Option<Vec<u32>> {
    let numbers = text.strip_prefix('.').unwrap_or(text).split('.');
    let oid: Option<Vec<u32>> = numbers
        .map(|number| number.bytes().all(|byte| byte.is_ascii_digit()).then(|| number.parse().ok()).flatten())
        .collect();
    // What the first two numbers may be follows from how they are written in one byte.
    oid.filter(|oid| oid.len() >= 2 && oid[0] <= 2 && (oid[1] < 40 || oid[0] == 2))
}

fn positive(text: &str) -> Option<f64> {
    text.parse().ok().filter(|number: &f64| number.is_finite() && *number > 0.0)
}
