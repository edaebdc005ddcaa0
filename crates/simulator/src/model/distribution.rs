//! Distributions of times.

use balanza_balancing::Nanos;
use rand_distr::Distribution as _;

use crate::random::Random;
use crate::scenario::Service;

/// A distribution of times, ready to draw from; in nanoseconds.
#[derive(Clone, Debug)]
pub(crate) struct Distribution {
    shape: Shape,
    mean: f64,
}

#[derive(Clone, Debug)]
enum Shape {
    Exponential(f64),
    Constant(Nanos),
    Uniform { from: f64, span: f64 },
    Lognormal(rand_distr::LogNormal<f64>),
    Pareto(rand_distr::Pareto<f64>),
    Bimodal { short: Nanos, long: Nanos, part: f64 },
    Poisson { step: f64, number: rand_distr::Poisson<f64> },
    Trace(std::sync::Arc<[Nanos]>),
}

impl Distribution {
    /// Of checked parameters. `read` gives the numbers of a trace, in seconds.
    pub fn new(service: &Service, read: impl FnOnce(&str) -> Result<Vec<f64>, String>) -> Result<Distribution, String> {
        let (shape, mean) = match service {
            Service::Exponential { mean } => (Shape::Exponential(mean.nanos() as f64), mean.nanos() as f64),
            Service::Constant { mean } => (Shape::Constant(mean.nanos()), mean.nanos() as f64),
            Service::Uniform { from, to } if from > to => return Err("uniform: from is greater than to".into()),
            Service::Uniform { from, to } => {
                let (from, span) = (from.nanos() as f64, (to.nanos() - from.nanos()) as f64);
                (Shape::Uniform { from, span }, from + span / 2.0)
            }
            Service::Lognormal { mean, cv } => {
                let mean = mean.nanos().max(1) as f64;
                let wrong = "lognormal: cv has to be 0 or more";
                let positive = Some(*cv).filter(|cv| *cv >= 0.0 && cv.is_finite()).unwrap_or(-1.0);
                (Shape::Lognormal(rand_distr::LogNormal::from_mean_cv(mean, positive).map_err(|_| wrong)?), mean)
            }
            Service::Pareto { shape, .. } if *shape <= 1.0 || !shape.is_finite() => {
                return Err("pareto: shape has to be above 1, or there is no mean".into());
            }
            Service::Pareto { mean, shape } => {
                let mean = mean.nanos().max(1) as f64;
                let pareto = rand_distr::Pareto::new(mean * (shape - 1.0) / shape, *shape);
                let pareto = pareto.map_err(|_| "pareto: these parameters do not work")?;
                (Shape::Pareto(pareto), mean)
            }
            Service::Bimodal { part, .. } if !(0.0..=1.0).contains(part) => {
                return Err("bimodal: part has to be between 0 and 1".into());
            }
            Service::Bimodal { short, long, part } => {
                let (short, long, part) = (short.nanos(), long.nanos(), *part);
                (Shape::Bimodal { short, long, part }, short as f64 * (1.0 - part) + long as f64 * part)
            }
            Service::Poisson { step, mean } => {
                let number = rand_distr::Poisson::new(*mean).map_err(|_| "poisson: mean has to be above 0")?;
                let step = step.nanos() as f64;
                (Shape::Poisson { step, number }, step * mean)
            }
            Service::Trace { file } => {
                let times: Vec<Nanos> = read(file)?.into_iter().map(|t| rounded(t * 1e9)).collect();
                if times.is_empty() {
                    return Err(format!("{file}: no times in it"));
                }
                let mean = times.iter().map(|t| *t as f64).sum::<f64>() / times.len() as f64;
                (Shape::Trace(times.into()), mean)
            }
        };
        Ok(Distribution { shape, mean })
    }

    /// One of it.
    #[inline]
    pub fn draw(&self, random: &mut Random) -> Nanos {
        match &self.shape {
            Shape::Exponential(mean) => rounded(mean * random.exponential()),
            Shape::Constant(time) => *time,
            Shape::Uniform { from, span } => rounded(from + span * random.unit()),
            Shape::Lognormal(normal) => rounded(normal.sample(random)),
            Shape::Pareto(pareto) => rounded(pareto.sample(random)),
            Shape::Bimodal { short, long, part } => {
                if random.unit() < *part {
                    *long
                } else {
                    *short
                }
            }
            Shape::Poisson { step, number } => rounded(step * number.sample(random)),
            Shape::Trace(times) => times[random.below(times.len() as u64) as usize],
        }
    }

    /// In nanoseconds.
    pub fn mean(&self) -> f64 {
        self.mean
    }
}

/// A time that fits the clock.
#[inline]
fn rounded(nanos: f64) -> Nanos {
    // Not above 2^61: two of them can be added.
    nanos.clamp(0.0, 2.3e18).round() as Nanos
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Purpose;
    use crate::scenario::Time;

    /// The mean is that of the draws, and the variance is the formula's where there is one.
    #[test]
    fn means_and_variances() {
        let (second, two) = (Time::from_secs(1.0), Time::from_secs(2.0));
        let cases = [
            (Service::Exponential { mean: second }, 1.0, Some(1.0)),
            (Service::Constant { mean: two }, 2.0, Some(0.0)),
            (Service::Uniform { from: second, to: two }, 1.5, Some(1.0 / 12.0)),
            (Service::Lognormal { mean: second, cv: 1.5 }, 1.0, Some(2.25)),
            (Service::Pareto { mean: second, shape: 2.5 }, 1.0, None),
            (Service::Bimodal { short: second, long: two, part: 0.25 }, 1.25, Some(0.1875)),
            (Service::Poisson { step: Time::from_secs(0.1), mean: 0.99 }, 0.099, Some(0.0099)),
            (Service::Trace { file: "t".into() }, 2.0, Some(2.0 / 3.0)),
        ];
        for (service, mean, variance) in cases {
            let distribution = Distribution::new(&service, |_| Ok(vec![1.0, 2.0, 3.0])).unwrap();
            assert!((distribution.mean() / 1e9 - mean).abs() < 1e-6, "{service:?}: {}", distribution.mean());
            let mut random = Random::new(1, 0, Purpose::Service);
            let draws: Vec<f64> = (0..400_000).map(|_| distribution.draw(&mut random) as f64 / 1e9).collect();
            let found = draws.iter().sum::<f64>() / draws.len() as f64;
            assert!((found - mean).abs() < 0.02 * mean, "{service:?}: mean {found}");
            if let Some(variance) = variance {
                let of = draws.iter().map(|d| (d - found).powi(2)).sum::<f64>() / draws.len() as f64;
                assert!((of - variance).abs() <= 0.1 * variance, "{service:?}: variance {of}");
            }
        }
    }

    #[test]
    fn wrong_parameters() {
        let wrong = |service| Distribution::new(&service, |_| Ok(vec![])).unwrap_err();
        let second = Time::from_secs(1.0);
        assert_eq!(
            wrong(Service::Pareto { mean: second, shape: 1.0 }),
            "pareto: shape has to be above 1, or there is no mean"
        );
        wrong(Service::Uniform { from: second, to: Time::from_secs(0.5) });
        wrong(Service::Lognormal { mean: second, cv: f64::NAN });
        wrong(Service::Bimodal { short: second, long: second, part: 1.1 });
        wrong(Service::Poisson { step: second, mean: 0.0 });
        wrong(Service::Trace { file: "t".into() });
    }
}
