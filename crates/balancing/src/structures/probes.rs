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

impl Probe {
    /// Where it stands: the cold by latency, behind them the hot by RIF. The bits of numbers that are not negative are in
    /// their order.
    #[inline]
    fn rank(&self, hot: f64) -> u64 {
        let (hotter, colder) = (1 << 63 | self.rif.to_bits(), self.latency.to_bits());
        std::hint::select_unpredictable(self.rif > hot, hotter, colder)
    }
}

/// The most probes of a pool: what a set of bits holds.
const SIZE_MAX: usize = 64;
/// The place of a server that is in none.
const NOWHERE: u8 = u8::MAX;

/// A few probes, each of another server. They stay in their places; a number tells which came before which.
pub(crate) struct Pool {
    probes: [Probe; SIZE_MAX],
    /// The places that there are.
    places: u64,
    /// The number of each place's probe.
    numbers: [u64; SIZE_MAX],
    /// The number of the next.
    next: u64,
    /// The place of each server; if there is one for every server, it is that of its number, and this is empty.
    of: Box<[u8]>,
    /// Places in use.
    used: u64,
    /// No probe is from before this.
    since: Nanos,
}

impl Pool {
    /// A pool of up to `size` probes, at most 64, of so many servers.
    pub fn new(size: usize, servers: usize) -> Pool {
        Pool {
            probes: [Probe::default(); SIZE_MAX],
            places: u64::MAX >> (SIZE_MAX - size.clamp(1, SIZE_MAX)),
            numbers: [0; SIZE_MAX],
            next: 0,
            of: vec![NOWHERE; if servers <= size { 0 } else { servers }].into(),
            used: 0,
            since: 0,
        }
    }

    /// Whether there are at least two probes. No count: on processors that any x86-64 may be, counting bits takes a dozen
    /// instructions.
    #[inline]
    pub fn has_two(&self) -> bool {
        self.used & self.used.wrapping_sub(1) != 0
    }

    /// The probe in a place that [`Pool::coldest`] named.
    pub fn get(&self, k: usize) -> &Probe {
        &self.probes[k]
    }

    /// The probe of a server.
    pub fn of(&self, server: u32) -> Option<&Probe> {
        self.place(server).map(|k| &self.probes[k])
    }

    /// Whether every server has a place of its own.
    #[inline]
    fn is_roomy(&self) -> bool {
        self.of.is_empty()
    }

    #[inline]
    fn place(&self, server: u32) -> Option<usize> {
        if self.is_roomy() {
            return (self.used >> server & 1 != 0).then_some(server as usize);
        }
        let place = self.of[server as usize];
        (place != NOWHERE).then_some(usize::from(place))
    }

    /// Adds a probe in the place of the server's older one, or of the oldest of all if there is no room.
    #[inline(always)]
    pub fn add(&mut self, probe: Probe) {
        let k = if self.is_roomy() { probe.server as usize } else { self.find_place(probe.server) };
        self.used |= 1 << k;
        // The remainder is the place itself, and spares the check that it is one.
        let k = k % SIZE_MAX;
        self.probes[k] = probe;
        self.numbers[k] = self.next;
        self.next += 1;
    }

    #[inline]
    fn find_place(&mut self, server: u32) -> usize {
        let place = self.of[server as usize];
        // One condition and a selection: whether a server is in the pool is what nobody can predict.
        let is_new = place == NOWHERE;
        if is_new & (self.used == self.places) {
            self.remove_oldest();
        }
        let free = (!self.used).trailing_zeros() as usize;
        let k = std::hint::select_unpredictable(is_new, free, usize::from(place));
        self.of[server as usize] = k as u8;
        k
    }

    #[inline]
    fn remove_at(&mut self, k: usize) {
        if !self.is_roomy() {
            self.of[self.probes[k].server as usize] = NOWHERE;
        }
        self.used &= !(1 << k);
    }

    /// Removes the probe of a server.
    pub fn remove(&mut self, server: u32) {
        if let Some(k) = self.place(server) {
            self.remove_at(k);
        }
    }

