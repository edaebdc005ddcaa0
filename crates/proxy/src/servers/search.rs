//! The search for a server: choose, try, account, try another. One loop serves requests of `http` and sessions of `stream`.

use std::fmt::Arguments;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;

use balanza_balancing::{Decided, Member, Outcome, Reason, Tried};
use balanza_config::model::{Level, QueueLimits, ServerAddress};
use balanza_net::clock::{self, Nanos};
use balanza_net::hang_up::HangUp;

use super::attempt::{Attempt, Explained, Shadowed};
use super::bound::BoundServer;
use super::failure::{Cause, Failure};
use super::group::{Members, Upstream};
use super::lease::Lease;
use super::picks::Sampler;
use super::queue::Queue;
use super::shadows::{Choices, Watching};
use crate::undecided::Undecided;

/// Where a request or a session goes.
pub enum Target {
    /// A group of servers.
    Group(Rc<Upstream>),
    /// The address that a variable gave, or those of a name that it gave.
    Addresses(Rc<[(ServerAddress, Rc<str>)]>),
}

impl Target {
    /// One address.
    pub fn address(address: ServerAddress, text: Rc<str>) -> Target {
        Target::Addresses([(address, text)].into())
    }

    /// The addresses of a name, from the next one on: requests for a name begin with each of them in rotation.
    pub fn addresses(mut addresses: Vec<SocketAddr>) -> Target {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let first = NEXT.fetch_add(1, Relaxed) % addresses.len().max(1);
        addresses.rotate_left(first);
        let target = |address: SocketAddr| (ServerAddress::Inet(address), address.to_string().into());
        Target::Addresses(addresses.into_iter().map(target).collect())
    }
}

/// A server to try.
pub struct Choice {
    /// Its slot; none for an address that a variable gave.
    pub lease: Option<Lease>,
    /// Where to connect.
    pub address: ServerAddress,
}

impl Choice {
    /// A connection to the server begins.
    pub fn opens(&self, connection: HangUp) {
        if let Some(lease) = &self.lease {
            lease.opens(connection);
        }
    }

    /// Whether the connections to the server were ended: it must not be asked again.
    pub fn is_cut_off(&self) -> bool {
        self.lease.as_ref().is_some_and(|lease| lease.is_cut_off())
    }
}

/// How far a search may go.
pub struct Limits {
    /// Servers that may be tried; 0 is no limit.
    pub tries: u32,
    /// How long after its beginning another server may be tried; 0 is no limit.
    pub timeout: Nanos,
}

/// What a search needs to know of a request or session, and keeps.
pub struct Books<'a> {
    /// The key of a hashing algorithm.
    pub key: &'a [u8],
    /// The keys of shadows.
    pub shadow_keys: &'a [Vec<u8>],
    /// The session of `sticky` that it belongs to; empty for none.
    pub session: &'a [u8],
    /// The server that the client is bound to by `ntlm`.
    pub bound: Option<BoundServer>,
    /// Servers already tried.
    pub tried: &'a mut Tried,
    /// What the attempts came to.
    pub attempts: &'a mut Vec<Attempt>,
}

/// A request or a session that looks for a server.
pub trait Seeker {
    /// A server that was reached.
    type Reached;

    /// Its books.
    fn books(&mut self) -> Books<'_>;

