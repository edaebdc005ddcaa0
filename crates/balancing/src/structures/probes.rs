//! Prequal's pool of probes, and the quantile that separates hot probes from cold ones.

use crate::Nanos;

/// What a server said.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Probe {
    pub server: u32,
    /// Requests in flight for a unit of weight, with those that were sent since on the strength of this probe.
    pub rif: f64,
    /// In nanoseconds.
    pub latency: f64,
    pub at: Nanos,
    /// How often it may be used.
    pub uses: u32,
}

impl Probe {
    /// Its order in a choice: the cold by latency, of equals by RIF; behind them the hot by RIF.
    fn rank(&self, hot: f64) -> (bool, f64, f64) {
        if self.rif > hot { (true, self.rif, self.latency) } else { (false, self.latency, self.rif) }
    }
}

/// A few probes, the oldest first, each of another server.
pub(crate) struct Pool {
    probes: Vec<Probe>,
    size: usize,
}

impl Pool {
    /// A pool of up to `size` probes.
    pub fn new(size: usize) -> Pool {
        Pool { probes: Vec::with_capacity(size), size }
    }

    pub fn len(&self) -> usize {
        self.probes.len()
    }

    fn place(&self, server: u32) -> Option<usize> {
        self.probes.iter().position(|probe| probe.server == server)
    }

    /// The probe of a server.
    pub fn of(&self, server: u32) -> Option<&Probe> {
        self.place(server).map(|k| &self.probes[k])
    }

    /// The median latency of the probes, the lesser of two; `None` without any.
    pub fn median_latency(&self) -> Option<f64> {
        let lesser = |a: &&Probe| self.probes.iter().filter(|b| b.latency < a.latency).count();
        // Sorting would take a copy, and this is asked seldom.
        let middle = self.probes.len().checked_sub(1)? / 2;
        self.probes.iter().filter(|a| lesser(a) <= middle).map(|a| a.latency).max_by(f64::total_cmp)
    }

    /// Adds a probe instead of the server's older one, or of the oldest of all if there is no room.
    pub fn add(&mut self, probe: Probe) {
        if let Some(older) = self.place(probe.server) {
            self.probes.remove(older);
        } else if self.probes.len() == self.size {
            self.probes.remove(0);
        }
        self.probes.push(probe);
    }

    /// Removes the probe of a server.
    pub fn remove(&mut self, server: u32) {
        if let Some(k) = self.place(server) {
            self.probes.remove(k);
        }
    }

    /// Removes those that are older than `age`.
    pub fn expire(&mut self, now: Nanos, age: Nanos) {
        // Probes come back in whatever order, but the first is about the oldest.
        while self.probes.first().is_some_and(|probe| now.saturating_sub(probe.at) > age) {
            self.probes.remove(0);
        }
    }

    pub fn remove_oldest(&mut self) {
        if !self.probes.is_empty() {
            self.probes.remove(0);
        }
    }

    /// Removes the one that would be chosen last: of the hot the greatest RIF, or if all are cold the greatest latency.
    /// Of equals the older.
    pub fn remove_worst(&mut self, hot: f64) {
        let mut worst = 0;
        for k in 1..self.probes.len() {
            if self.probes[k].rank(hot) > self.probes[worst].rank(hot) {
                worst = k;
            }
        }
        if !self.probes.is_empty() {
            self.probes.remove(worst);
        }
    }

    /// The server to choose, of those that `may` be: of the cold the least latency, or if all are hot the least RIF. Of
    /// equals the older.
    pub fn best(&self, hot: f64, may: impl Fn(u32) -> bool) -> Option<u32> {
        let mut best: Option<&Probe> = None;
        for probe in &self.probes {
            if best.is_none_or(|best| probe.rank(hot) < best.rank(hot)) && may(probe.server) {
                best = Some(probe);
            }
        }
        best.map(|probe| probe.server)
    }

    /// A server's probe is used: the server has `more` in flight for a unit of weight, and the probe a use less.
    pub fn take(&mut self, server: u32, more: f64) {
        let Some(k) = self.place(server) else { return };
        let probe = &mut self.probes[k];
        probe.rif += more;
        probe.uses = probe.uses.saturating_sub(1);
        if probe.uses == 0 {
            self.probes.remove(k);
        }
    }
}

const SEEN: usize = 64;
/// When as many have been seen, the quantile is worked out again only after this many.
const EVERY: usize = 64;

/// A quantile of the last 64 values.
pub(crate) struct Quantile {
    percent: usize,
    seen: [f64; SEEN],
    count: usize,
    /// The count at which it is worked out next.
    due: usize,
    value: f64,
}

impl Quantile {
    pub fn new(percent: usize) -> Quantile {
        Quantile { percent, seen: [0.0; SEEN], count: 0, due: 1, value: f64::INFINITY }
    }

    /// The least value that at least so many percent do not exceed; infinity before the first.
    #[inline]
    pub fn get(&self) -> f64 {
        self.value
    }

