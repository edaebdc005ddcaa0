//! Prequal's pool of probes, and the quantile that tells hot ones from cold ones.

use crate::Nanos;

/// What a server said.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Probe {
    pub server: u32,
    /// Requests in flight for a unit of weight, with those that were sent since on the strength of this probe.
    pub rif: f64,
    /// In nanoseconds, for a unit of weight.
    pub latency: f64,
    pub at: Nanos,
    /// How often it may be used.
    pub uses: u32,
}

/// A few probes, each of another server, the oldest first.
pub(crate) struct Pool {
    probes: Box<[Probe]>,
    len: usize,
}

impl Pool {
    /// A pool of up to `size` probes, at most 64.
    pub fn new(size: usize) -> Pool {
        Pool { probes: vec![Probe::default(); size.min(64)].into(), len: 0 }
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn get(&self, k: usize) -> &Probe {
        &self.probes[..self.len][k]
    }

    /// The probe of a server.
    pub fn of(&self, server: u32) -> Option<&Probe> {
        self.probes[..self.len].iter().find(|probe| probe.server == server)
    }

    /// Adds a probe in the place of the server's older one, or of the oldest of all if there is no room.
    #[inline]
    pub fn add(&mut self, probe: Probe) {
        self.remove(probe.server);
        if self.len == self.probes.len() {
            self.remove_oldest();
        }
        self.probes[self.len] = probe;
        self.len += 1;
    }

    #[inline]
    fn remove_at(&mut self, k: usize) {
        // Few follow: a call to move them would cost more.
        for next in k + 1..self.len {
            self.probes[next - 1] = self.probes[next];
        }
        self.len -= 1;
    }

    /// Removes the probe of a server.
    pub fn remove(&mut self, server: u32) {
        if let Some(k) = self.probes[..self.len].iter().position(|probe| probe.server == server) {
            self.remove_at(k);
        }
    }

    /// Removes those that are older than `age`.
    pub fn expire(&mut self, now: Nanos, age: Nanos) {
        while self.len > 0 && now.saturating_sub(self.probes[0].at) > age {
            self.remove_at(0);
        }
    }

    pub fn remove_oldest(&mut self) {
        if self.len > 0 {
            self.remove_at(0);
        }
    }

    /// Removes the one that would be chosen last: of the hot the greatest RIF, or if all are cold the greatest latency.
    pub fn remove_worst(&mut self, hot: f64) {
        let rank = |probe: &Probe| if probe.rif > hot { (true, probe.rif) } else { (false, probe.latency) };
        let ranks = self.probes[..self.len].iter().map(rank).enumerate();
        let worst = ranks.reduce(|worst, next| if next.1 > worst.1 { next } else { worst });
        if let Some((k, _)) = worst {
            self.remove_at(k);
        }
    }

    /// The one to choose, but for those whose bit is in `barred`: of the cold the least latency, or if all are hot the
    /// least RIF.
    #[inline]
    pub fn coldest(&self, barred: u64, hot: f64) -> Option<usize> {
        let rank = |probe: &Probe| if probe.rif > hot { (true, probe.rif) } else { (false, probe.latency) };
        let mut best: Option<(usize, (bool, f64))> = None;
        for (k, probe) in self.probes[..self.len].iter().enumerate() {
            let rank = rank(probe);
            if barred >> k & 1 == 0 && best.is_none_or(|(_, least)| rank < least) {
                best = Some((k, rank));
            }
        }
        best.map(|(k, _)| k)
    }

    /// A probe is used: its server has `more` in flight for a unit of weight, and the probe a use less.
    pub fn take(&mut self, k: usize, more: f64) {
        let probe = &mut self.probes[k];
        probe.rif += more;
        probe.uses = probe.uses.saturating_sub(1);
        if probe.uses == 0 {
            self.remove_at(k);
        }
    }
}

const SEEN: usize = 64;
/// When as many have been seen, the quantile is worked out again only after this many.
const EVERY: usize = 256;

/// A quantile of the last 64 values.
pub(crate) struct Quantile {
    percent: usize,
    seen: [f64; SEEN],
    count: usize,
    value: f64,
}

impl Quantile {
    pub fn new(percent: usize) -> Quantile {
        Quantile { percent, seen: [0.0; SEEN], count: 0, value: f64::INFINITY }
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
        if self.count <= SEEN || self.count.is_multiple_of(EVERY) {
            self.work_out();
        }
    }

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
        (0..pool.len()).map(|k| pool.get(k).server).collect()
    }

    #[test]
    fn cold_ones_go_by_latency_and_hot_ones_by_rif() {
        let mut pool = Pool::new(4);
        for new in [probe(1, 5.0, 1.0), probe(2, 2.0, 9.0), probe(3, 3.0, 4.0), probe(4, 9.0, 2.0)] {
            pool.add(new);
        }
        let chosen = |barred, hot| pool.coldest(barred, hot).map(|k| pool.get(k).server);
        assert_eq!(chosen(0, 4.0), Some(3), "of 2 and 3 the quicker");
        assert_eq!(chosen(0b0100, 4.0), Some(2));
        assert_eq!(chosen(0b0110, 4.0), Some(1), "of the hot the least RIF");
        assert_eq!(chosen(0, 1.0), Some(2));
        assert_eq!(chosen(0, 9.0), Some(1), "all cold");
        assert_eq!(chosen(0b1111, 4.0), None);
        pool.remove_worst(4.0);
        assert_eq!(servers(&pool), [1, 2, 3], "the hottest");
        pool.remove_worst(9.0);
        assert_eq!(servers(&pool), [1, 3], "the slowest");
    }

    #[test]
    fn probes_come_and_go() {
        let mut pool = Pool::new(3);
        (1..=4).for_each(|server| pool.add(probe(server, 0.0, 0.0)));
        assert_eq!(servers(&pool), [2, 3, 4], "the oldest made room");
        pool.add(Probe { at: 9, ..probe(3, 7.0, 0.0) });
        assert_eq!((servers(&pool), pool.of(3).unwrap().rif), (vec![2, 4, 3], 7.0));
        pool.take(0, 0.5);
        assert_eq!(*pool.of(2).unwrap(), Probe { rif: 0.5, uses: 1, ..probe(2, 0.0, 0.0) });
        pool.take(0, 0.5);
        assert_eq!(servers(&pool), [4, 3], "used up");
        pool.expire(14, 10);
        assert_eq!(servers(&pool), [4, 3]);
        pool.expire(15, 10);
        assert_eq!(servers(&pool), [3]);
        pool.remove_oldest();
        pool.remove_oldest();
        pool.remove_worst(0.0);
        assert_eq!(pool.len(), 0);
    }

    #[test]
    fn quantiles() {
        let mut hot = Quantile::new(84);
        assert_eq!(hot.get(), f64::INFINITY);
        (1..=10).for_each(|value| hot.add(f64::from(value)));
        assert_eq!(hot.get(), 9.0, "nine tenths do not exceed it, eight tenths are too few");
        let mut median = Quantile::new(50);
        (0..1_000).for_each(|value| median.add(f64::from(value)));
        assert_eq!(median.get(), 735.0, "of 704 to 767: up to 255 values late");
        let (mut least, mut most) = (Quantile::new(0), Quantile::new(100));
        for value in [4.0, 2.0, 8.0] {
            least.add(value);
            most.add(value);
        }
        assert_eq!((least.get(), most.get()), (2.0, 8.0));
    }
}