    /// Writes to its error log.
    fn report(&self, level: Level, message: Arguments<'_>);

    /// A server was chosen, and its attempt begins.
    ///
    /// # Errors
    /// A regular expression is undecided.
    fn chosen(&mut self, _choice: &Choice) -> Result<(), Undecided> {
        Ok(())
    }

    /// While the request waits in a queue: ready with false when its client has gone, with true when the deadline has passed.
    fn poll_waiting(&mut self, _cx: &mut Context<'_>, _deadline: Nanos) -> Poll<bool> {
        Poll::Ready(true)
    }

    /// Tries a server.
    async fn attempt(&mut self, choice: &mut Choice) -> Result<Self::Reached, Failure>;

    /// Whether another server is to be tried although this one has answered, and how that counts for it.
    fn declines(&self, _reached: &Self::Reached) -> Option<Outcome> {
        None
    }

    /// An attempt has failed: true if another server may be tried.
    fn failed(&mut self, failure: &Failure) -> bool;
}

/// Why a search ended without a server.
pub enum Unreached {
    /// There is none that may be tried.
    NoServer,
    /// The last attempt failed.
    Failed(Failure),
    /// A regular expression that the choice depends on is undecided.
    Undecided,
}

impl From<Undecided> for Unreached {
    fn from(_: Undecided) -> Unreached {
        Unreached::Undecided
    }
}

/// Looks for a server until one is reached or no other may be tried.
///
/// # Errors
/// Why there is none.
pub async fn search<S: Seeker>(
    seeker: &mut S,
    target: &Target,
    limits: &Limits,
) -> Result<(Choice, S::Reached), Unreached> {
    let begun = clock::recent();
    let budget = match target {
        Target::Group(upstream) => upstream.retry_budget.as_deref(),
        Target::Addresses(_) => None,
    };
    if let Some(budget) = budget {
        budget.request(begun);
    }
    let may_retry = || budget.is_none_or(|budget| budget.retry(clock::recent()));
    let is_late = || limits.timeout != 0 && clock::now() - begun >= limits.timeout;
    let mut servers = Servers::of(target);
    let tries = match (servers.count(), limits.tries) {
        (count, 0) => count,
        (count, most) => count.min(most),
    };
    // A hedge is a try, too.
    let before = seeker.books().attempts.len();
    let may_try = |seeker: &mut S| seeker.books().attempts.len() - before < tries as usize;
    let mut is_first = true;
    loop {
        let Some(mut choice) = choose(seeker, &mut servers, is_first).await? else { return Err(Unreached::NoServer) };
        is_first = false;
        match seeker.attempt(&mut choice).await {
            Ok(reached) => match seeker.declines(&reached) {
                Some(outcome) if may_try(seeker) && !is_late() && may_retry() => {
                    finish(seeker, &mut choice.lease, outcome, "reading response header from upstream");
                }
                _ => return Ok((choice, reached)),
            },
            Err(failure) => {
                if let Some((level, message)) = failure.message() {
                    seeker.report(level, format_args!("{message}"));
                }
                let retries = seeker.failed(&failure);
                finish(seeker, &mut choice.lease, failure.outcome(), failure.doing.text());
                if !retries || !may_try(seeker) || is_late() || !may_retry() {
                    return Err(Unreached::Failed(failure));
                }
            }
        }
    }
}

/// The servers that a search began with.
enum Servers<'a> {
    Group(&'a Rc<Upstream>, Rc<Members>),
    /// How many were tried.
    Addresses(&'a [(ServerAddress, Rc<str>)], usize),
}

impl Servers<'_> {
    fn of(target: &Target) -> Servers<'_> {
        match target {
            Target::Group(upstream) => Servers::Group(upstream, upstream.members()),
            Target::Addresses(list) => Servers::Addresses(list, 0),
        }
    }

    fn count(&self) -> u32 {
        match self {
            Servers::Group(_, members) => members.shared.tries,
            Servers::Addresses(list, _) => list.len() as u32,
        }
    }
}

/// Takes one of the servers and begins its attempt; none when no one is eligible. Before the first attempt it may wait for
/// one in the queue.
async fn choose<S: Seeker>(
    seeker: &mut S,
    servers: &mut Servers<'_>,
    is_first: bool,
) -> Result<Option<Choice>, Unreached> {
    let now = clock::recent();
    let (upstream, members) = match servers {
        Servers::Group(upstream, members) => (*upstream, members),
        Servers::Addresses(list, tried) => {
            let Some((address, text)) = list.get(*tried) else { return Ok(None) };
            *tried += 1;
            begin(seeker, Rc::clone(text), None);
            let choice = Choice { lease: None, address: address.clone() };
            seeker.chosen(&choice)?;
            return Ok(Some(choice));
        }
    };
    let queue = upstream.queue.as_ref().zip(upstream.conf.queue).filter(|_| is_first);
    let mut chosen = match queue {
        Some((queue, _)) if queue.is_waited_in() => None,
        _ => choose_member(upstream, members, seeker.books(), now).await,
    };
    let mut queue_time = None;
    if let (None, Some((queue, limits))) = (&chosen, queue) {
        chosen = Box::pin(wait(seeker, upstream, members, queue, limits)).await?;
        queue_time = Some(clock::recent() - now);
    } else if chosen.is_none() && upstream.has_other_than(members) {
        // The servers that the search began with have left or failed, but there are others now.
        *members = upstream.members();
        let books = seeker.books();
        books.tried.clear();
        chosen = choose_member(upstream, members, books, now).await;
    }
    let Some(chosen) = chosen else {
        begin(seeker, upstream.conf.name.as_str().into(), None);
        if let Some(attempt) = seeker.books().attempts.last_mut() {
            attempt.response_time = Some(0);
            attempt.status = 502;
            attempt.queue_time = queue_time;
        }
        // Once, until a server has answered.
        if !upstream.unavailable_logged.replace(true) {
            seeker.report(Level::Error, format_args!("no live upstreams while connecting to upstream"));
        }
        return Ok(None);
    };
    if let Some(prober) = &*upstream.prober.borrow() {
        prober.send(members, now);
    }
    let choice = start(seeker, upstream, members, chosen);
    if queue_time.is_some()
        && let Some(attempt) = seeker.books().attempts.last_mut()
    {
        attempt.queue_time = queue_time;
    }
    seeker.chosen(&choice)?;
    Ok(Some(choice))
}