    /// Removes those that are older than `age`.
    #[inline]
    pub fn expire(&mut self, now: Nanos, age: Nanos) {
        if now.saturating_sub(self.since) > age {
            self.look_for_expired(now, age);
        }
    }

    #[cold]
    fn look_for_expired(&mut self, now: Nanos, age: Nanos) {
        self.since = now;
        for k in 0..SIZE_MAX {
            let at = self.probes[k].at;
            if self.used >> k & 1 != 0 {
                if now.saturating_sub(at) > age {
                    self.remove_at(k);
                } else {
                    self.since = self.since.min(at);
                }
            }
        }
    }

    #[inline]
    pub fn remove_oldest(&mut self) {
        if let Some(k) = Pool::least(self.used, u64::MAX, |k| self.numbers[k]) {
            self.remove_at(k);
        }
    }

    /// Removes the one that would be chosen last: of the hot the greatest RIF, or if all are cold the greatest latency.
    /// Of equals the older.
    #[inline]
    pub fn remove_worst(&mut self, hot: f64) {
        if let Some(k) = self.least_rank(self.used, |probe| !probe.rank(hot)) {
            self.remove_at(k);
        }
    }

    /// The place of the one to choose, but for those whose bit is in `barred`: of the cold the least latency, or if all are
    /// hot the least RIF. Of equals the older.
    #[inline]
    pub fn coldest(&self, barred: u64, hot: f64) -> Option<usize> {
        self.least_rank(self.used & !barred, |probe| probe.rank(hot))
    }

    /// Which of these places has the least rank, and of equals the older probe.
    #[inline]
    fn least_rank(&self, places: u64, rank: impl Fn(&Probe) -> u64) -> Option<usize> {
        let key = |k: usize| u128::from(rank(&self.probes[k])) << 64 | u128::from(self.numbers[k]);
        Pool::least(places, u128::MAX, key)
    }

    /// Which of these places has the least key; none has `most`. Without branches on the keys, which nobody can predict.
    #[inline]
    fn least<K: Ord + Copy>(mut places: u64, most: K, key: impl Fn(usize) -> K) -> Option<usize> {
        let (mut least, mut at) = (most, SIZE_MAX);
        while places != 0 {
            let k = places.trailing_zeros() as usize;
            places &= places - 1;
            let key = key(k);
            at = std::hint::select_unpredictable(key < least, k, at);
            least = std::hint::select_unpredictable(key < least, key, least);
        }
        (at != SIZE_MAX).then_some(at)
    }

    /// A probe is used: its server has `more` in flight for a unit of weight, and the probe a use less.
    #[inline]
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

    #[inline(always)]
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
        // It rarely changes, and to see that it does not is quick.
        let below = seen[..count].iter().filter(|seen| **seen < self.value).count();
        let upto = seen[..count].iter().filter(|seen| **seen <= self.value).count();
        if (below..upto).contains(&rank) {
            return;
        }
        self.value = *seen[..count].select_nth_unstable_by(rank, f64::total_cmp).1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probe(server: u32, rif: f64, latency: f64) -> Probe {
        Probe { server, rif, latency, at: Nanos::from(server), uses: 2 }
    }

    /// The probes from the oldest to the newest.
    fn in_order(pool: &Pool) -> Vec<Probe> {
        let mut places: Vec<usize> = (0..SIZE_MAX).filter(|k| pool.used >> k & 1 != 0).collect();
        places.sort_by_key(|k| pool.numbers[*k]);
        places.into_iter().map(|k| pool.probes[k]).collect()
    }

    fn servers(pool: &Pool) -> Vec<u32> {
        in_order(pool).iter().map(|probe| probe.server).collect()
    }

