//! A resolver: name servers in rotation, and a cache in front of them.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, Semaphore};
use tokio::time::{Instant, timeout};

use crate::cache::Cache;
use crate::exchange::{Trouble, ask};
use crate::message::{Kind, Question, Response, Target};
use crate::statistics::Statistics;

/// Answers that are kept.
const KEPT: usize = 65_536;
/// Questions that are open at once; more fail.
const OPEN: usize = 16_384;
/// Names whose places are asked for at once. More would need a socket each, and name servers lose questions that come
/// together by thousands. Those who ask for addresses do not wait for them.
const FOLLOWED: usize = 256;
/// A question that takes longer lets another begin.
const TURN: Duration = Duration::from_millis(500);
/// After this time without an answer the next server is asked.
const PATIENCE: Duration = Duration::from_secs(2);
/// A failure is remembered for this time, so that those who wait for the same answer do not ask again.
const FAILURE: Duration = Duration::from_secs(1);
/// An alias may lead to a name that has to be asked for so many times.
const ALIASES: usize = 8;

/// What a resolver asks, and how.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Settings {
    /// Name servers.
    pub servers: Vec<SocketAddr>,
    /// How long answers hold, whatever they say. That there is no such name holds no longer than the answer says.
    pub valid: Option<Duration>,
    /// Addresses of IPv4 are asked for.
    pub v4: bool,
    /// Addresses of IPv6 are asked for.
    pub v6: bool,
    /// How long a name may take.
    pub timeout: Duration,
}

/// Why a name has no addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// This cannot be a host name.
    Invalid,
    /// There is no such name, or it has no addresses.
    NotFound,
    /// The name servers refuse to answer or fail, with this response code.
    Refused(u16),
    /// No answer came in time.
    TimedOut,
    /// Too many questions are open.
    Overloaded,
}

impl Failure {
    /// Its number in NGINX's messages.
    pub fn code(self) -> u16 {
        match self {
            Failure::Invalid | Failure::NotFound => 3,
            Failure::Refused(code) => code,
            Failure::Overloaded => 2,
            Failure::TimedOut => 110,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Failure::Invalid | Failure::NotFound => "Host not found",
            Failure::Refused(1) => "Format error",
            Failure::Refused(2) => "Server failure",
            Failure::Refused(4) => "Unimplemented",
            Failure::Refused(5) => "Operation refused",
            Failure::Refused(_) => "Unknown error",
            Failure::TimedOut => "Operation timed out",
            Failure::Overloaded => "Too many names are being resolved",
        })
    }
}

/// The addresses of a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Addresses {
    /// Those of IPv4 first, in the server's order.
    pub list: Arc<[IpAddr]>,
    /// When they have to be asked for again.
    pub until: Instant,
    /// The kind that could not be asked for, and why: the host may have more addresses.
    pub missing: Option<(Kind, Failure)>,
}

/// Names of one kind that were asked for: the answer or the failure.
pub(crate) type Answer = Result<Arc<Response>, Failure>;

/// A name and what is asked for.
type Key = (String, Kind);

/// Held while a name is asked for.
type Gate = Rc<Mutex<()>>;

/// A resolver of one thread.
pub struct Resolver {
    settings: Settings,
    cache: RefCell<Cache<Key, Answer>>,
    /// Further callers for a name wait for the answer to the question in progress.
    gates: RefCell<HashMap<Key, Gate>>,
    followed: Semaphore,
    next: Cell<usize>,
    begun: Instant,
    statistics: Arc<Statistics>,
}

impl Resolver {
    /// A resolver without answers.
    pub fn new(settings: Settings) -> Resolver {
        Resolver {
            // Several instances do not all begin with the first server.
            next: Cell::new(usize::from(rand::random::<u8>())),
            settings,
            cache: RefCell::new(Cache::new(KEPT)),
            gates: RefCell::default(),
            followed: Semaphore::new(FOLLOWED),
            begun: Instant::now(),
            statistics: Arc::default(),
        }
    }

    /// How long answers hold, if that is set.
    pub fn valid(&self) -> Option<Duration> {
        self.settings.valid
    }

    /// What it counts.
    pub fn statistics(&self) -> &Arc<Statistics> {
        &self.statistics
    }

    /// The addresses of a host.
    ///
    /// # Errors
    /// It has none, or they cannot be had.
    pub async fn addresses(&self, host: &str) -> Result<Addresses, Failure> {
        let of = async |kind: Kind, wanted: bool| match wanted {
            true => Some((kind, self.find(host, kind).await)),
            false => None,
        };
        let (v4, v6) = tokio::join!(of(Kind::V4, self.settings.v4), of(Kind::V6, self.settings.v6));
        let mut list = Vec::new();
        let mut until: Option<Instant> = None;
        let mut missing = None;
        for (kind, (answer, holds)) in [v4, v6].into_iter().flatten() {
            match answer {
                Ok(response) => {
                    for address in &response.addresses {
                        if !list.contains(address) {
                            list.push(*address);
                        }
                    }
                }
                Err(Failure::NotFound) => {}
                Err(failure) => {
                    missing = Some((kind, failure));
                    continue;
                }
            }
            until = Some(until.map_or(holds, |until| until.min(holds)));
        }
        match until {
            Some(until) if !list.is_empty() => Ok(Addresses { list: list.into(), until, missing }),
            _ => Err(missing.map_or(Failure::NotFound, |(_, failure)| failure)),
        }
    }