/// Begins the attempt with a server that was chosen.
fn start<S: Seeker>(seeker: &mut S, upstream: &Rc<Upstream>, members: &Rc<Members>, chosen: Chosen) -> Choice {
    let Chosen { member, explained, is_probe, choices } = chosen;
    // The time of an external program does not count for the server.
    let mut lease = Lease::new(upstream, members, member, clock::recent());
    lease.is_probe = is_probe;
    let index = member.0 as usize;
    let server = &members.shared.servers[index];
    let explained = match upstream.explains.name {
        true => {
            Some(Box::new(Explained { name: Some(server.configured_name().into()), ..*explained.unwrap_or_default() }))
        }
        false => explained,
    };
    begin(seeker, Rc::clone(&members.addresses[index]), explained);
    if (choices.is_some() || members.recording.is_some())
        && let Some(attempt) = seeker.books().attempts.last_mut()
    {
        attempt.arm = lease.arm();
        attempt.shadows = choices.map(|choices| Box::new(Shadowed { members: Rc::clone(members), choices }));
    }
    Choice { lease: Some(lease), address: server.address.clone() }
}

/// How often the first in a queue looks for a server without being called: a server may be open again.
const LOOK: Duration = Duration::from_millis(50);

/// Waits in a queue until there is a server; none if it is full or the time is over.
async fn wait<S: Seeker>(
    seeker: &mut S,
    upstream: &Upstream,
    members: &mut Rc<Members>,
    queue: &std::sync::Arc<Queue>,
    limits: QueueLimits,
) -> Result<Option<Chosen>, Unreached> {
    let Some(place) = queue.enter(limits.length) else {
        if !upstream.unavailable_logged.replace(true) {
            seeker.report(Level::Error, format_args!("the queue is full while connecting to upstream"));
        }
        return Ok(None);
    };
    let deadline = clock::after(limits.timeout);
    loop {
        // One that becomes first is called.
        let look = if place.is_first() { clock::after(LOOK) } else { Nanos::MAX };
        let called = poll_fn(|cx| {
            if place.poll_called(cx).is_ready() {
                return Poll::Ready(Ok(true));
            }
            match seeker.poll_waiting(cx, deadline.min(look)) {
                Poll::Ready(false) => Poll::Ready(Err(Unreached::Failed(Failure::connecting(Cause::ClientGone)))),
                Poll::Ready(true) => Poll::Ready(Ok(clock::now() < deadline)),
                Poll::Pending => Poll::Pending,
            }
        });
        if !called.await? {
            return Ok(None);
        }
        *members = upstream.members();
        let books = seeker.books();
        books.tried.clear();
        if let Some(chosen) = choose_member(upstream, members, books, clock::now()).await {
            return Ok(Some(chosen));
        }
    }
}

fn begin<S: Seeker>(seeker: &mut S, address: Rc<str>, explained: Option<Box<Explained>>) {
    let attempt = Attempt { address: Some(address), started: clock::recent(), explained, ..Attempt::default() };
    seeker.books().attempts.push(attempt);
}

/// A server that was chosen, and a slot of it taken.
struct Chosen {
    member: Member,
    /// If that is asked for.
    explained: Option<Box<Explained>>,
    /// It is ejected, and this request finds out whether it works again.
    is_probe: bool,
    /// What shadows would have chosen.
    choices: Option<Choices>,
}

impl Chosen {
    /// For a reason that has no scores.
    fn by(reason: &'static str, looks: Looks<'_>, member: Member) -> Chosen {
        if let Some(sampler) = looks.sampler {
            sampler.add(looks.now, looks.members.id(member), reason, None, None, None);
        }
        let explained = || Box::new(Explained { reason: Some(reason.into()), ..Explained::default() });
        Chosen { member, explained: looks.upstream.explains.reason.then(explained), is_probe: false, choices: None }
    }

    /// By the algorithm.
    fn explained(reason: &Reason, probability: Option<f64>, looks: Looks<'_>, member: Member) -> Chosen {
        let members = looks.members;
        let words = || reason.words(members.fleet());
        if let Some(sampler) = looks.sampler {
            let next = reason.next.map(|(next, score)| (members.id(next), score));
            sampler.add(looks.now, members.id(member), words(), probability, reason.score, next);
        }
        let explains = looks.upstream.explains;
        let reason = explains.reason.then(|| words().to_string().into());
        let explained = explains.asks_why().then(|| Box::new(Explained { reason, probability, name: None }));
        Chosen { member, explained, is_probe: false, choices: None }
    }
}

