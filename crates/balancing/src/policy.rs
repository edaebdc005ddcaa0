//! What an algorithm is to the driver.

use std::sync::Arc;

use crate::Nanos;
use crate::driver::{Outcome, Report, Start};
use crate::fleet::Level;
use crate::registry::Spec;
use crate::rng::Rng;
use crate::tried::Tried;

/// Builds the plan of one level of servers.
pub(crate) type Build = fn(&Spec, &Arc<Level>) -> Arc<dyn Plan>;

/// The tables of one algorithm for one level, shared by the workers.
pub(crate) trait Plan: Send + Sync {
    /// One worker's instance.
    fn policy(self: Arc<Self>, start: Start, rng: &mut Rng) -> Box<dyn Policy>;
}

/// One worker's instance of an algorithm. Servers are indices into [`Level::slots`].
pub(crate) trait Policy: Send {
    /// Chooses a server for which [`Context::open`] is true; `None` only if there is none.
    fn pick(&mut self, cx: &mut Context<'_>) -> Option<usize>;

    /// The driver has taken a slot of the server chosen.
    fn on_dispatch(&mut self, _now: Nanos, _level: &Level, _index: usize) {}

    /// The header of a response has come; called by drivers that tell.
    fn on_header(&mut self, _now: Nanos, _index: usize, _time: Nanos) {}

    /// A request is over, its slot released and its cell updated.
    fn on_complete(&mut self, _now: Nanos, _level: &Level, _index: usize, _report: &Report) {}

    /// Whether it wants [`Policy::on_header`].
    fn wants_header(&self) -> bool {
        false
    }
}

/// What a pick may read.
pub(crate) struct Context<'a> {
    pub now: Nanos,
    pub level: &'a Level,
    pub key: &'a [u8],
    pub tried: &'a mut Tried,
    pub rng: &'a mut Rng,
}

impl Context<'_> {
    /// Whether the server takes this request: eligible, and not tried by it.
    #[inline]
    pub fn open(&self, index: usize) -> bool {
        !self.tried.contains(self.level.slots[index].member) && self.level.accepts(index, self.now)
    }

    /// The first open server from a random place on, for algorithms whose own walk came to its limit.
    pub fn any(&mut self) -> Option<usize> {
        let n = self.level.len();
        let start = self.rng.below(n as u64) as usize;
        (start..n).chain(0..start).find(|i| self.open(*i))
    }
}

impl Report {
    pub(crate) fn failed(&self) -> bool {
        self.outcome == Outcome::Failure
    }
}
