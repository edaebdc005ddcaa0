//! Regular expressions: PCRE2, NGINX's engine, compiled just in time.

use std::fmt;
use std::sync::{Arc, Mutex, OnceLock};

use pcre2::bytes::{CaptureLocations, RegexBuilder};

use crate::log_text::Escaped;
use crate::template::UserSlot;

pub(crate) mod repeats;

/// Verbs in front of every pattern: what a match may use without the just-in-time compiler. PCRE2's own limit is 20 GB.
const LIMITS: &str = "(*LIMIT_HEAP=32768)";

/// A match that needs more than the 32 KiB of PCRE2's usual stack gets one of this size.
const DEEP_STACK: usize = 1 << 20;

/// PCRE2's number for a stack that was too small.
const JIT_STACK_LIMIT: i32 = -46;

/// How much of a subject an error shows.
const SHOWN: usize = 256;

/// A compiled expression.
pub struct Regex {
    code: pcre2::bytes::Regex,
    pattern: String,
    caseless: bool,
    named: Vec<(usize, UserSlot)>,
    /// Idle scratch memory of matches: a match takes one and puts it back, so none is allocated once warm.
    scratch: Mutex<Vec<CaptureLocations>>,
    /// What is tried in this order if the usual stack is too small, compiled by the first match that needs it.
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

/// What a search with expressions finds, and the expression that found it, whose named groups set variables.
pub type Found<'a, T> = Result<Option<(&'a Arc<T>, Option<&'a Regex>)>, Box<MatchError>>;

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
}

impl Regex {
    /// Compiles a pattern; the error is PCRE2's message and the byte offset it is about.
    pub fn new(pattern: &str, caseless: bool) -> Result<Regex, (String, usize)> {
        let code = usual(caseless).build(&limited(pattern)).map_err(|error| {
            let offset = error.offset().map_or(pattern.len(), |offset| offset.saturating_sub(LIMITS.len()));
            (reason(&error), offset)
        })?;
        Ok(Regex {
            code,
            pattern: pattern.to_string(),
            caseless,
            named: Vec::new(),
            scratch: Mutex::new(Vec::new()),
            fallbacks: OnceLock::new(),
        })
    }

    /// The pattern as written.
    pub fn pattern(&self) -> &str {
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

    /// Whether it matches; if so, `captures` holds the groups.
    ///
    /// # Errors
    /// PCRE2 gave up: a limit on its work or memory was reached, or the subject is not the UTF-8 that the pattern asks
    /// for.
    pub fn find(&self, subject: &[u8], captures: &mut Captures) -> Result<bool, Box<MatchError>> {
        let idle = self.lock().pop();
        let mut locations = idle.unwrap_or_else(|| self.code.capture_locations());
        let found = self.code.captures_read(&mut locations, subject).map(|found| found.is_some());
        if matches!(found, Ok(true)) {
            captures.keep(subject, &locations);
        }
        self.lock().push(locations);
        match found {
            Err(error) if error.code() == JIT_STACK_LIMIT => self.find_deep(subject, captures, error),
            found => found.map_err(|error| MatchError::new(&error, subject, &self.pattern)),
        }
    }

    /// The same with a larger stack, then without the just-in-time compiler; their memory is given back at once.
    #[cold]
    fn find_deep(
        &self,
        subject: &[u8],
        captures: &mut Captures,
        mut failed: pcre2::Error,
    ) -> Result<bool, Box<MatchError>> {
        for code in self.fallbacks.get_or_init(|| self.compile_fallbacks()) {
            let mut locations = code.capture_locations();
            match code.captures_read(&mut locations, subject) {
                Ok(found) => {
                    if found.is_some() {
                        captures.keep(subject, &locations);
                    }
                    return Ok(found.is_some());
                }
                Err(error) if error.code() == JIT_STACK_LIMIT => failed = error,
                Err(error) => return Err(MatchError::new(&error, subject, &self.pattern)),
            }
        }
        Err(MatchError::new(&failed, subject, &self.pattern))
    }

    fn compile_fallbacks(&self) -> Vec<pcre2::bytes::Regex> {
        let pattern = limited(&self.pattern);
        let deep = usual(self.caseless).max_jit_stack_size(Some(DEEP_STACK)).build(&pattern);
        let interpreted = RegexBuilder::new().caseless(self.caseless).build(&pattern);
        deep.into_iter().chain(interpreted).collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<CaptureLocations>> {
        self.scratch.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

fn limited(pattern: &str) -> String {
    format!("{LIMITS}{pattern}")
}

fn usual(caseless: bool) -> RegexBuilder {
    let mut builder = RegexBuilder::new();
    builder.caseless(caseless).jit_if_available(true);
    builder
}

impl Clone for Regex {
    fn clone(&self) -> Regex {
        Regex {
            code: self.code.clone(),
            pattern: self.pattern.clone(),
            caseless: self.caseless,
            named: self.named.clone(),
            scratch: Mutex::new(Vec::new()),
            fallbacks: OnceLock::new(),
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

    fn keep(&mut self, subject: &[u8], locations: &CaptureLocations) {
        self.subject.clear();
        self.subject.extend_from_slice(subject);
        self.spans.clear();
        self.spans.extend((0..locations.len()).map(|i| locations.get(i)));
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
