//! A log in memory: the attempts at servers, 24 bytes each, in the order in which they began.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};

use crate::format::{Escape, Format, Variable};
use crate::line::{Splitter, Values, unescaped};
use crate::values::{attempts, ended, micros};

/// Servers of a log at most.
const SERVERS_MAX: usize = 4_096;
/// Classes of requests at most; the rest is one class.
const CLASSES_MAX: usize = 24;

/// Keys that are told apart.
const KEYS_MAX: usize = 1_000_000;

/// A request at a server.
#[derive(Clone, Copy, Debug)]
pub struct Attempt {
    /// Microseconds since 1970.
    pub begin: u64,
    /// Microseconds that it took.
    pub time: u32,
    /// Number of the client or the key.
    pub key: u32,
    /// Microseconds of the request with all its attempts; of a first attempt.
    pub total: u32,
    /// Index into [`Log::servers`].
    pub server: u16,
    /// The class in the low bits.
    bits: u16,
}

const FIRST: u16 = 1 << 15;
const FAILED: u16 = 1 << 14;

impl Attempt {
    /// Microseconds since 1970.
    pub fn end(&self) -> u64 {
        self.begin + u64::from(self.time)
    }

    /// Index into [`Log::classes`].
    pub fn class(&self) -> usize {
        usize::from(self.bits & 0xfff)
    }

    /// Whether it is the first of its request.
    pub fn is_first(&self) -> bool {
        self.bits & FIRST != 0
    }

    /// Whether the server did not answer, or answered with a status of 500 or more.
    pub fn failed(&self) -> bool {
        self.bits & FAILED != 0
    }
}

/// What a request is balanced by, if its key is known from the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum KeyOf {
    /// `$remote_addr`.
    #[default]
    Client,
    /// `$request_uri`.
    Uri,
}

/// What was read.
#[derive(Debug, Default)]
pub struct Log {
    /// In the order in which they began.
    pub attempts: Vec<Attempt>,
    /// Addresses.
    pub servers: Vec<String>,
    /// `GET /search`.
    pub classes: Vec<String>,
    /// Lines that are requests at servers.
    pub requests: u64,
    /// Requests that no server was asked for: files, redirections, errors of the balancer.
    pub elsewhere: u64,
    /// Lines of another format.
    pub strange: u64,
    /// Whether times of ends are exact to the millisecond, and not to the second.
    pub exact: bool,
    /// Microseconds of a round trip to a server: the median of the connections that were made. 0 if it is not known.
    pub round_trip: u32,
    /// Attempts beyond the first, of one request, at most.
    pub retries: u32,
}

/// Reads lines into a [`Log`].
pub struct Reader {
    splitter: Splitter,
    escape: Escape,
    key: KeyOf,
    /// Servers that count, by address; all if it is empty.
    only: Vec<String>,
    log: Log,
    servers: HashMap<Vec<u8>, u16>,
    classes: HashMap<Vec<u8>, u16>,
    keys: HashMap<u64, u32>,
    hashes: RandomState,
    connects: Vec<u32>,
    /// The second that is being spread, and where its attempts begin.
    second: (u64, usize),
    name: Vec<u8>,
}

impl Reader {
    /// A reader of this format.
    pub fn new(format: &Format, key: KeyOf, only: &[String]) -> Reader {
        Reader {
            splitter: Splitter::new(format),
            escape: format.escape,
            key,
            only: only.to_vec(),
            log: Log { exact: true, ..Log::default() },
            servers: HashMap::default(),
            classes: HashMap::default(),
            keys: HashMap::default(),
            hashes: RandomState::new(),
            connects: Vec::new(),
            second: (0, 0),
            name: Vec::new(),
        }
    }

    /// A line without its end. False if it is of another format.
    pub fn line(&mut self, line: &[u8]) -> bool {
        let mut values = Values::default();
        let known = self.splitter.split(line, &mut values) && self.request(&values).is_some();
        self.log.strange += u64::from(!known);
        known
    }

    fn request(&mut self, values: &Values<'_>) -> Option<()> {
        let (end, exact) = ended(values)?;
        let (Some(addresses), Some(times)) =
            (values.get(Variable::UpstreamAddr), values.get(Variable::UpstreamResponseTime))
        else {
            self.log.elsewhere += 1;
            return Some(());
        };
        let (class, key) = (self.class(values), self.key(values));
        let statuses = values.get(Variable::UpstreamStatus).or(values.get(Variable::Status)).unwrap_or(b"-");
        let begin = self.log.attempts.len();
        let mut times = attempts(times);
        let mut statuses = attempts(statuses);
        let mut total = 0u64;
        for address in attempts(addresses) {
            let time = times.next()?;
            let status = statuses.next().unwrap_or(b"-");
            let Some(server) = self.server(address) else { continue };
            let micros = if time == b"-" { 0 } else { micros(time)? };
            let time = u32::try_from(micros).unwrap_or(u32::MAX);
            let failed = !matches!(status.first(), Some(b'1'..=b'4'));
            let bits = class | if failed { FAILED } else { 0 };
            // `begin` is what the attempts before it took, for now.
            self.log.attempts.push(Attempt { begin: total, time, key, total: 0, server, bits });
            total += u64::from(time);
        }
        if let Some(connect) = values.get(Variable::UpstreamConnectTime).and_then(|text| attempts(text).last()) {
            self.connects
                .extend(micros(connect).filter(|time| *time > 0 && self.connects.len() < 100_000).map(|t| t as u32));
        }
        let Some(first) = self.log.attempts.get_mut(begin) else {
            self.log.elsewhere += 1;
            return Some(());
        };
        first.bits |= FIRST;
        first.total = u32::try_from(total).unwrap_or(u32::MAX);
        self.log.requests += 1;
        if !exact {
            self.log.exact = false;
            if end != self.second.0 {
                self.spread(begin);
                self.second = (end, begin);
            }
        }
        let from = end.saturating_sub(total);
        let added = &mut self.log.attempts[begin..];
        self.log.retries = self.log.retries.max(added.len() as u32 - 1);
        added.iter_mut().for_each(|attempt| attempt.begin += from);
        Some(())
    }