    #[test]
    fn cold_ones_go_by_latency_and_hot_ones_by_rif() {
        let mut pool = Pool::new(4, 5);
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
        let mut pool = Pool::new(3, 5);
        (1..=4).for_each(|server| pool.add(probe(server, 0.0, 0.0)));
        assert_eq!(servers(&pool), [2, 3, 4], "the oldest made room");
        pool.add(Probe { at: 9, ..probe(3, 7.0, 0.0) });
        assert_eq!((servers(&pool), pool.of(3).unwrap().rif), (vec![2, 4, 3], 7.0));
        let second = pool.place(2).unwrap();
        pool.take(second, 0.5);
        assert_eq!(*pool.of(2).unwrap(), Probe { rif: 0.5, uses: 1, ..probe(2, 0.0, 0.0) });
        pool.take(second, 0.5);
        assert_eq!(servers(&pool), [4, 3], "used up");
        pool.expire(14, 10);
        assert_eq!(servers(&pool), [4, 3]);
        pool.expire(15, 10);
        assert_eq!(servers(&pool), [3]);
        pool.remove_oldest();
        pool.remove_oldest();
        pool.remove_worst(0.0);
        assert_eq!(servers(&pool), []);
    }

    /// The definition: a list, the oldest first.
    #[derive(Default)]
    struct Plain(Vec<Probe>);

    impl Plain {
        fn rank(probe: &Probe, hot: f64) -> (bool, f64) {
            if probe.rif > hot { (true, probe.rif) } else { (false, probe.latency) }
        }

        fn add(&mut self, size: usize, probe: Probe) {
            self.0.retain(|old| old.server != probe.server);
            if self.0.len() == size {
                self.0.remove(0);
            }
            self.0.push(probe);
        }

        fn coldest(&self, hot: f64) -> Option<u32> {
            let ranks = self.0.iter().map(|probe| (Plain::rank(probe, hot), probe.server));
            ranks.reduce(|best, next| if next.0 < best.0 { next } else { best }).map(|(_, server)| server)
        }

        fn remove_worst(&mut self, hot: f64) {
            let ranks = self.0.iter().map(|probe| Plain::rank(probe, hot)).enumerate();
            if let Some((k, _)) = ranks.reduce(|worst, next| if next.1 > worst.1 { next } else { worst }) {
                self.0.remove(k);
            }
        }

        fn take(&mut self, server: u32) {
            let probe = self.0.iter_mut().find(|probe| probe.server == server).unwrap();
            probe.rif += 0.5;
            probe.uses -= 1;
            self.0.retain(|probe| probe.uses > 0);
        }
    }

    proptest::proptest! {
        #[test]
        fn is_as_defined(size in 1usize..=64, steps in proptest::collection::vec((0u8..7, 0u32..40, 0u8..4, 0u8..4, 1u32..4), 0..300)) {
            let (mut pool, mut plain) = (Pool::new(size, 40), Plain::default());
            for (at, (step, server, rif, latency, uses)) in steps.into_iter().enumerate() {
                let (at, hot) = (at as Nanos, f64::from(rif));
                match step {
                    0..=2 => {
                        let probe = Probe { server, rif: f64::from(rif), latency: f64::from(latency), at, uses };
                        pool.add(probe);
                        plain.add(size, probe);
                    }
                    3 => {
                        let chosen = pool.coldest(0, hot).map(|k| (k, pool.get(k).server));
                        proptest::prop_assert_eq!(chosen.map(|(_, server)| server), plain.coldest(hot));
                        if let Some((k, server)) = chosen {
                            pool.take(k, 0.5);
                            plain.take(server);
                        }
                    }
                    4 => {
                        pool.remove_worst(hot);
                        plain.remove_worst(hot);
                    }
                    5 => {
                        pool.remove(server);
                        plain.0.retain(|probe| probe.server != server);
                    }
                    _ => {
                        pool.expire(at, 30);
                        plain.0.retain(|probe| at.saturating_sub(probe.at) <= 30);
                    }
                }
                let probes = in_order(&pool);
                proptest::prop_assert_eq!(pool.has_two(), probes.len() >= 2);
                proptest::prop_assert_eq!(&probes, &plain.0);
                proptest::prop_assert_eq!(pool.of(server), plain.0.iter().find(|probe| probe.server == server));
            }
        }
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
