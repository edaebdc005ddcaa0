//! The reports of one server, from all its sources together.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use balanza_balancing::{Authority, ServerState};
use balanza_config::model::{Level, LoadReport, Upstream, UpstreamServer};
use balanza_net::clock::{self, Nanos};

use super::agent::{Statement, Weight, Wish};
use super::note;
use crate::log::error::ErrorWriter;

/// A server with load reports.
pub struct Reported {
    /// The upstream's name, for messages.
    pub upstream: String,
    /// The server as the configuration writes it.
    pub name: String,
    /// Its address as text.
    pub address: String,
    state: Arc<ServerState>,
    /// Configured.
    weight: u32,
    /// The upstream's, in their order.
    sources: Vec<LoadReport>,
    /// The algorithm uses the reported load, so a load does not set the share.
    reads_load: bool,
    said: RefCell<Said>,
    applied: Cell<Applied>,
}

/// The state in effect.
#[derive(Default)]
struct Said {
    /// By source.
    sources: Vec<Source>,
    wish: Option<Wish>,
    up: Option<bool>,
}

/// The part that is reset when its source is silent for too long.
#[derive(Clone, Copy, Default)]
struct Source {
    /// Percent of the weight.
    share: Option<u32>,
    max_conns: Option<u32>,
}

/// What the state was told.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Applied {
    share: u32,
    max_conns: Option<u32>,
    down: bool,
    draining: bool,
}

/// Nothing is reported.
const NORMAL: Applied = Applied { share: 100, max_conns: None, down: false, draining: false };

impl Said {
    fn come_to(&self) -> Applied {
        Applied {
            // The most careful of the sources decides.
            share: self.sources.iter().filter_map(|source| source.share).min().unwrap_or(NORMAL.share),
            max_conns: self.sources.iter().find_map(|source| source.max_conns),
            down: self.wish == Some(Wish::Maint) || self.up == Some(false),
            draining: self.wish == Some(Wish::Drain),
        }
    }
}

impl Reported {
    /// A server of an upstream; reports from before this configuration stay in effect.
    pub fn new(
        upstream: &Upstream,
        reads_load: bool,
        server: &UpstreamServer,
        state: &Arc<ServerState>,
        before: &[Rc<Reported>],
    ) -> Rc<Reported> {
        let known = before.iter().find(|known| Arc::ptr_eq(&known.state, state));
        let said = known.map_or_else(Said::default, |known| {
            let said = known.said.borrow();
            let sources = if known.sources == upstream.reports { said.sources.clone() } else { Vec::new() };
            Said { sources, wish: said.wish, up: said.up }
        });
        Rc::new(Reported {
            upstream: upstream.name.clone(),
            name: server.name.clone(),
            address: server.address.to_string(),
            state: Arc::clone(state),
            weight: server.weight,
            sources: upstream.reports.clone(),
            reads_load,
            said: RefCell::new(said),
            applied: Cell::new(known.map_or(NORMAL, |known| known.applied.get())),
        })
    }

    /// Whether the two are about the same server.
    pub fn is(&self, other: &Reported) -> bool {
        Arc::ptr_eq(&self.state, &other.state)
    }

    /// Undoes everything: no source reports this server's load any more.
    pub fn forget(&self) {
        self.change(|said| *said = Said::default());
        self.state.clear_report();
    }

    /// Changes the state in effect, and the state where it differs; returns the state's settings before and after.
    fn change(&self, change: impl FnOnce(&mut Said)) -> (Applied, Applied) {
        let mut said = self.said.borrow_mut();
        change(&mut said);
        let now = said.come_to();
        let before = self.applied.replace(now);
        if now.share != before.share {
            self.state.set_share(now.share);
        }
        if now.max_conns != before.max_conns {
            self.state.set_max_conns(now.max_conns);
        }
        if now.down != before.down {
            self.state.set_down_by(Authority::Agent, now.down);
        }
        if now.draining != before.draining {
            self.state.set_draining(now.draining);
        }
        (before, now)
    }
}