/// Where a choice is kept, if anywhere.
#[derive(Clone, Copy)]
struct Looks<'a> {
    upstream: &'a Upstream,
    members: &'a Members,
    now: Nanos,
    sampler: Option<&'a Sampler>,
}

/// The server that a binding, client affinity, a program or the algorithm chooses.
async fn choose_member(upstream: &Upstream, members: &Members, books: Books<'_>, now: Nanos) -> Option<Chosen> {
    let Books { key, shadow_keys, session, bound, tried, .. } = books;
    let mut watching = Watching::new(members.shadows.as_deref(), shadow_keys, now);
    if !session.is_empty() || bound.is_some() {
        watching.ask_of_session(tried);
    }
    let sampler = upstream.sampler.as_deref().filter(|sampler| sampler.is_due(now));
    let looks = Looks { upstream, members, now, sampler };
    if let Some(outliers) = &members.shared.outliers {
        outliers.tick(now, &mut |notice| upstream.note(members, notice));
    }
    if let Some(member) = bound.and_then(|bound| bound.among(&members.shared.ids))
        && members.driver.borrow_mut().claim(now, member, tried, true).is_ok()
    {
        let choices = watching.went(member, Decided::Session);
        return Some(Chosen { choices, ..Chosen::by("ntlm", looks, member) });
    }
    if let Some(affinity) = &members.shared.affinity
        && let Some(member) = affinity.claim(&mut members.driver.borrow_mut(), session, now, tried)
    {
        let choices = watching.went(member, Decided::Session);
        return Some(Chosen { choices, ..Chosen::by("sticky", looks, member) });
    }
    if let Some(outliers) = &members.shared.outliers
        && tried.is_empty()
        && let Some(member) = outliers.probe(now)
    {
        if members.driver.borrow_mut().claim_probe(now, member, tried).is_ok() {
            let choices = watching.went(member, Decided::Other);
            return Some(Chosen { is_probe: true, choices, ..Chosen::by("probe of an outlier", looks, member) });
        }
        outliers.refused(now, member);
    }
    if let Some(external) = &upstream.external
        && members.shared.balancing.chosen.is_none()
        && let Some(member) = Box::pin(external.choose(&members.driver, now, key, tried)).await
        && {
            watching.ask_all(tried);
            members.driver.borrow_mut().claim(now, member, tried, false).is_ok()
        }
    {
        let choices = watching.went(member, Decided::Algorithm);
        return Some(Chosen { choices, ..Chosen::by("external program", looks, member) });
    }
    // Before the choice, so that they see what the algorithm sees.
    watching.ask_all(tried);
    let mut driver = members.driver.borrow_mut();
    if !upstream.explains.asks_why() && sampler.is_none() {
        let member = driver.pick(now, key, tried).ok()?;
        let choices = watching.went(member, Decided::Algorithm);
        return Some(Chosen { member, explained: None, is_probe: false, choices });
    }
    let mut reason = Reason::default();
    let mut probability = None;
    // A sampled choice is shown with its probability, which a few choices a second can afford.
    let picked = match upstream.explains.probability || sampler.is_some() {
        true => driver.pick_weighed(now, key, tried, &mut reason, &mut probability),
        false => driver.pick_explained(now, key, tried, &mut reason),
    };
    let member = picked.ok()?;
    let choices = watching.went(member, Decided::Algorithm);
    Some(Chosen { choices, ..Chosen::explained(&reason, probability, looks, member) })
}

/// Takes another server for a request that waits for one, and begins its attempt.
pub async fn another<S: Seeker>(seeker: &mut S, upstream: &Rc<Upstream>, members: &Rc<Members>) -> Option<Choice> {
    let chosen = choose_member(upstream, members, seeker.books(), clock::recent()).await?;
    let mut choice = start(seeker, upstream, members, chosen);
    if let Some(lease) = &mut choice.lease {
        lease.is_hedge = true;
    }
    Some(choice)
}

/// Counts the end of an attempt.
pub fn finish<S: Seeker>(seeker: &mut S, lease: &mut Option<Lease>, outcome: Outcome, doing: &str) {
    if close(seeker.books().attempts, lease, outcome) {
        seeker.report(Level::Warn, format_args!("{DISABLED} while {doing}"));
    }
}

/// What is said of a server that is not tried any more for its `fail_timeout`.
pub const DISABLED: &str = "upstream server temporarily disabled";

/// Closes the books of the current attempt and gives its server back; true if that is disabled now.
pub fn close(attempts: &mut Vec<Attempt>, lease: &mut Option<Lease>, outcome: Outcome) -> bool {
    let attempt = Attempt::current(attempts);
    attempt.response_time = Some(clock::recent() - attempt.started);
    lease.take().is_some_and(|mut lease| lease.complete(outcome, attempt))
}
