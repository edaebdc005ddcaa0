//! The requests of a log as they came: when, for what, from which client. Their answers are not read, so any access log
//! with a time and a request will do.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};

use crate::Error;
use crate::format::{Escape, Format, Needs, Variable};
use crate::line::{Splitter, Values, unescaped};
use crate::read::{Input, LineReader, check_fits, through};
use crate::values::{attempts, ended, micros};

/// A request of a log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// When it began, in microseconds since 1970.
    pub begin: u64,
    /// Index into [`Requests::asked`].
    pub asked: u32,
    /// Number of the client.
    pub client: u32,
}

/// What a request asks for.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Asked {
    /// `GET`.
    pub method: String,
    /// The path with its arguments.
    pub uri: String,
}

/// What was read.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Requests {
    /// In the order in which they began.
    pub requests: Vec<Request>,
    /// What they ask for, each once.
    pub asked: Vec<Asked>,
    /// Lines of another format.
    pub strange: u64,
    /// Lines without a request that can be sent again: `-`, bytes that are no HTTP, CONNECT.
    pub unsendable: u64,
    /// Whether times are exact to the millisecond, and not to the second.
    pub exact: bool,
}

/// Reads the requests of a log.
///
/// # Errors
/// A file that cannot be read; no format that fits; most lines of another format; no request that can be sent.
pub fn requests(input: &Input) -> Result<Requests, Error> {
    let (reader, lines) = through::<Reader>(input, &Default::default())?;
    let log = reader.finish();
    check_fits(log.strange, lines)?;
    if log.requests.is_empty() {
        return Err(Error::NoRequests);
    }
    Ok(log)
}

struct Reader {
    splitter: Splitter,
    escape: Escape,
    log: Requests,
    known: HashMap<Asked, u32>,
    clients: HashMap<u64, u32>,
    hashes: RandomState,
    /// The second whose requests are not spread over it yet, and where they begin.
    second: (u64, usize),
}

impl LineReader for Reader {
    const NEEDS: Needs = Needs::Requests;

    fn begin(format: &Format, _: &Input) -> Reader {
        Reader {
            splitter: Splitter::new(format),
            escape: format.escape(),
            log: Requests { exact: true, ..Requests::default() },
            known: HashMap::default(),
            clients: HashMap::default(),
            hashes: RandomState::new(),
            second: (0, 0),
        }
    }

    fn take(&mut self, line: &[u8]) {
        let mut values = Values::default();
        let time = self.splitter.split(line, &mut values).then(|| ended(&values)).flatten();
        let Some((end, exact)) = time else {
            self.log.strange += 1;
            return;
        };
        let Some(asked) = asked(&values, self.escape) else {
            self.log.unsendable += 1;
            return;
        };
        if !exact {
            self.log.exact = false;
            if end != self.second.0 {
                self.spread();
                self.second = (end, self.log.requests.len());
            }
        }
        let asked = *self.known.entry(asked).or_insert_with_key(|asked| {
            self.log.asked.push(asked.clone());
            self.log.asked.len() as u32 - 1
        });
        let client = self.hashes.hash_one(values.get(Variable::RemoteAddr).unwrap_or(b""));
        let next = self.clients.len() as u32;
        let client = *self.clients.entry(client).or_insert(next);
        self.log.requests.push(Request { begin: end.saturating_sub(took(&values)), asked, client });
    }
}

impl Reader {
    /// Spreads the requests that ended in one second over it, in the order of the log.
    fn spread(&mut self) {
        let requests = &mut self.log.requests[self.second.1..];
        let count = requests.len() as u64;
        for (place, request) in (0..).zip(requests) {
            request.begin += (2 * place + 1) * 500_000 / count;
        }
    }

    fn finish(mut self) -> Requests {
        if !self.log.exact {
            self.spread();
        }
        self.log.requests.sort_by_key(|request| request.begin);
        self.log
    }
}

/// Microseconds that a request took: its own time, or that of its servers.
fn took(values: &Values<'_>) -> u64 {
    let own = values.get(Variable::RequestTime).and_then(micros);
    own.or_else(|| {
        let times = values.get(Variable::UpstreamResponseTime)?;
        Some(attempts(times).filter_map(micros).sum())
    })
    .unwrap_or(0)
}

/// What a line asks for; none if that cannot be sent.
fn asked(values: &Values<'_>, escape: Escape) -> Option<Asked> {
    let line = values.get(Variable::Request).map(|line| unescaped(line, escape));
    let word = |number: usize| line.as_deref().and_then(|line| line.split(|byte| *byte == b' ').nth(number));
    let method = values.get(Variable::RequestMethod).or(word(0)).unwrap_or(b"GET");
    let own = values.get(Variable::RequestUri).or(values.get(Variable::Uri)).map(|uri| unescaped(uri, escape));
    let uri = own.as_deref().or(word(1))?;
    let is_token = !method.is_empty() && method.len() <= 32 && method.iter().all(u8::is_ascii_uppercase);
    // What is no text travels as it does in a browser's address.
    let uri = uri.iter().map(|byte| match byte {
        b'!'..=b'~' => char::from(*byte).to_string(),
        byte => format!("%{byte:02X}"),
    });
    let uri: String = uri.collect();
    let sendable = is_token && method != b"CONNECT" && uri.starts_with('/');
    sendable.then(|| Asked { method: String::from_utf8_lossy(method).into_owned(), uri })
}