/// The reports of one source about one server.
pub struct Feed {
    server: Rc<Reported>,
    /// Which of the upstream's sources.
    source: usize,
    max_age: Nanos,
    log: Rc<ErrorWriter>,
    heard: Cell<Nanos>,
    /// A report that is not too old is in effect.
    fresh: Cell<bool>,
    /// The last problem written to the log; "" for none.
    trouble: RefCell<String>,
}

impl Feed {
    /// A source's view of a server.
    pub fn new(server: &Rc<Reported>, source: usize, report: &LoadReport, log: &Rc<ErrorWriter>) -> Feed {
        let mut said = server.said.borrow_mut();
        let sources = said.sources.len().max(source + 1);
        said.sources.resize(sources, Source::default());
        drop(said);
        Feed {
            server: Rc::clone(server),
            source,
            max_age: clock::nanos(report.max_age()),
            log: Rc::clone(log),
            heard: Cell::new(clock::now()),
            // The report of an earlier configuration's source is valid as long as if this source had just sent it.
            fresh: Cell::new(server.applied.get() != NORMAL),
            trouble: RefCell::default(),
        }
    }

    /// Whether a line that names a server means this one.
    pub fn is_named(&self, name: &[u8]) -> bool {
        self.server.name.as_bytes() == name || self.server.address.as_bytes() == name
    }

    /// The source reports the load; 1.0 is a busy server.
    pub fn load(&self, now: Nanos, load: f64) {
        if !load.is_finite() || load < 0.0 {
            return self.trouble(&format!("invalid load \"{load}\""));
        }
        self.hears(now);
        self.trouble.borrow_mut().clear();
        self.server.state.report_load(now, load);
        self.takes(load);
    }

    /// The load sets the server's share, unless the algorithm reads it; a share reported before ends in any case.
    fn takes(&self, load: f64) {
        let share = (!self.server.reads_load).then(|| free_capacity(load));
        self.server.change(|said| said.sources[self.source].share = share);
    }

    /// The source is an agent and sends this.
    pub fn says(&self, now: Nanos, statement: &Statement<'_>) {
        match statement.unknown {
            Some(word) => self.trouble(&format!("unknown word \"{}\"", word.escape_ascii())),
            None => self.trouble.borrow_mut().clear(),
        }
        if statement.is_empty() {
            return;
        }
        self.hears(now);
        let server = &self.server;
        let share = statement.weight.map(|weight| match weight {
            Weight::Percent(percent) => percent,
            Weight::Units(units) => units.saturating_mul(100).checked_div(server.weight).unwrap_or(0),
        });
        if let Some(share) = share {
            // For an algorithm that uses loads, the missing part is the load; 0 still means no new requests.
            server.state.report_load(now, 1.0 - f64::from(share.min(100)) / 100.0);
        }
        let (before, after) = server.change(|said| {
            if let Some(share) = share {
                said.sources[self.source].share = (!server.reads_load || share == 0).then_some(share);
            }
            if statement.max_conns.is_some() {
                said.sources[self.source].max_conns = statement.max_conns;
            }
            said.wish = statement.wish.or(said.wish);
            said.up = statement.up.or(said.up);
        });
        if after.down != before.down {
            let state = if after.down { "down" } else { "up" };
            let colon = if statement.description.is_empty() { "" } else { ": " };
            let why = statement.description.escape_ascii();
            note(&self.log, Level::Warn, server, format_args!("the server is {state}{colon}{why}"));
        }
        if after.draining != before.draining {
            let state = if after.draining { "draining" } else { "not draining any more" };
            note(&self.log, Level::Warn, server, format_args!("the server is {state}"));
        }
    }

    fn hears(&self, now: Nanos) {
        self.heard.set(now);
        if !self.fresh.replace(true) {
            note(&self.log, Level::Info, &self.server, format_args!("heard"));
        }
    }

    /// The source cannot be asked, or its answer is invalid; logged once until it changes.
    pub fn trouble(&self, trouble: &str) {
        let mut known = self.trouble.borrow_mut();
        if *known != trouble {
            note(&self.log, Level::Warn, &self.server, format_args!("{trouble}"));
            trouble.clone_into(&mut known);
        }
    }

