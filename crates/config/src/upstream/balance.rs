//! The balancing method: `balance`, and the directives that NGINX has for some of them.

use balanza_balancing::registry::{self, Entry, Host, Key, Kind, ParameterError, Spec};

use super::UpstreamBlock;
use crate::diagnostics::Severity;
use crate::directives::nearest;
use crate::lexer::Word;
use crate::load::{Builder, Protocol};
use crate::model::{Balance, FirstSign};
use crate::template::{Template, Variable};
use crate::tree::Statement;

/// The method of upstreams that name none.
pub(super) fn round_robin() -> Option<Balance> {
    let spec = Spec::new(registry::find("round_robin")?, &[]).ok()?;
    Some(Balance { spec, key: None, first_sign: FirstSign::default() })
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
            b"balance" => self.balance(draft, s),
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

    /// `balance NAME [PARAMETER=VALUE …] [key=TEXT]`.
    fn balance<'s>(&mut self, draft: &mut UpstreamBlock<'s>, s: &'s Statement) {
        let name = s.words[1].text();
        if registry::find(&name).is_some() {
            return self.algorithm(draft, s, &name, 2, &[], None);
        }
        let names = || registry::entries().iter().map(|entry| entry.name);
        let aliases = registry::entries().iter().flat_map(|entry| entry.aliases.iter().copied());
        let hint = match nearest(&name, names().chain(aliases)) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("there are: {}", names().collect::<Vec<_>>().join(", ")),
        };
        self.error_hint(s.words[1].span, format!("unknown balancing algorithm \"{name}\""), hint);
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
        let Some(entry) = registry::find(name) else { return };
        let errors = self.errors();
        let mut key = key;
        let mut first_sign = FirstSign::default();
        let mut by = |(name, value)| (name, self.algorithms_time(name, value, &mut first_sign).unwrap_or(value));
        let fixed: Vec<(&str, &str)> = fixed.iter().copied().map(&mut by).collect();
        let mut words = Vec::new();
        for word in s.words.iter().skip(skip) {
            let (name, value) =
                word.value.split_at(word.value.iter().position(|b| *b == b'=').unwrap_or(word.value.len()));
            if self.check_quotes(word).is_none() {
            } else if name != b"key" {
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                let (name, value) = (text(name), text(value.strip_prefix(b"=").unwrap_or_default()));
                match self.algorithms_time(&name, &value, &mut first_sign) {
                    Some(value) => words.push((word, name, value.to_string())),
                    None => {
                        let hint = format!("one of {}", self.times().join(", "));
                        self.error_hint(word.span, format!("invalid value \"{value}\" of \"by\""), hint);
                    }
                }
            } else if key.is_some() {
                self.error(word.span, "duplicate parameter \"key\"");
            } else {
                key = self.key(entry, word);
            }
        }
        let spec = loop {
            let given = words.iter().map(|(_, name, value)| (name.as_str(), value.as_str()));
            let given: Vec<(&str, &str)> = fixed.iter().copied().chain(given).collect();
            let error = match Spec::new(entry, &given) {
                Ok(spec) => break spec,
                Err(error) => error,
            };
            // What is wrong is told and left out, until the rest is right.
            let at = match &error {
                ParameterError::Unknown { name, .. } => words.iter().position(|(_, known, _)| **known == **name),
                ParameterError::Invalid { name, .. } => words.iter().position(|(_, known, _)| known == name),
                ParameterError::Duplicate(name) => words.iter().rposition(|(_, known, _)| known == name),
            };
            let Some(at) = at else { return self.error(s.span(), error.to_string()) };
            let (word, ..) = words.remove(at);
            self.parameter_error(entry, word, &error);
        };
        if entry.key == Key::Any && key.is_none() && self.errors() == errors {
            if entry.name == "hash" {
                let hint = "add what is hashed: key=$request_uri, key=$cookie_session, …";
                self.error_hint(s.span(), "\"hash\" needs a \"key\"", hint);
            } else {
                key = Some(Template::variable(Variable::RemoteAddr));
            }
        }
        if self.errors() == errors {
            self.choose(draft, s, Balance { spec, key, first_sign });
        }
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

    /// `key=TEXT`; without an error only if there is one.
    fn key(&mut self, entry: &Entry, word: &Word) -> Option<Template> {
        let hint = match entry.key {
            Key::Any => {
                let text = &word.value["key=".len().min(word.value.len())..];
                if text.is_empty() {
                    self.error(word.span, "the key is empty");
                    return None;
                }
                return self.template_of(text, word.span, true);
            }
            Key::ClientAddress => "its key is always the client's address",
            Key::None => "it does not use a key",
        };
        self.error_hint(word.span, format!("{} takes no key", entry.name), hint);
        None
    }

    /// A parameter that an algorithm does not take.
    fn parameter_error(&mut self, entry: &Entry, word: &Word, error: &ParameterError) {
        let hint = match error {
            ParameterError::Unknown { name, .. } => Some(known_parameters(entry, name)),
            _ => None,
        };
        self.report(Severity::Error, word.span, error.to_string()).hint = hint;
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
    pub(super) fn hold_loads(&mut self) {
        let held = self.reports.iter().map(|(report, _)| report.max_age()).max();
        let (Some(held), Some((balance, s))) = (held, &mut self.balance) else { return };
        let entry = balance.spec.entry();
        if entry.host != Host::Reports || s.words.iter().any(|word| word.value.starts_with(b"stale=")) {
            return;
        }
        let age = |bounds: Kind| match bounds {
            Kind::Time(low, high) => Some((held.as_millis() as u64).clamp(low, high)),
            _ => None,
        };
        let Some(age) = entry.parameters.iter().find(|p| p.name == "stale").and_then(|p| age(p.kind)) else { return };
        let mut parameters: Vec<(&str, String)> = balance.spec.parameters().collect();
        parameters.iter_mut().filter(|(name, _)| *name == "stale").for_each(|(_, value)| *value = format!("{age}ms"));
        let parameters: Vec<(&str, &str)> = parameters.iter().map(|(name, value)| (*name, value.as_str())).collect();
        if let Ok(spec) = Spec::new(entry, &parameters) {
            balance.spec = spec;
        }
    }
}

/// What may be meant by an unknown parameter.
fn known_parameters(entry: &Entry, name: &str) -> String {
    let of_choice = entry.parameters.iter().find(|p| matches!(p.kind, Kind::Choice(words) if words.contains(&name)));
    if let Some(parameter) = of_choice {
        return format!("did you mean `{}={name}`?", parameter.name);
    }
    let key = (entry.key == Key::Any).then_some("key");
    if let Some(near) = nearest(name, entry.parameters.iter().map(|parameter| parameter.name).chain(key)) {
        return format!("did you mean `{near}`?");
    }
    let parameters = entry.parameters.iter().map(|parameter| match parameter.kind {
        Kind::Switch => parameter.name.to_string(),
        _ => format!("{}={}", parameter.name, parameter.default),
    });
    let list: Vec<String> = parameters.chain(key.map(|_| "key=$remote_addr".to_string())).collect();
    match list.as_slice() {
        [] => "it has no parameters".to_string(),
        _ => format!("it has {}", list.join(", ")),
    }
}
