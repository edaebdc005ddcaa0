//! The balancing method: `balance`, and the directives that NGINX has for some of them.

use std::time::Duration;

use balanza_balancing::registry::{Host, Key, Kind, Method, MethodError, STALE, Spec};

use super::UpstreamBlock;
use crate::diagnostics::{Severity, Span};
use crate::load::{Builder, Protocol};
use crate::model::{Balance, FirstSign};
use crate::template::{Template, Variable};
use crate::tree::Statement;

/// The directives that choose a method.
pub(crate) const METHODS: [&str; 7] =
    ["balance", "two_choices", "least_conn", "ip_hash", "hash", "random", "least_time"];

/// The method of upstreams that name none.
pub(crate) fn default() -> Balance {
    Balance { spec: Spec::default(), key: None, first_sign: FirstSign::default() }
}

/// The same as it would be written.
pub(crate) fn default_method() -> String {
    format!("balance {}", Spec::default().entry().name)
}

/// Directives of Balanza's own that choose a method; the others are NGINX's.
fn is_own(s: &Statement) -> bool {
    matches!(s.words[0].value.as_slice(), b"balance" | b"two_choices")
}

impl Builder<'_> {
    /// A directive that chooses the method.
    pub fn balance_directive<'s>(&mut self, draft: &mut UpstreamBlock<'s>, s: &'s Statement) {
        let first = s.words.get(1).map(|word| word.value.as_slice());
        let second = s.words.get(2).map(|word| word.value.as_slice());
        match s.words[0].value.as_slice() {
            b"balance" => self.algorithm(draft, s, &s.words[1].text(), 2, &[], None),
            b"two_choices" => self.algorithm(draft, s, "two_choices", 1, &[], None),
            b"least_conn" => self.algorithm(draft, s, "least_conn", 1, &[], None),
            b"ip_hash" => self.algorithm(draft, s, "ip_hash", 1, &[], None),
            b"hash" => {
                let known = ["consistent", "balance_factor="];
                for word in &s.words[2..] {
                    let good = word.value == b"consistent" || word.value.starts_with(b"balance_factor=");
                    if !good {
                        return self.invalid_parameter(word, &known);
                    }
                }
                let Some(key) = self.template(&s.words[1]) else { return };
                self.algorithm(draft, s, "hash", 2, &[], Some(key));
            }
            b"random" => match (first, second) {
                (None, _) => self.algorithm(draft, s, "random", 1, &[], None),
                (Some(b"two"), None | Some(b"least_conn")) => {
                    self.algorithm(draft, s, "two_choices", 3, &[("by", "least_conn")], None);
                }
                (Some(b"two"), Some(text)) => {
                    let times = self.times();
                    let by = text.strip_prefix(b"least_time=").and_then(|text| std::str::from_utf8(text).ok());
                    match by.filter(|by| times.contains(by)) {
                        Some(by) => self.algorithm(draft, s, "two_choices", 3, &[("by", by)], None),
                        None => {
                            let least_times: Vec<String> = times.iter().map(|by| format!("least_time={by}")).collect();
                            let known: Vec<&str> = least_times.iter().map(String::as_str).collect();
                            self.invalid_parameter(&s.words[2], &[&["least_conn"], &known[..]].concat());
                        }
                    }
                }
                (Some(_), _) => self.invalid_parameter(&s.words[1], &["two"]),
            },
            b"least_time" => {
                let times: Vec<(&str, &str)> = self.times().iter().map(|by| (*by, *by)).collect();
                let Some(by) = self.choice(s, &times) else { return };
                if second.is_some_and(|word| word != b"inflight") {
                    return self.invalid_parameter(&s.words[2], &["inflight"]);
                }
                self.algorithm(draft, s, "least_time", 2, &[("by", by)], None);
            }
            _ => {}
        }
    }

    /// Chooses an algorithm by its name. Its parameters are `fixed`, and the words of the statement from `skip` on.
    fn algorithm<'s>(
        &mut self,
        draft: &mut UpstreamBlock<'s>,
        s: &'s Statement,
        name: &str,
        skip: usize,
        fixed: &[(&str, &str)],
        key: Option<Template>,
    ) {
        if let Some(balance) = self.read_algorithm(s, name, skip, fixed, key) {
            self.choose(draft, s, balance);
        }
    }

    /// The same for one that is not chosen yet.
    pub(super) fn read_algorithm(
        &mut self,
        s: &Statement,
        name: &str,
        skip: usize,
        fixed: &[(&str, &str)],
        key: Option<Template>,
    ) -> Option<Balance> {
        let errors = self.errors();
        let mut first_sign = FirstSign::default();
        // The words, each with the span that an error in it is shown at.
        let mut words = vec![(name.to_string(), s.words.get(skip - 1).unwrap_or(&s.words[0]))];
        for (name, value) in fixed {
            let value = self.algorithms_time(name, value, &mut first_sign).unwrap_or(value);
            words.push((format!("{name}={value}"), &s.words[0]));
        }
        for word in s.words.iter().skip(skip) {
            if self.check_quotes(word).is_none() {
                continue;
            }
            let text = word.text();
            let (name, value) = text.split_once('=').unwrap_or((&text, ""));
            match self.algorithms_time(name, value, &mut first_sign) {
                Some(same) if same == value => words.push((text.clone(), word)),
                Some(other) => words.push((format!("{name}={other}"), word)),
                None => {
                    let hint = format!("one of {}", self.times().join(", "));
                    self.error_hint(word.span, format!("invalid value \"{value}\" of \"by\""), hint);
                }
            }
        }
        let texts: Vec<&str> = words.iter().map(|(text, _)| text.as_str()).collect();
        let method = match Method::of_words(&texts) {
            Ok(method) => method,
            Err(wrong) => {
                let span = |error: &MethodError| error.word.map_or(s.span(), |word| words[word].1.span);
                wrong.into_iter().for_each(|error| self.method_error(span(&error), error));
                return None;
            }
        };
        let key = match (key, method.key) {
            (Some(key), _) => Some(key),
            (None, Some((word, _))) => {
                let word = words[word].1;
                self.template_of(&word.value["key=".len()..], word.span, true)
            }
            (None, None) => match method.lacks_key() {
                Some(error) => {
                    self.method_error(s.span(), error);
                    return None;
                }
                None if method.spec.entry().key == Key::Any => Some(Template::variable(Variable::RemoteAddr)),
                None => None,
            },
        };
        (self.errors() == errors).then_some(Balance { spec: method.spec, key, first_sign })
    }

    fn method_error(&mut self, span: Span, error: MethodError) {
        self.report(Severity::Error, span, error.message).hint = error.hint;
    }

    /// The times that `least_time` may go by.
    fn times(&self) -> &'static [&'static str] {
        match self.protocol {
            Protocol::Http => &["header", "last_byte"],
            Protocol::Stream => &["connect", "first_byte", "last_byte"],
        }
    }

    /// The value of a parameter `by` as the algorithms know it: what comes first from a server is a response's header to
    /// them, and in a stream there is none. `None` if it means nothing here.
    fn algorithms_time<'v>(&self, name: &str, value: &'v str, first_sign: &mut FirstSign) -> Option<&'v str> {
        match (self.protocol, name, value) {
            (Protocol::Stream, "by", "connect") => *first_sign = FirstSign::Connect,
            (Protocol::Stream, "by", "first_byte") => *first_sign = FirstSign::FirstByte,
            (Protocol::Stream, "by", "header") => return None,
            _ => return Some(value),
        }
        Some("header")
    }

    /// Sets the method.
    fn choose<'s>(&mut self, draft: &mut UpstreamBlock<'s>, s: &'s Statement, balance: Balance) {
        let span = s.words[0].span;
        let message = "load balancing method redefined";
        if draft.sticky.is_some() {
            let hint = "write it before \"sticky\"; in NGINX, \"sticky\" would have no effect otherwise";
            return self.error_hint(span, message, hint);
        }
        match &draft.balance {
            Some((_, before)) if is_own(before) || is_own(s) => {
                return self.error_hint(span, message, "an upstream has one method");
            }
            Some(_) => self.warning(span, message),
            None => {}
        }
        draft.balance = Some((balance, s));
    }

    /// How many errors were found so far.
    fn errors(&self) -> usize {
        self.diagnostics.iter().filter(|diagnostic| diagnostic.severity == Severity::Error).count()
    }
}