    /// Resets what is too old.
    pub fn check(&self, now: Nanos) {
        if self.fresh.get() && now.saturating_sub(self.heard.get()) > self.max_age {
            self.fresh.set(false);
            self.server.state.clear_report();
            self.server.change(|said| said.sources[self.source] = Source::default());
            let text = "no load report for too long, using the configured weight again";
            note(&self.log, Level::Warn, &self.server, format_args!("{text}"));
        }
    }

    /// The same for loads that workers write into the state.
    pub fn follow_cell(&self, now: Nanos) {
        if let Some(load) = self.server.state.reported_load(now, self.max_age) {
            self.hears(now);
            self.takes(load);
        } else {
            // The state's report is too old already.
            self.heard.set(0);
            self.check(now);
        }
    }
}

impl Drop for Feed {
    /// The task that asks has failed: its reports must not stay in effect forever.
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.server.forget();
            note(&self.log, Level::Alert, &self.server, format_args!("failed, no more reports until the next reload"));
        }
    }
}

/// The share of its weight, in percent, that a server with this load takes. A busy server still takes a little, or its
/// recovery would not be known from its responses.
fn free_capacity(load: f64) -> u32 {
    ((1.0 - load.clamp(0.0, 1.0)) * 100.0).round().max(1.0) as u32
}

#[cfg(test)]
mod tests {
    use balanza_config::{Bundle, Options, load};

    use super::super::agent::parse;
    use super::*;
    use crate::log::LogFiles;

    const SECOND: Nanos = 1_000_000_000;

    /// An upstream with these directives and one server of weight 4.
    fn upstream(directives: &str) -> Arc<Upstream> {
        let mut files = Bundle::default();
        let text = format!(
            "events {{ }} http {{ upstream u {{ {directives} server 10.0.0.1:80 weight=4; server 10.0.0.2; }} }}"
        );
        files.add_file("/n.conf", text);
        let (config, problems) = load(&files, &Options::new("/", "/n.conf"));
        let upstreams = config.unwrap_or_else(|| panic!("{problems:?}")).http.upstreams.clone();
        upstreams[0].clone()
    }

    struct Bench {
        state: Arc<ServerState>,
        server: Rc<Reported>,
        feeds: Vec<Feed>,
    }

    fn bench(directives: &str, before: &[Rc<Reported>], state: Arc<ServerState>) -> Bench {
        let upstream = upstream(directives);
        let reads_load = upstream.balance.spec.entry().host == balanza_balancing::registry::Host::Reports;
        let server = Reported::new(&upstream, reads_load, &upstream.servers[0], &state, before);
        let log = Rc::new(ErrorWriter::new(&[], &LogFiles::default()));
        let feed = |(source, report)| Feed::new(&server, source, report, &log);
        let feeds = upstream.reports.iter().enumerate().map(feed).collect();
        Bench { state, server, feeds }
    }

    const TWO: &str = "load_report agent port=1 interval=1s stale=3; load_report snmp interval=1s stale=3;";

    #[test]
    fn the_most_careful_source_decides() {
        let Bench { state, feeds, .. } = bench(TWO, &[], Arc::default());
        let now = clock::now();
        feeds[0].says(now, &parse(b"75%"));
        assert_eq!(state.share(), 75);
        feeds[1].load(now, 0.6);
        assert_eq!(state.share(), 40);
        feeds[0].says(now, &parse(b"weight:1"));
        assert_eq!(state.share(), 25);
        feeds[0].says(now, &parse(b"100%"));
        assert_eq!(state.share(), 40);
        feeds[1].load(now, 3.0);
        assert_eq!(state.share(), 1, "a busy server still gets a little");
        // Only the source that is silent is forgotten.
        feeds[0].says(now + 3 * SECOND, &parse(b"50% maxconn:9"));
        feeds.iter().for_each(|feed| feed.check(now + 3 * SECOND + 1));
        assert_eq!((state.share(), state.max_conns_override()), (50, Some(9)));
        feeds.iter().for_each(|feed| feed.check(now + 6 * SECOND + 1));
        assert_eq!(state.share(), 100);
    }