    /// Spreads the requests that ended in one second over it, in the order of the log.
    fn spread(&mut self, to: usize) {
        let attempts = &mut self.log.attempts[self.second.1..to];
        let count = attempts.iter().filter(|attempt| attempt.is_first()).count() as u64;
        let mut place = 0;
        for attempt in attempts {
            place += u64::from(attempt.is_first());
            attempt.begin += (2 * place - 1) * 500_000 / count.max(1);
        }
    }

    fn server(&mut self, address: &[u8]) -> Option<u16> {
        if let Some(known) = self.servers.get(address) {
            return Some(*known).filter(|number| *number != u16::MAX);
        }
        let text = String::from_utf8_lossy(address).into_owned();
        let counts = self.only.is_empty() || self.only.contains(&text);
        // The name of a group instead of an address: no server could be chosen.
        let is_address = text.contains(':') || text.contains('.') || self.only.contains(&text);
        let number = if counts && is_address && self.log.servers.len() < SERVERS_MAX {
            self.log.servers.push(text);
            self.log.servers.len() as u16 - 1
        } else {
            u16::MAX
        };
        if self.servers.len() < 4 * SERVERS_MAX {
            self.servers.insert(address.to_vec(), number);
        }
        Some(number).filter(|number| *number != u16::MAX)
    }

    /// Requests are of a class if they have the method and the first part of the path in common.
    fn class(&mut self, values: &Values<'_>) -> u16 {
        let request = values.get(Variable::Request);
        let word = |n: usize| request.and_then(|line| line.split(|byte| *byte == b' ').nth(n));
        let method = values.get(Variable::RequestMethod).or(word(0)).unwrap_or(b"");
        let path = values.get(Variable::RequestUri).or(values.get(Variable::Uri)).or(word(1)).unwrap_or(b"");
        let path = path.split(|byte| *byte == b'?').next().unwrap_or(b"");
        let first = path.get(1..).unwrap_or(b"").split(|byte| *byte == b'/').next().unwrap_or(b"");
        self.name.clear();
        self.name.extend_from_slice(&method[..method.len().min(16)]);
        self.name.extend_from_slice(b" /");
        // Numbers and long names are of single objects.
        if first.len() <= 32 && !first.iter().any(u8::is_ascii_digit) {
            self.name.extend_from_slice(first);
        }
        if let Some(known) = self.classes.get(&self.name) {
            return *known;
        }
        let number = if self.log.classes.len() + 1 < CLASSES_MAX {
            self.log.classes.push(String::from_utf8_lossy(&unescaped(&self.name, self.escape)).into_owned());
            self.log.classes.len() as u16 - 1
        } else {
            CLASSES_MAX as u16 - 1
        };
        if self.classes.len() < 100_000 {
            self.classes.insert(self.name.clone(), number);
        }
        number
    }

    fn key(&mut self, values: &Values<'_>) -> u32 {
        let uri = || {
            let request = values.get(Variable::Request).and_then(|line| line.split(|byte| *byte == b' ').nth(1));
            values.get(Variable::RequestUri).or(values.get(Variable::Uri)).or(request)
        };
        let text = match self.key {
            KeyOf::Client => values.get(Variable::RemoteAddr),
            KeyOf::Uri => uri(),
        };
        let text = text.unwrap_or(b"");
        let (hash, next) = (self.hashes.hash_one(text), self.keys.len() as u32);
        // Beyond a million keys, two may be taken for one.
        if self.keys.len() >= KEYS_MAX {
            let sum = || text.iter().fold(0u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(u32::from(*byte)));
            return self.keys.get(&hash).copied().unwrap_or_else(|| sum() % KEYS_MAX as u32);
        }
        *self.keys.entry(hash).or_insert(next)
    }

    /// The log, once all lines are read.
    pub fn finish(mut self) -> Log {
        if !self.log.exact {
            self.spread(self.log.attempts.len());
        }
        if self.classes.values().any(|class| usize::from(*class) == CLASSES_MAX - 1) {
            self.log.classes.push("others".into());
        }
        self.log.attempts.sort_unstable_by_key(|attempt| attempt.begin);
        self.connects.sort_unstable();
        self.log.round_trip = self.connects.get(self.connects.len() / 2).copied().unwrap_or(0);
        self.log
    }
}

impl Log {
    /// Seconds from the first beginning to the last end.
    pub fn span(&self) -> f64 {
        let first = self.attempts.first().map_or(0, |attempt| attempt.begin);
        let last = self.attempts.iter().map(Attempt::end).max().unwrap_or(first);
        (last - first) as f64 / 1e6
    }

    /// Requests a second in the busiest of the spans of `span` seconds.
    pub fn peak(&self, span: f64) -> f64 {
        let span = ((span * 1e6) as u64).max(1);
        let Some(first) = self.attempts.first() else { return 0.0 };
        let (mut most, mut count, mut current) = (0u64, 0u64, 0);
        for attempt in self.attempts.iter().filter(|attempt| attempt.is_first()) {
            let at = (attempt.begin - first.begin) / span;
            if at != current {
                (current, count) = (at, 0);
            }
            count += 1;
            most = most.max(count);
        }
        most as f64 * 1e6 / span as f64
    }
}