impl UpstreamBlock<'_> {
    /// To a method that goes by loads they count for as long as `load_report` says that they hold, unless it has `stale=`
    /// of its own.
    pub fn hold_loads(&mut self) {
        let Some(held) = self.reports.iter().map(|(report, _)| report.max_age()).max() else { return };
        let methods = self.balance.iter_mut().chain(&mut self.shadows);
        methods.for_each(|(balance, s)| hold_loads(&mut balance.spec, s, held));
        self.arms.iter_mut().for_each(|(arm, s)| hold_loads(&mut arm.balance.spec, s, held));
    }
}

fn hold_loads(spec: &mut Spec, s: &Statement, held: Duration) {
    let entry = spec.entry();
    if entry.host != Host::Reports
        || s.words.iter().any(|word| word.value.split(|byte| *byte == b'=').next() == Some(STALE.as_bytes()))
    {
        return;
    }
    let age = |bounds: Kind| match bounds {
        Kind::Time(low, high) => Some((held.as_millis() as u64).clamp(low, high)),
        _ => None,
    };
    let Some(age) = entry.parameters.iter().find(|p| p.name == STALE).and_then(|p| age(p.kind)) else { return };
    let mut parameters: Vec<(&str, String)> = spec.parameters().collect();
    parameters.iter_mut().filter(|(name, _)| *name == STALE).for_each(|(_, value)| *value = format!("{age}ms"));
    let parameters: Vec<(&str, &str)> = parameters.iter().map(|(name, value)| (*name, value.as_str())).collect();
    if let Ok(held) = Spec::new(entry, &parameters) {
        *spec = held;
    }
}
