//! One farm: servers, a balancer in front of them, and a load on it.

use std::collections::VecDeque;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;

use super::algorithm::Algorithm;
use super::balancer::Balancer;
use super::config::{self, Features};
use super::connector::Tls;
use super::guard::Guard;
use super::load::{Latencies, Load, WINDOW};
use super::server::{Condition, Server};
use super::trouble::{Event, Troubles};
use super::view::{self, Row, View};
use crate::certificate::SelfSigned;

/// How long the balancer may take until it listens.
const START_MAX: Duration = Duration::from_secs(15);

/// A reload is over when nothing was said against it for so long.
const RELOAD_MAX: Duration = Duration::from_millis(400);

/// A refusal that comes later than this after a reload belongs to something else.
const REFUSAL_MAX: Duration = Duration::from_secs(10);

/// Things that happened which are kept to be shown.
const NEWS_MAX: usize = 3;

/// What a farm is made of.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) algorithm: Algorithm,
    /// Of the balancer; the servers have the next ones where these are free.
    pub(super) port: u16,
    pub(super) servers: u16,
    pub(super) rate: u32,
    /// The balancer's program.
    pub(super) program: PathBuf,
    pub(super) features: Features,
    /// The terminal's settings, for the guard.
    pub(super) stty: Option<(String, String)>,
}

impl Plan {
    /// The balancer's file with this algorithm, for these servers.
    fn config(&self, algorithm: &Algorithm, servers: &[SocketAddr], directory: &Path) -> String {
        config::text(self.port, algorithm, servers, directory, self.features)
    }
}

/// A reload that has begun.
struct Reload {
    since: Instant,
    /// Nothing was said against it in time.
    is_over: bool,
    /// The algorithm and the file before it.
    before: (Algorithm, String),
    /// Whether the demo has changed the file.
    is_ours: bool,
}

/// A running farm. Dropping it ends all of it.
pub(super) struct Farm {
    plan: Plan,
    servers: Vec<Server>,
    troubles: Troubles,
    load: Load,
    /// The algorithm that was asked for last.
    wanted: Algorithm,
    reload: Option<Reload>,
    /// The last file that was in effect.
    works: String,
    /// Whether the demo has changed the file since the last reload began.
    is_changed: bool,
    /// How many requests were held back when that was last looked at, and when it was more than before.
    held: (u64, Option<Instant>),
    news: VecDeque<String>,
    // Dropped in this order: until the balancer has ended, the guard has something to guard.
    balancer: Balancer,
    _guard: Guard,
}

impl Farm {
    /// Starts the servers, the balancer and the load, and waits until the balancer listens.
    ///
    /// Errors: no port is free; the balancer ends, and is quoted.
    pub(super) async fn start(plan: Plan) -> anyhow::Result<Self> {
        let local = |offset: u16| SocketAddr::from(([127, 0, 0, 1], super::after(plan.port, offset)));
        let servers: Vec<Server> = (0..plan.servers)
            .map(|index| Server::start(local(index + 1), usize::from(index)))
            .collect::<anyhow::Result<_>>()?;
        let addresses: Vec<SocketAddr> = servers.iter().map(Server::address).collect();
        let text = |directory: &Path| plan.config(&plan.algorithm, &addresses, directory);
        let identity =
            plan.features.tls.then(|| SelfSigned::new(&["127.0.0.1".into(), "localhost".into()])).transpose()?;
        let tls = identity.as_ref().map(|identity| Tls::new(&identity.certificate)).transpose()?;
        let mut balancer = Balancer::start(&plan.program, identity.as_ref(), text)?;
        let guard = Guard::start(balancer.pid(), balancer.directory(), plan.stty.as_ref());
        let guard = guard.context("cannot start a shell")?;
        balancer.ready(local(0), START_MAX).await?;
        let works = fs::read_to_string(balancer.config_path())?;
        let troubles = Troubles::follow(&balancer.error_log(), &addresses).context("cannot read the balancer's log")?;
        let load = Load::start(local(0), plan.rate, tls);
        Ok(Self {
            wanted: plan.algorithm.clone(),
            plan,
            servers,
            troubles,
            load,
            reload: None,
            works,
            is_changed: false,
            held: (0, None),
            news: VecDeque::new(),
            balancer,
            _guard: guard,
        })
    }

    pub(super) fn algorithm(&self) -> &Algorithm {
        &self.plan.algorithm
    }

    /// The algorithm that it balances by once the last change is in effect.
    pub(super) fn wanted(&self) -> &Algorithm {
        &self.wanted
    }

    pub(super) fn rate(&self) -> u32 {
        self.load.rate()
    }

    pub(super) fn servers(&self) -> usize {
        self.servers.len()
    }

    pub(super) fn condition(&self, server: usize) -> Condition {
        self.servers[server].condition()
    }

    /// The dashboard's address, if the balancer has one.
    pub(super) fn dashboard(&self) -> Option<String> {
        self.plan.features.is_own.then(|| format!("{}dashboard", self.url()))
    }

    /// Where clients connect.
    pub(super) fn url(&self) -> String {
        let scheme = if self.plan.features.tls { "https" } else { "http" };
        format!("{scheme}://127.0.0.1:{}/", self.plan.port)
    }

    /// The file of the balancer's certificate, if it has one.
    pub(super) fn certificate_path(&self) -> Option<PathBuf> {
        self.plan.features.tls.then(|| self.balancer.directory().join(config::CERTIFICATE))
    }