    #[inline]
    pub fn add(&mut self, value: f64) {
        self.seen[self.count % SEEN] = value;
        self.count += 1;
        if self.count == self.due {
            self.work_out();
            self.due += if self.count < SEEN { 1 } else { EVERY - self.count % EVERY };
        }
    }

    #[cold]
    fn work_out(&mut self) {
        let mut seen = self.seen;
        let count = self.count.min(SEEN);
        let rank = (count * self.percent).div_ceil(100).max(1) - 1;
        self.value = *seen[..count].select_nth_unstable_by(rank, f64::total_cmp).1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probe(server: u32, rif: f64, latency: f64) -> Probe {
        Probe { server, rif, latency, at: Nanos::from(server), uses: 2 }
    }

    fn servers(pool: &Pool) -> Vec<u32> {
        pool.probes.iter().map(|probe| probe.server).collect()
    }

    #[test]
    fn cold_ones_go_by_latency_and_hot_ones_by_rif() {
        let mut pool = Pool::new(4);
        for new in [probe(1, 5.0, 1.0), probe(2, 2.0, 9.0), probe(3, 3.0, 4.0), probe(4, 9.0, 2.0)] {
            pool.add(new);
        }
        let chosen = |barred: &[u32], hot| pool.best(hot, |server| !barred.contains(&server));
        assert_eq!(chosen(&[], 4.0), Some(3), "of 2 and 3 the quicker");
        assert_eq!(chosen(&[3], 4.0), Some(2));
        assert_eq!(chosen(&[2, 3], 4.0), Some(1), "of the hot the least RIF");
        assert_eq!(chosen(&[], 1.0), Some(2));
        assert_eq!(chosen(&[], 9.0), Some(1), "all cold");
        assert_eq!(chosen(&[1, 2, 3, 4], 4.0), None);
        pool.remove_worst(4.0);
        assert_eq!(servers(&pool), [1, 2, 3], "the hottest");
        pool.remove_worst(9.0);
        assert_eq!(servers(&pool), [1, 3], "the slowest");
    }

    #[test]
    fn of_equals_the_emptier_and_then_the_older() {
        let mut pool = Pool::new(4);
        [probe(1, 2.0, 5.0), probe(2, 1.0, 5.0), probe(3, 1.0, 5.0)].into_iter().for_each(|new| pool.add(new));
        assert_eq!(pool.best(9.0, |_| true), Some(2));
        pool.remove_worst(9.0);
        assert_eq!(servers(&pool), [2, 3]);
    }

    #[test]
    fn the_median_latency() {
        let mut pool = Pool::new(8);
        let mut medians = vec![pool.median_latency()];
        for (server, latency) in [7.0, 3.0, 9.0, 3.0, 3.0].into_iter().enumerate() {
            pool.add(probe(server as u32, 0.0, latency));
            medians.push(pool.median_latency());
        }
        assert_eq!(medians, [None, Some(7.0), Some(3.0), Some(7.0), Some(3.0), Some(3.0)]);
    }

    #[test]
    fn probes_come_and_go() {
        let mut pool = Pool::new(3);
        (1..=4).for_each(|server| pool.add(probe(server, 0.0, 0.0)));
        assert_eq!(servers(&pool), [2, 3, 4], "the oldest made room");
        pool.add(Probe { at: 9, ..probe(3, 7.0, 0.0) });
        assert_eq!((servers(&pool), pool.of(3).unwrap().rif), (vec![2, 4, 3], 7.0));
        pool.take(2, 0.5);
        assert_eq!(*pool.of(2).unwrap(), Probe { rif: 0.5, uses: 1, ..probe(2, 0.0, 0.0) });
        pool.take(2, 0.5);
        assert_eq!(servers(&pool), [4, 3], "used up");
        pool.expire(14, 10);
        assert_eq!(servers(&pool), [4, 3]);
        pool.expire(15, 10);
        assert_eq!(servers(&pool), [3]);
        pool.remove_oldest();
        pool.remove_oldest();
        pool.remove_worst(0.0);
        assert_eq!((servers(&pool), pool.len()), (vec![], 0));
    }

    #[test]
    fn quantiles() {
        let mut hot = Quantile::new(84);
        assert_eq!(hot.get(), f64::INFINITY);
        (1..=10).for_each(|value| hot.add(f64::from(value)));
        assert_eq!(hot.get(), 9.0, "nine tenths do not exceed it, eight tenths are too few");
        let mut median = Quantile::new(50);
        (0..1_000).for_each(|value| median.add(f64::from(value)));
        assert_eq!(median.get(), 927.0, "of 896 to 959: up to 63 values late");
        let (mut least, mut most) = (Quantile::new(0), Quantile::new(100));
        for value in [4.0, 2.0, 8.0] {
            least.add(value);
            most.add(value);
        }
        assert_eq!((least.get(), most.get()), (2.0, 8.0));
    }
}
