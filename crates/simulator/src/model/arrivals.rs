//! When requests come.

use std::sync::Arc;

use balanza_balancing::Nanos;

use crate::random::Random;

/// A line of a trace of requests.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Line {
    /// When it comes.
    pub at: Nanos,
    /// Time that it takes a server of speed 1; drawn from the scenario's distribution if it is not given.
    pub work: Option<Nanos>,
    /// Its client or key.
    pub key: Option<u32>,
}

/// How requests come, ready for simulation. Distances are in nanoseconds.
#[derive(Clone, Debug)]
pub(crate) enum Arrivals {
    Poisson {
        gap: f64,
    },
    Deterministic {
        gap: f64,
    },
    Mmpp {
        bursting: f64,
        calm: f64,
        on: f64,
        off: f64,
    },
    Trace(Arc<[Line]>),
    /// Each user's arrivals follow from his answers.
    Closed {
        users: u32,
    },
}

impl Arrivals {
    /// Bursts of `burst` times the rate in between, at a mean distance of `gap` over all.
    pub fn mmpp(gap: f64, burst: f64, on: f64, off: f64) -> Arrivals {
        let calm_rate = (on + off) / (gap * (burst * on + off));
        Arrivals::Mmpp { bursting: 1.0 / (burst * calm_rate), calm: 1.0 / calm_rate, on, off }
    }
}

/// The arrivals of one replication.
pub(crate) struct Source {
    arrivals: Arrivals,
    random: Random,
    /// Of the last arrival; a float, so that rounding does not add up.
    time: f64,
    /// Of a trace.
    next: usize,
    /// Of bursts: whether one is on, and when that ends.
    bursting: bool,
    phase_end: f64,
    /// Times the rate.
    factor: f64,
}

impl Source {
    pub fn new(arrivals: &Arrivals, random: Random) -> Source {
        let mut source = Source {
            arrivals: arrivals.clone(),
            random,
            time: 0.0,
            next: 0,
            bursting: false,
            phase_end: 0.0,
            factor: 1.0,
        };
        if let Arrivals::Mmpp { on, off, .. } = source.arrivals {
            // As if it had been going on for ever.
            source.bursting = source.random.unit() < on / (on + off);
            source.phase_end = source.random.exponential() * if source.bursting { on } else { off };
        }
        source
    }

    /// When the next request comes; `Nanos::MAX` if none does.
    #[inline]
    pub fn next(&mut self) -> Nanos {
        match self.arrivals {
            Arrivals::Poisson { gap } => self.time += gap * self.random.exponential() / self.factor,
            Arrivals::Deterministic { gap } => self.time += gap / self.factor,
            _ => return self.next_other(),
        }
        self.time as Nanos
    }

    fn next_other(&mut self) -> Nanos {
        match self.arrivals {
            Arrivals::Mmpp { bursting, calm, on, off } => {
                loop {
                    let gap = if self.bursting { bursting } else { calm } / self.factor;
                    let at = self.time + gap * self.random.exponential();
                    if at < self.phase_end {
                        self.time = at;
                        return at as Nanos;
                    }
                    // Memoryless: from the change on, the wait begins anew.
                    self.time = self.phase_end;
                    self.bursting = !self.bursting;
                    self.phase_end += self.random.exponential() * if self.bursting { on } else { off };
                }
            }
            Arrivals::Trace(ref lines) => {
                self.next += 1;
                lines.get(self.next - 1).map_or(Nanos::MAX, |line| line.at)
            }
            _ => Nanos::MAX,
        }
    }

    /// Of a trace: what is written of the request that came last.
    #[inline]
    pub fn line(&self) -> Option<Line> {
        match &self.arrivals {
            Arrivals::Trace(lines) => lines.get(self.next.checked_sub(1)?).copied(),
            _ => None,
        }
    }

    /// From now on the rate is `factor` times that of the scenario.
    pub fn set_factor(&mut self, now: Nanos, factor: f64) {
        self.factor = factor.max(1e-9);
        self.time = self.time.max(now as f64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Purpose;

    fn mean_and_spread(arrivals: &Arrivals, count: usize, window: f64) -> (f64, f64) {
        let mut source = Source::new(arrivals, Random::new(7, 0, Purpose::Arrivals));
        let times: Vec<f64> = (0..count).map(|_| source.next() as f64).collect();
        let last = times[count - 1];
        let mut counts = vec![0f64; (last / window) as usize];
        for t in &times {
            let at = (t / window) as usize;
            if at < counts.len() {
                counts[at] += 1.0;
            }
        }
        let mean = counts.iter().sum::<f64>() / counts.len() as f64;
        let variance = counts.iter().map(|c| (c - mean).powi(2)).sum::<f64>() / counts.len() as f64;
        (last / count as f64, variance / mean)
    }

    /// Of Poisson arrivals the variance of counts is their mean; bursts have more, equal distances none.
    #[test]
    fn rates_and_spreads() {
        let (gap, spread) = mean_and_spread(&Arrivals::Poisson { gap: 1_000.0 }, 400_000, 1e5);
        assert!((gap - 1_000.0).abs() < 10.0 && (spread - 1.0).abs() < 0.1, "{gap} {spread}");
        let (gap, spread) = mean_and_spread(&Arrivals::Deterministic { gap: 1_000.0 }, 10_000, 1e5);
        assert!((gap - 1_000.0).abs() < 1e-6 && spread < 0.01, "{gap} {spread}");
        let (gap, spread) = mean_and_spread(&Arrivals::mmpp(1_000.0, 10.0, 1e5, 9e5), 2_000_000, 1e5);
        assert!((gap - 1_000.0).abs() < 30.0 && spread > 10.0, "{gap} {spread}");
    }
}
