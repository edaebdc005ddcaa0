//! What is reported of one server, from all its sources together.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use balanza_balancing::Cell as ServerCell;
use balanza_balancing::registry::Host;
use balanza_config::model::{Level, LoadReport, Upstream, UpstreamServer};

use super::agent::{Statement, Weight, Wish};
use super::note;
use crate::clock::{self, Nanos};
use crate::log::error::ErrorWriter;

/// A server of which something may be reported.
pub struct Reported {
    /// The upstream's name, for messages.
    pub upstream: String,
    /// The server as the configuration writes it.
    pub name: String,
    /// Its address as text.
    pub address: String,
    cell: Arc<ServerCell>,
    /// Configured.
    weight: u32,
    /// The algorithm goes by the reported load, so that a load is no share.
    reads_load: bool,
    said: RefCell<Said>,
    applied: Cell<Applied>,
}

/// What holds.
#[derive(Default)]
struct Said {
    /// By source: percent of the weight.
    shares: Vec<Option<u32>>,
    max_conns: Option<u32>,
    wish: Option<Wish>,
    up: Option<bool>,
}

/// What the cell was told.
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
            share: self.shares.iter().flatten().copied().min().unwrap_or(NORMAL.share),
            max_conns: self.max_conns,
            down: self.wish == Some(Wish::Maint) || self.up == Some(false),
            draining: self.wish == Some(Wish::Drain),
        }
    }
}

impl Reported {
    /// A server of an upstream; what was said of it before this configuration holds on.
    pub fn new(
        upstream: &Upstream,
        server: &UpstreamServer,
        cell: &Arc<ServerCell>,
        before: &[Rc<Reported>],
    ) -> Rc<Reported> {
        let known = before.iter().find(|known| Arc::ptr_eq(&known.cell, cell));
        let said = known.map_or_else(Said::default, |known| {
            let known = known.said.borrow();
            Said { shares: Vec::new(), max_conns: known.max_conns, wish: known.wish, up: known.up }
        });
        Rc::new(Reported {
            upstream: upstream.name.clone(),
            name: server.name.clone(),
            address: super::show(&server.address),
            cell: Arc::clone(cell),
            weight: server.weight,
            reads_load: upstream.balance.spec.entry().host == Host::Reports,
            said: RefCell::new(said),
            applied: Cell::new(known.map_or(NORMAL, |known| known.applied.get())),
        })
    }

    /// Whether the two are about the same server.
    pub fn is(&self, other: &Reported) -> bool {
        Arc::ptr_eq(&self.cell, &other.cell)
    }

    /// Undoes everything: nobody reports of this server any more.
    pub fn forget(&self) {
        self.change(|said| *said = Said::default());
        self.cell.clear_report();
    }

    /// Changes what holds, and the cell where it differs; returns what it was told before and is told now.
    fn change(&self, change: impl FnOnce(&mut Said)) -> (Applied, Applied) {
        let mut said = self.said.borrow_mut();
        change(&mut said);
        let now = said.come_to();
        let before = self.applied.replace(now);
        if now.share != before.share {
            self.cell.set_share(now.share);
        }
        if now.max_conns != before.max_conns {
            self.cell.set_max_conns(now.max_conns);
        }
        if now.down != before.down {
            self.cell.set_down(now.down);
        }
        if now.draining != before.draining {
            self.cell.set_draining(now.draining);
        }
        (before, now)
    }
}

/// What one source says of one server.
pub struct Feed {
    server: Rc<Reported>,
    /// Which of the upstream's sources.
    source: usize,
    max_age: Nanos,
    log: Rc<ErrorWriter>,
    heard: Cell<Nanos>,
    /// Something holds that was said in time.
    fresh: Cell<bool>,
    /// The last trouble written to the log; "" for none.
    trouble: RefCell<String>,
}

impl Feed {
    /// A source's view of a server.
    pub fn new(server: &Rc<Reported>, source: usize, report: &LoadReport, log: &Rc<ErrorWriter>) -> Feed {
        let mut said = server.said.borrow_mut();
        let sources = said.shares.len().max(source + 1);
        said.shares.resize(sources, None);
        drop(said);
        Feed {
            server: Rc::clone(server),
            source,
            max_age: clock::nanos(report.max_age()),
            log: Rc::clone(log),
            heard: Cell::new(clock::now()),
            // What an earlier configuration's source said holds as long as if this one had just said it.
            fresh: Cell::new(server.applied.get() != NORMAL),
            trouble: RefCell::default(),
        }
    }

    /// Whether a line that names a server means this one.
    pub fn is_named(&self, name: &[u8]) -> bool {
        self.server.name.as_bytes() == name || self.server.address.as_bytes() == name
    }

    /// The source says what the load is; 1.0 is a busy server.
    pub fn load(&self, now: Nanos, load: f64) {
        if !load.is_finite() || load < 0.0 {
            return self.trouble(&format!("\"{load}\" is no load"));
        }
        self.hears(now);
        self.trouble.borrow_mut().clear();
        self.server.cell.report_load(now, load);
        if !self.server.reads_load {
            self.server.change(|said| said.shares[self.source] = Some(free_capacity(load)));
        }
    }

    /// The source is an agent and says this.
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
            // To an algorithm that goes by loads, the part that is missing is the load; 0 still means nothing new.
            server.cell.report_load(now, 1.0 - f64::from(share.min(100)) / 100.0);
        }
        let (before, after) = server.change(|said| {
            if let Some(share) = share {
                said.shares[self.source] = (!server.reads_load || share == 0).then_some(share);
            }
            said.max_conns = statement.max_conns.or(said.max_conns);
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

    /// The source cannot be asked, or says nothing that could be understood; written once until it changes.
    pub fn trouble(&self, trouble: &str) {
        let mut known = self.trouble.borrow_mut();
        if *known != trouble {
            note(&self.log, Level::Warn, &self.server, format_args!("{trouble}"));
            trouble.clone_into(&mut known);
        }
    }

    /// Forgets what is too old to hold.
    pub fn check(&self, now: Nanos) {
        if self.fresh.get() && now.saturating_sub(self.heard.get()) > self.max_age {
            self.fresh.set(false);
            self.server.cell.clear_report();
            self.server.change(|said| {
                said.shares[self.source] = None;
                said.max_conns = None;
            });
            let text = "nothing heard for too long, back to the configured weight";
            note(&self.log, Level::Warn, &self.server, format_args!("{text}"));
        }
    }

    /// The same for loads that workers write into the cell.
    pub fn follow_cell(&self, now: Nanos) {
        if let Some(load) = self.server.cell.reported_load(now, self.max_age) {
            self.hears(now);
            if !self.server.reads_load {
                self.server.change(|said| said.shares[self.source] = Some(free_capacity(load)));
            }
        } else {
            // What the cell has is too old already.
            self.heard.set(0);
            self.check(now);
        }
    }
}

/// The share of its weight, in percent, that a server with this load takes. A busy server still takes a little, or
/// nobody would learn of its recovery from its answers.
fn free_capacity(load: f64) -> u32 {
    ((1.0 - load.clamp(0.0, 1.0)) * 100.0).round().max(1.0) as u32
}