    #[test]
    fn states_hold_until_the_agent_ends_them() {
        let Bench { state, feeds, .. } = bench(TWO, &[], Arc::default());
        let now = clock::now();
        let says = |line: &[u8]| {
            feeds[0].says(now, &parse(line));
            (state.is_down(), state.is_draining(), state.max_conns_override())
        };
        assert_eq!(says(b"down #broken"), (true, false, None));
        assert_eq!(says(b"maxconn:7"), (true, false, Some(7)));
        assert_eq!(says(b"drain"), (true, true, Some(7)));
        // Up for the one, still drained by the other.
        assert_eq!(says(b"up"), (false, true, Some(7)));
        assert_eq!(says(b"maint"), (true, false, Some(7)));
        assert_eq!(says(b"up"), (true, false, Some(7)));
        assert_eq!(says(b"nonsense"), (true, false, Some(7)));
        assert_eq!(says(b"ready maxconn:0"), (false, false, Some(0)));
        says(b"maint");
        feeds[0].check(now + 60 * SECOND);
        assert_eq!((state.is_down(), state.max_conns_override()), (true, None));
    }

    #[test]
    fn a_new_configuration_goes_on_from_the_old_one() {
        let old = bench(TWO, &[], Arc::default());
        let now = clock::now();
        old.feeds[0].says(now, &parse(b"drain 30% maxconn:5"));
        let new = bench(TWO, &[Rc::clone(&old.server)], Arc::clone(&old.state));
        assert!(new.server.is(&old.server));
        new.feeds[0].says(now, &parse(b"up"));
        assert_eq!((new.state.share(), new.state.is_draining()), (30, true));
        // A source that is silent from the beginning is forgotten as well.
        new.feeds.iter().for_each(|feed| feed.check(clock::now() + 4 * SECOND));
        assert_eq!((new.state.share(), new.state.is_draining(), new.state.max_conns_override()), (100, true, None));
        new.feeds[0].says(now, &parse(b"ready 60%"));
        assert_eq!((new.state.share(), new.state.is_draining()), (60, false));
        new.feeds[0].says(now, &parse(b"down 60%"));
        new.server.forget();
        assert_eq!((new.state.share(), new.state.is_down()), (100, false));
    }

    #[test]
    fn a_load_ends_a_share() {
        let program = "balance least_load; load_report program /bin/cat interval=1s;";
        let Bench { state, feeds, .. } = bench(program, &[], Arc::default());
        let now = clock::now();
        feeds[0].says(now, &parse(b"0%"));
        assert_eq!(state.share(), 0, "nothing new");
        feeds[0].load(now, 0.3);
        assert_eq!((state.share(), state.reported_load(now, SECOND)), (100, Some(f64::from(0.3f32))));
        // A reload to an algorithm that reads loads.
        let old = bench(TWO, &[], Arc::default());
        old.feeds[1].load(now, 0.6);
        assert_eq!(old.state.share(), 40);
        let new = bench(&format!("balance least_load; {TWO}"), &[Rc::clone(&old.server)], Arc::clone(&old.state));
        new.feeds[1].load(now, 0.6);
        assert_eq!(new.state.share(), 100);
    }

    #[test]
    fn loads_in_responses_come_and_go() {
        let Bench { state, feeds, .. } = bench("load_report header X-Load stale_after=3s;", &[], Arc::default());
        let now = clock::now();
        feeds[0].follow_cell(now);
        assert_eq!(state.share(), 100);
        state.report_load(now, 0.7);
        feeds[0].follow_cell(now + SECOND);
        assert_eq!(state.share(), 30);
        feeds[0].follow_cell(now + 5 * SECOND);
        assert_eq!(state.share(), 100);
    }

    #[test]
    fn nothing_holds_when_its_source_breaks_down() {
        let Bench { state, mut feeds, server } = bench(TWO, &[], Arc::default());
        feeds[0].says(clock::now(), &parse(b"drain 30%"));
        let feed = feeds.remove(0);
        let broken = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
            let _feed = feed;
            std::panic::resume_unwind(Box::new(()));
        }));
        assert!(broken.is_err());
        assert_eq!((state.share(), state.is_draining()), (100, false));
        drop(server);
    }

    #[test]
    fn free_capacities() {
        let shares = [0.0, 0.254, 0.5, 0.999, 1.0, 7.0].map(free_capacity);
        assert_eq!(shares, [100, 75, 50, 1, 1, 1]);
    }
}
