//! Regular expressions: PCRE2, NGINX's engine, compiled just in time.

use std::fmt;
use std::sync::Mutex;

use pcre2::bytes::{CaptureLocations, RegexBuilder};

use crate::log_text::Escaped;
use crate::template::UserSlot;

/// A compiled expression.
pub struct Regex {
    code: pcre2::bytes::Regex,
    pattern: String,
    named: Vec<(usize, UserSlot)>,
    /// Idle scratch memory of matches: a match takes one and puts it back, so none is allocated once warm.
    scratch: Mutex<Vec<CaptureLocations>>,
}

impl Regex {
    /// Compiles a pattern; the error is PCRE2's message and the byte offset it is about.
    pub fn new(pattern: &str, caseless: bool) -> Result<Regex, (String, usize)> {
        let code = RegexBuilder::new().caseless(caseless).jit_if_available(true).build(pattern).map_err(|error| {
            let text = error.to_string();
            let message = text.rsplit_once(": ").map_or(text.as_str(), |(_, message)| message).to_string();
            (message, error.offset().unwrap_or(pattern.len()))
        })?;
        Ok(Regex { code, pattern: pattern.to_string(), named: Vec::new(), scratch: Mutex::new(Vec::new()) })
    }

    /// The pattern as written.
    pub fn pattern(&self) -> &str {
    /// The ways for matches that the usual stack is too small for, in the order in which they are tried. Few expressions
    /// need them, so that they are compiled by the first such match.
    fallbacks: OnceLock<Vec<pcre2::bytes::Regex>>,
}

/// PCRE2 gave up: whether the subject matches is not known. It must not count as "no".
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MatchError {
    code: i32,
    reason: String,
    subject: Box<[u8]>,
    pattern: String,
}

impl MatchError {
    fn new(error: &pcre2::Error, subject: &[u8], pattern: &str) -> Box<MatchError> {
        let shown = subject.get(..SHOWN).unwrap_or(subject);
        Box::new(MatchError {
            code: error.code(),
            reason: reason(error),
            subject: shown.into(),
            pattern: pattern.into(),
        })
    }
}

impl fmt::Display for MatchError {
    /// NGINX's words, with PCRE2's beside the number.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let more = if self.subject.len() == SHOWN { "..." } else { "" };
        let (subject, pattern) = (Escaped(&self.subject), Escaped(self.pattern.as_bytes()));
        write!(f, "pcre2_match() failed: {} ({}) on \"{subject}{more}\" using \"{pattern}\"", self.code, self.reason)
    }
}

impl std::error::Error for MatchError {}

/// PCRE2's message without the crate's introduction.
fn reason(error: &pcre2::Error) -> String {
    let text = error.to_string();
    text.rsplit_once(": ").map_or(text.as_str(), |(_, reason)| reason).to_string()
        &self.pattern
    }

    /// Groups `(?<name>…)`: index of the group and its name.
    pub fn group_names(&self) -> impl Iterator<Item = (usize, &str)> {
        self.code.capture_names().iter().enumerate().filter_map(|(i, name)| name.as_deref().map(|name| (i, name)))
    }

    /// Named groups: index of the group and the variable that takes its text.
    pub fn named(&self) -> &[(usize, UserSlot)] {
        &self.named
    }

    pub(crate) fn set_named(&mut self, named: Vec<(usize, UserSlot)>) {
        self.named = named;
    }

    /// Whether it matches, without captures.
    pub fn is_match(&self, subject: &[u8]) -> bool {
        self.code.is_match(subject).unwrap_or(false)
    }

    /// Whether it matches; if so, `captures` holds the groups. A match that PCRE2 gives up (its limits on work) is no
    /// match, as in NGINX.
    pub fn find(&self, subject: &[u8], captures: &mut Captures) -> bool {
        let idle = self.lock().pop();
        let mut locations = idle.unwrap_or_else(|| self.code.capture_locations());
        let matched = matches!(self.code.captures_read(&mut locations, subject), Ok(Some(_)));
        if matched {
            captures.subject.clear();
            captures.subject.extend_from_slice(subject);
            captures.spans.clear();
            captures.spans.extend((0..locations.len()).map(|i| locations.get(i)));
        }
        self.lock().push(locations);
        matched
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<CaptureLocations>> {
        self.scratch.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Clone for Regex {
    fn clone(&self) -> Regex {
        Regex {
            code: self.code.clone(),
            pattern: self.pattern.clone(),
            named: self.named.clone(),
            scratch: Mutex::new(Vec::new()),
        }
    }
}

impl fmt::Debug for Regex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Regex").field(&self.pattern).finish()
    }
}

/// The groups of the last match: `$0` is the whole match, `$1` … the groups. Reuse one to save allocations.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Captures {
    subject: Vec<u8>,
    spans: Vec<Option<(usize, usize)>>,
}

impl Captures {
    /// No match yet.
    pub fn new() -> Captures {
        Captures::default()
    }

    /// A group's text; `None` when the group does not exist or took no part in the match.
    pub fn group(&self, index: usize) -> Option<&[u8]> {
        let (start, end) = self.spans.get(index).copied().flatten()?;
        self.subject.get(start..end)
    }

    /// How many groups there are, the whole match among them; 0 before a match.
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Whether nothing has matched.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Forgets the match and keeps the memory.
    pub fn clear(&mut self) {
        self.subject.clear();
        self.spans.clear();
    }
}