    /// The balancer's file.
    pub(super) fn config_path(&self) -> PathBuf {
        self.balancer.config_path()
    }

    /// The balancer's process.
    pub(super) fn pid(&self) -> u32 {
        self.balancer.pid()
    }

    /// An error if the balancer has ended by itself.
    pub(super) fn check(&mut self) -> anyhow::Result<()> {
        self.balancer.check()
    }

    pub(super) fn set_rate(&self, rate: u32) {
        self.load.set_rate(rate);
    }

    /// Something happens to a server.
    pub(super) fn set_server(&mut self, server: usize, condition: Condition) {
        let name = self.servers[server].name().to_owned();
        let news = match self.servers[server].set(condition) {
            Ok(()) => match condition {
                Condition::Well => format!("{name} works as at the start"),
                Condition::Slow => format!("{name} is four times slower"),
                Condition::Stopped => format!("{name} accepts requests and does not answer"),
                Condition::Killed => format!("{name} is killed: connections are refused"),
            },
            Err(error) => format!("{name} does not start: {error:#}"),
        };
        self.tell(news);
    }

    /// Writes a file with another algorithm and tells the balancer to load it, as an operator would.
    pub(super) fn set_algorithm(&mut self, name: &str) {
        match name.parse::<Algorithm>() {
            Ok(algorithm) => {
                if let Err(error) = self.change(&algorithm) {
                    self.tell(format!("cannot change {}: {error:#}", self.config_path().display()));
                }
            }
            Err(error) => self.tell(error),
        }
    }

    fn change(&mut self, algorithm: &Algorithm) -> anyhow::Result<()> {
        let addresses: Vec<SocketAddr> = self.servers.iter().map(Server::address).collect();
        fs::write(self.config_path(), self.plan.config(algorithm, &addresses, self.balancer.directory()))?;
        self.is_changed = true;
        self.wanted = algorithm.clone();
        self.balancer.reload()
    }

    /// Shows what happened.
    pub(super) fn tell(&mut self, news: String) {
        if self.news.len() == NEWS_MAX {
            self.news.pop_front();
        }
        self.news.push_back(news);
    }

    /// Takes notice of what the balancer's log says.
    fn listen(&mut self) {
        for event in self.troubles.read() {
            match event {
                Event::Reloading => {
                    let before = (self.plan.algorithm.clone(), self.works.clone());
                    let is_ours = std::mem::take(&mut self.is_changed);
                    self.reload = Some(Reload { since: Instant::now(), is_over: false, before, is_ours });
                }
                Event::Refused(why) => {
                    let Some(reload) = self.reload.take() else { continue };
                    (self.plan.algorithm, self.works) = reload.before;
                    self.wanted = self.plan.algorithm.clone();
                    // What the user has written is left alone, to be corrected.
                    if reload.is_ours {
                        let _ = fs::write(self.config_path(), &self.works);
                    }
                    self.tell(format!("refused, {} goes on: {}", self.plan.algorithm, self.without_path(&why)));
                }
            }
        }
        let Some(reload) = &mut self.reload else { return };
        let elapsed = reload.since.elapsed();
        if elapsed > REFUSAL_MAX {
            self.reload = None;
        } else if elapsed > RELOAD_MAX && !reload.is_over {
            reload.is_over = true;
            let text = fs::read_to_string(self.config_path()).unwrap_or_default();
            if let Some(algorithm) = config::algorithm_in(&text) {
                self.wanted = algorithm.clone();
                self.plan.algorithm = algorithm;
            }
            self.works = text;
            self.tell(format!("reloaded: {}", self.plan.algorithm));
        }
    }

    /// Requests that were held back, if some were lately.
    fn held_lately(&mut self, held: u64) -> u64 {
        if held > self.held.0 {
            self.held = (held, Some(Instant::now()));
        }
        if self.held.1.is_some_and(|at| at.elapsed() < WINDOW) { held } else { 0 }
    }

    fn without_path(&self, text: &str) -> String {
        text.replace(&self.config_path().display().to_string(), "nginx.conf")
    }

    /// What there is to see now; `chosen` is the server whose last choice is explained.
    pub(super) fn view(&mut self, chosen: usize) -> View {
        self.listen();
        let counts = self.load.counts();
        let held = self.held_lately(counts.held);
        let latencies = self.load.latencies(self.servers.len());
        let total = latencies[self.servers.len()];
        let failures = self.troubles.failures();
        let row = |((server, own), errors): ((&Server, &Latencies), &u64)| {
            let stats = server.stats();
            Row {
                name: server.name().to_owned(),
                condition: server.condition(),
                speed: server.speed(),
                capacity: server.capacity(),
                share: if total.rate > 0.0 { own.rate / total.rate } else { 0.0 },
                in_flight: stats.in_flight + stats.queued,
                requests: stats.requests,
                latencies: *own,
                errors: *errors,
            }
        };
        let rows: Vec<Row> = self.servers.iter().zip(&latencies).zip(failures).map(row).collect();
        let rate = self.load.rate();
        View {
            why: view::why(&self.plan.algorithm, &rows),
            overload: view::overload(f64::from(rate), &rows, held),
            algorithm: self.plan.algorithm.to_string(),
            pick: self.load.reason(chosen),
            tls: self.load.handshakes(),
            news: self.news.iter().cloned().collect(),
            trouble: self.troubles.summary().map(|summary| self.without_path(&summary)),
            rows,
            total,
            counts,
            rate,
        }
    }
}
