//! One farm: servers, a balancer in front of them, and a load on it.

use std::collections::VecDeque;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;

use super::algorithm::Algorithm;
use super::balancer::Balancer;
use super::config;
use super::guard::Guard;
use super::load::{Latencies, Load};
use super::server::{Condition, Server};
use super::trouble::{Event, Troubles};
use super::view::{self, Row, View};

/// How long the balancer may take until it listens.
const START_MAX: Duration = Duration::from_secs(15);

/// A reload is over when nothing was said against it for so long.
const RELOAD_MAX: Duration = Duration::from_millis(400);

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
    /// Whether it is Balanza.
    pub(super) is_own: bool,
    /// The terminal's settings, for the guard.
    pub(super) stty: Option<String>,
}

/// A reload that has begun.
struct Reload {
    since: Instant,
    /// The file as it was, if the demo changed it.
    before: Option<String>,
}

/// A running farm. Dropping it ends all of it.
pub(super) struct Farm {
    plan: Plan,
    servers: Vec<Server>,
    troubles: Troubles,
    load: Load,
    reload: Option<Reload>,
    /// The file before a change of the demo's that the balancer has not begun to load.
    changed: Option<String>,
    news: VecDeque<String>,
    // Dropped in this order: the guard must not see the balancer's end.
    _guard: Guard,
    balancer: Balancer,
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
        let text = |directory: &Path| config::text(plan.port, &plan.algorithm, &addresses, directory, plan.is_own);
        let mut balancer = Balancer::start(&plan.program, text)?;
        let guard = Guard::start(balancer.pid(), balancer.directory(), plan.stty.as_deref());
        let guard = guard.context("cannot start a shell")?;
        balancer.ready(local(0), START_MAX).await?;
        let troubles = Troubles::follow(&balancer.error_log(), &addresses).context("cannot read the balancer's log")?;
        let load = Load::start(local(0), plan.rate);
        let (reload, changed, news) = (None, None, VecDeque::new());
        Ok(Self { plan, servers, troubles, load, reload, changed, news, _guard: guard, balancer })
    }

    pub(super) fn algorithm(&self) -> &Algorithm {
        &self.plan.algorithm
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

    /// Where clients connect.
    pub(super) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/", self.plan.port)
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
        let path = self.config_path();
        let addresses: Vec<SocketAddr> = self.servers.iter().map(Server::address).collect();
        let text = config::text(self.plan.port, algorithm, &addresses, self.balancer.directory(), self.plan.is_own);
        let before = fs::read_to_string(&path)?;
        fs::write(&path, text)?;
        self.changed = Some(before);
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
                Event::Reloading => self.reload = Some(Reload { since: Instant::now(), before: self.changed.take() }),
                Event::Refused(why) => {
                    let Some(reload) = self.reload.take() else { continue };
                    if let Some(text) = reload.before {
                        // What the user has written is left alone, to be corrected.
                        let _ = fs::write(self.config_path(), text);
                    }
                    self.tell(format!("refused, {} goes on: {}", self.plan.algorithm, self.without_path(&why)));
                }
            }
        }
        if self.reload.as_ref().is_some_and(|reload| reload.since.elapsed() > RELOAD_MAX) {
            self.reload = None;
            let text = fs::read_to_string(self.config_path()).unwrap_or_default();
            if let Some(algorithm) = config::algorithm_in(&text) {
                self.plan.algorithm = algorithm;
            }
            self.tell(format!("reloaded: {}", self.plan.algorithm));
        }
    }

    fn without_path(&self, text: &str) -> String {
        text.replace(&self.config_path().display().to_string(), "nginx.conf")
    }

    /// What there is to see now; `chosen` is the server whose last choice is explained.
    pub(super) fn view(&mut self, chosen: usize) -> View {
        self.listen();
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
        let counts = self.load.counts();
        View {
            why: view::why(&self.plan.algorithm, &rows),
            overload: view::overload(f64::from(rate), &rows, counts.held),
            algorithm: self.plan.algorithm.to_string(),
            pick: self.load.reason(chosen),
            news: self.news.iter().cloned().collect(),
            trouble: self.troubles.summary().map(|summary| self.without_path(&summary)),
            rows,
            total,
            counts,
            rate,
        }
    }
}
