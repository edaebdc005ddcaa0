//! How well a hypothesis of a server fits: whether the work that it gives depends on what was there before.

use crate::queue::{Order, UNLIMITED, Visit, found, work};

/// What one server did in one part of the log.
#[derive(Clone, Debug, Default)]
pub struct Part {
    /// In the order in which they came.
    pub visits: Vec<Visit>,
    /// For each visit its class and its span of the log, or `None` for one that failed.
    pub kinds: Vec<Option<(u16, u16)>>,
    /// Visits at the beginning that came when what was there is not known.
    pub skip: usize,
}

/// Fewest visits of a bin.
const BIN: usize = 40;
/// What a visit costs that a hypothesis makes impossible, beyond one of a thousand.
const IMPOSSIBLE: f64 = 20.0;

/// Scores hypotheses about one server.
pub struct Scorer<'a> {
    parts: &'a [Part],
    /// For each visit that counts: its part, its place there, its bin.
    counted: Vec<(u32, u32, u8)>,
    bins: usize,
    /// Added to works before their logarithm: the resolution of the log's times.
    least: f64,
    /// Work below it is impossible.
    impossible: f64,
    /// Classes times spans.
    spans: usize,
    /// The most that were there when another one came, and that one.
    pub in_flight_max: u32,
}

impl<'a> Scorer<'a> {
    /// A scorer for the parts of one server. `resolution` is that of the log's times, in microseconds.
    pub fn new(parts: &'a [Part], spans: usize, resolution: f64) -> Scorer<'a> {
        let mut all: Vec<(u32, u32, u32)> = Vec::new();
        let mut in_flight_max = 0;
        for (p, part) in parts.iter().enumerate() {
            for (i, found) in found(&part.visits).into_iter().enumerate() {
                in_flight_max = in_flight_max.max(found + 1);
                if i >= part.skip && part.kinds[i].is_some() {
                    all.push((found, p as u32, i as u32));
                }
            }
        }
        all.sort_unstable_by(|a, b| b.cmp(a));
        // From the busiest on, each bin twice the one before: waiting is rare, and says most.
        let (mut bin, mut wanted, mut filled) = (0u8, BIN, 0);
        let mut counted = Vec::with_capacity(all.len());
        for (i, (there, part, place)) in all.iter().enumerate() {
            if filled >= wanted && all[i - 1].0 != *there && all.len() - i >= BIN {
                (bin, wanted, filled) = (bin + 1, wanted * 2, 0);
            }
            filled += 1;
            counted.push((*part, *place, bin));
        }
        let mut times: Vec<f64> =
            counted.iter().map(|(p, i, _)| parts[*p as usize].visits[*i as usize]).map(|v| v.end - v.begin).collect();
        times.sort_unstable_by(f64::total_cmp);
        let median = times.get(times.len() / 2).copied().unwrap_or(0.0);
        Scorer {
            parts,
            counted,
            bins: usize::from(bin) + 1,
            least: (resolution / 2.0).max(median * 0.01),
            impossible: -2.5 * resolution,
            spans,
            in_flight_max,
        }
    }

    /// How far work depends on what was there: a sum of chi-squares, the smaller the better.
    pub fn score(&self, order: Order, c: u32) -> f64 {
        let c = if c > self.in_flight_max { UNLIMITED } else { c };
        let works: Vec<Vec<f64>> = self.parts.iter().map(|part| work(order, c, &part.visits)).collect();
        let at = |(p, i, _): &(u32, u32, u8)| works[*p as usize][*i as usize];
        let impossible = self.counted.iter().filter(|place| at(place) < self.impossible).count() as f64;
        let mut logs: Vec<f64> = self.counted.iter().map(|place| (at(place).max(0.0) + self.least).ln()).collect();
        self.centre(&mut logs, |class, _| usize::from(class));
        self.centre(&mut logs, |_, span| usize::from(span));
        let location = self.between(&logs);
        let mut spread: Vec<f64> = logs.iter().map(|log| log.abs()).collect();
        let mean = spread.iter().sum::<f64>() / spread.len().max(1) as f64;
        spread.iter_mut().for_each(|value| *value -= mean);
        let scale = self.between(&spread);
        location + scale + IMPOSSIBLE * (impossible - 0.001 * logs.len() as f64).max(0.0)
    }

    /// Takes the mean of each group away.
    fn centre(&self, values: &mut [f64], group: impl Fn(u16, u16) -> usize) {
        let of = |(p, i, _): &(u32, u32, u8)| {
            self.parts[*p as usize].kinds[*i as usize].map_or(0, |(class, span)| group(class, span))
        };
        let mut sums = vec![(0.0, 0.0); self.spans.max(1 << 12)];
        for (place, value) in self.counted.iter().zip(&*values) {
            let sum = &mut sums[of(place)];
            *sum = (sum.0 + value, sum.1 + 1.0);
        }
        for (place, value) in self.counted.iter().zip(values) {
            let (sum, count) = sums[of(place)];
            *value -= sum / count;
        }
    }

    /// Chi-square of the means of the bins of what has the mean 0.
    fn between(&self, values: &[f64]) -> f64 {
        let count = values.len().max(1) as f64;
        let variance = (values.iter().map(|value| value * value).sum::<f64>() / count).max(1e-12);
        let mut sums = vec![(0.0, 0.0); self.bins];
        for ((_, _, bin), value) in self.counted.iter().zip(values) {
            let sum = &mut sums[usize::from(*bin)];
            *sum = (sum.0 + value, sum.1 + 1.0);
        }
        sums.iter().filter(|(_, count)| *count > 0.0).map(|(sum, count)| sum * sum / count / variance).sum()
    }
}