    /// The servers of a service (SRV), and when they have to be asked for again.
    ///
    /// # Errors
    /// It has none, or they cannot be had.
    pub async fn service(&self, name: &str) -> Result<(Vec<Target>, Instant), Failure> {
        let (answer, until) = self.find(name, Kind::Service).await;
        Ok((answer?.targets.clone(), until))
    }

    /// Answers a question for places: only so many of these begin at a time. One that takes long lets others begin, so that
    /// names without an answer do not hold up the rest.
    pub(crate) async fn in_turn<T>(&self, mut question: Pin<&mut impl Future<Output = T>>) -> T {
        let permit = self.followed.acquire().await;
        match timeout(TURN, &mut question).await {
            Ok(answer) => answer,
            Err(_) => {
                drop(permit);
                question.await
            }
        }
    }

    /// An answer, and until when it holds.
    async fn find(&self, host: &str, kind: Kind) -> (Answer, Instant) {
        let key = (host.to_ascii_lowercase(), kind);
        if let Some(known) = self.known(&key) {
            return known;
        }
        if self.gates.borrow().len() >= OPEN {
            return (Err(Failure::Overloaded), Instant::now());
        }
        let gate = Rc::clone(self.gates.borrow_mut().entry(key.clone()).or_default());
        let held = gate.lock().await;
        let found = match self.known(&key) {
            Some(known) => known,
            None => {
                let deadline = Instant::now() + self.settings.timeout;
                let answer = self.ask_all(&key.0, kind, deadline).await;
                self.keep(&key, answer)
            }
        };
        drop(held);
        // The map and this one.
        if Rc::strong_count(&gate) == 2 {
            self.gates.borrow_mut().remove(&key);
        }
        found
    }

    fn now(&self) -> u64 {
        self.begun.elapsed().as_millis() as u64
    }

    fn known(&self, key: &Key) -> Option<(Answer, Instant)> {
        let (answer, until) = self.cache.borrow().get(key, self.now())?;
        Some((answer, self.begun + Duration::from_millis(until)))
    }

    fn keep(&self, key: &Key, answer: Result<(Arc<Response>, Duration), (Failure, Duration)>) -> (Answer, Instant) {
        let (answer, time) = match answer {
            Ok((response, time)) => (Ok(response), self.settings.valid.unwrap_or(time)),
            Err((failure, time)) => (Err(failure), self.settings.valid.map_or(time, |valid| valid.min(time))),
        };
        let now = self.now();
        // An answer without a time to live is used by those who wait for it.
        let until = now + (time.as_millis() as u64).max(1);
        self.cache.borrow_mut().put(key.clone(), answer.clone(), until, now);
        (answer, self.begun + Duration::from_millis(until))
    }

    /// Asks for a name, and for what it is an alias of.
    async fn ask_all(
        &self,
        host: &str,
        kind: Kind,
        deadline: Instant,
    ) -> Result<(Arc<Response>, Duration), (Failure, Duration)> {
        let mut host = host.to_owned();
        let mut least = Duration::MAX;
        for _ in 0..ALIASES {
            let question = Question::new(&host, kind).ok_or((Failure::Invalid, FAILURE))?;
            let response = self.ask_servers(&question, kind, deadline).await.map_err(|failure| (failure, FAILURE))?;
            least = least.min(response.ttl);
            match response.alias.clone().filter(|_| response.is_empty() && response.code == 0) {
                Some(alias) => host = alias,
                None if response.is_empty() => return Err((Failure::NotFound, least)),
                None => return Ok((Arc::new(response), least)),
            }
        }
        Err((Failure::NotFound, FAILURE))
    }

    /// Asks the servers one after the other, until one answers or the time is over.
    async fn ask_servers(&self, question: &Question, kind: Kind, deadline: Instant) -> Result<Response, Failure> {
        let servers = &self.settings.servers;
        let mut failure = Failure::TimedOut;
        let mut refusals = 0;
        while !servers.is_empty() && refusals < 2 * servers.len() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let server = servers[self.next.get() % servers.len()];
            self.next.set(self.next.get().wrapping_add(1));
            self.statistics.asked(kind);
            match ask(server, question, PATIENCE.min(left)).await {
                Ok(response) => {
                    self.statistics.answered(response.code);
                    match response.code {
                        0 | 3 => return Ok(response),
                        code => failure = Failure::Refused(code),
                    }
                    refusals += 1;
                }
                Err(Trouble::TimedOut) => {
                    self.statistics.timed_out();
                    failure = Failure::TimedOut;
                }
                Err(Trouble::Failed) => {
                    // Nothing listens there: the others are asked at once, and this one again after a while.
                    failure = Failure::TimedOut;
                    refusals += 1;
                    if refusals % servers.len() == 0 {
                        tokio::time::sleep(Duration::from_millis(200).min(left)).await;
                    }
                }
            }
        }
        Err(failure)
    }
}

#[cfg(test)]
mod tests;
