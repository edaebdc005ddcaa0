//! What is known of the servers: the model that is simulated.

use serde::Serialize;

use crate::queue::{Order, UNLIMITED};

/// A server as its answers show it.
#[derive(Clone, Debug, Serialize)]
pub struct Server {
    /// Its address.
    pub name: String,
    /// Attempts in the log.
    pub attempts: u64,
    /// The part of them that failed.
    pub failed: f64,
    /// Work a second of one unit, relative to the mean of the servers.
    pub speed: f64,
    /// Half the width of the 95 % interval of the speed, relative to it.
    pub speed_error: f64,
    /// Requests served at a time; `None` if the server was never busy enough to show it.
    pub parallel: Option<u32>,
    /// Other numbers that the log does not exclude: the least and the greatest.
    pub parallel_range: Option<(u32, u32)>,
    /// The most requests that were there at a time.
    pub in_flight_max: u32,
    /// Requests a second that it can do; `None` if that is not known.
    pub capacity: Option<f64>,
    /// Requests a second that it got in its busiest spans.
    pub peak: f64,
}

impl Server {
    /// What the simulator is told.
    pub fn concurrency(&self) -> u32 {
        self.parallel.unwrap_or(UNLIMITED)
    }
}

/// Work of the requests of one class in one span of the log, in microseconds at speed 1.
#[derive(Clone, Debug, Default)]
pub struct Pool(pub Vec<u32>);

/// The servers, the requests' work, and what is between.
#[derive(Clone, Debug)]
pub struct Farm {
    /// In the order of the log's.
    pub servers: Vec<Server>,
    /// The order of service of all.
    pub order: Order,
    /// By class and span: class * spans + span; then one for each class; then one for all.
    pub pools: Vec<Pool>,
    /// How many classes.
    pub classes: usize,
    /// Into how many spans of equal time the log is divided.
    pub spans: usize,
    /// Microseconds since 1970 at which the spans begin, and how long each is.
    pub begin: u64,
    /// Microseconds of a span.
    pub span: u64,
    /// Mean work in microseconds.
    pub mean_work: f64,
    /// Microseconds of the way to a server, and the same back.
    pub delay: f64,
    /// Mean work of a request in each span, relative to that of all: time of day.
    pub by_time: Vec<f64>,
}

/// Works that a pool needs to be drawn from.
const POOL_MIN: usize = 100;

impl Farm {
    /// The pool for a request.
    pub fn pool(&self, class: usize, at: u64) -> &Pool {
        let span = ((at.saturating_sub(self.begin)) / self.span.max(1)).min(self.spans as u64 - 1) as usize;
        let class = class.min(self.classes - 1);
        let all = self.classes * self.spans;
        let choice = [class * self.spans + span, all + class, all + self.classes];
        let fits = |index: &&usize| self.pools[**index].0.len() >= POOL_MIN;
        &self.pools[*choice.iter().find(fits).unwrap_or(&choice[2])]
    }

    /// Requests a second that all servers can do together; `None` if it is not known of one of them.
    pub fn capacity(&self) -> Option<f64> {
        self.servers.iter().map(|server| server.capacity).sum()
    }
}

/// SplitMix64: the draws of works, the same for the same seed.
#[derive(Clone, Debug)]
pub struct Draws(pub u64);

impl Draws {
    /// The next one, of all numbers.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below `bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.number()) * bound as u128) >> 64) as usize
    }

    /// In [0, 1).
    pub fn unit(&mut self) -> f64 {
        (self.number() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// One of a pool; 0 if it is empty.
    pub fn from(&mut self, pool: &Pool) -> f64 {
        match pool.0.len() {
            0 => 0.0,
            count => f64::from(pool.0[self.below(count)]),
        }
    }
}
