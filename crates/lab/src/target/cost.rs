//! What one request costs at one target: its workload, at the target's speed, in virtual or in real time.

use std::hint::black_box;
use std::time::Duration;

use clap::ValueEnum;
use nix::time::{ClockId, clock_gettime};
use rand::RngExt;
use rand::rngs::SmallRng;
use rand_distr::{Distribution as _, Exp1, Poisson};

use super::workload::Computation;
use super::{Target, Workload};

/// Whether a request's work is done or only its time passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Service {
    /// Hold one of --concurrency workers for the service time, without using a processor
    Virtual,
    /// Compute, on a processor
    Burn,
}

impl Service {
    /// The one of targets that do not say.
    pub fn of(workload: Workload) -> Self {
        match workload {
            Workload::Matrix { .. } | Workload::Loop { .. } => Self::Burn,
            Workload::Fixed | Workload::Delay(_) | Workload::Poisson { .. } => Self::Virtual,
        }
    }
}

/// How service times vary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Distribution {
    /// All the same
    #[default]
    Constant,
    /// Exponential, with the stated time as mean
    Exponential,
}

/// The work of one request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Job {
    Nothing,
    /// Hold a worker for so long.
    Hold(Duration),
    Burn(Burning),
}

/// A computation: once, or again and again until it took so much of the thread's processor time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Burning {
    pub(super) computation: Computation,
    pub(super) time: Option<Duration>,
}

impl Burning {
    /// Does it; returns the processor time that it took.
    pub(super) fn run(self) -> Duration {
        let start = processor_time();
        loop {
            black_box(self.computation.run());
            let used = processor_time().saturating_sub(start);
            if self.time.is_none_or(|time| used >= time) {
                return used;
            }
        }
    }
}

/// Processor time of this thread.
pub(super) fn processor_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map(Duration::from).unwrap_or_default()
}

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cost {
    workload: Workload,
    service: Service,
    time: Option<Duration>,
    distribution: Distribution,
    speed: f64,
}

impl Cost {
    pub(super) fn of(target: &Target) -> Self {
        let Target { workload, time, distribution, speed, .. } = *target;
        Self { workload, service: target.service(), time, distribution, speed }
    }

    /// The same at another speed.
    pub(super) fn at_speed(self, speed: f64) -> Self {
        Self { speed, ..self }
    }

    /// Draws the work of the next request.
    pub(super) fn draw(&self, rng: &mut SmallRng) -> Job {
        let time = match self.workload {
            Workload::Delay(delay) => Some(delay),
            Workload::Poisson { mean, step } => {
                let steps = Poisson::new(mean).map_or(0.0, |poisson| poisson.sample(rng));
                Some(step.mul_f64(steps))
            }
            Workload::Fixed | Workload::Matrix { .. } | Workload::Loop { .. } => self.time,
        };
        let factor: f64 = match self.distribution {
            Distribution::Constant => 1.0,
            Distribution::Exponential => Exp1.sample(rng),
        };
        let time = time.map(|time| time.mul_f64(factor / self.speed));
        // With a time, the computation is only what fills it.
        let speed = if time.is_some() { 1.0 } else { self.speed };
        match (self.service, self.workload) {
            (Service::Burn, Workload::Matrix { size }) => {
                let terms = (size as f64 / speed).round().max(1.0) as u64;
                Job::Burn(Burning { computation: Computation::Matrix { size, terms, seed: rng.random() }, time })
            }
            (Service::Burn, Workload::Loop { turns }) => {
                let turns = (turns as f64 / speed).round() as u64;
                Job::Burn(Burning { computation: Computation::Loop { turns }, time })
            }
            _ => time.map_or(Job::Nothing, Job::Hold),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rand::SeedableRng;

    use super::*;

    fn rng(seed: u64) -> SmallRng {
        SmallRng::seed_from_u64(seed)
    }

    fn seconds(target: Target, count: usize) -> Vec<f64> {
        let mut rng = rng(target.seed);
        let cost = Cost::of(&target);
        let draw = |_| match cost.draw(&mut rng) {
            Job::Nothing => 0.0,
            Job::Hold(delay) => delay.as_secs_f64(),
            Job::Burn(_) => panic!("a delay computes nothing"),
        };
        (0..count).map(draw).collect()
    }

    fn mean(values: &[f64]) -> f64 {
        values.iter().sum::<f64>() / values.len() as f64
    }

    fn variance(values: &[f64]) -> f64 {
        let mean = mean(values);
        values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / values.len() as f64
    }

    fn poisson(mean: f64, milliseconds: u64) -> Target {
        let workload = Workload::Poisson { mean, step: Duration::from_millis(milliseconds) };
        Target { workload, ..Target::default() }
    }

    #[test]
    fn poisson_has_the_mean_and_the_variance_of_poisson() {
        let steps = seconds(Target { seed: 7, ..poisson(0.99, 100) }, 100_000);
        let steps: Vec<f64> = steps.iter().map(|delay| delay / 0.1).collect();
        // Five standard errors of each.
        assert!((mean(&steps) - 0.99).abs() < 0.016, "{}", mean(&steps));
        assert!((variance(&steps) - 0.99).abs() < 0.03, "{}", variance(&steps));
        let none = steps.iter().filter(|step| **step == 0.0).count() as f64 / steps.len() as f64;
        assert!((none - (-0.99_f64).exp()).abs() < 0.008, "{none}");
        assert!(steps.iter().all(|step| (step - step.round()).abs() < 1e-6), "whole steps only");
    }

    #[test]
    fn exponential_times_have_the_mean_and_the_variance_of_exponential() {
        for workload in [Workload::Delay(Duration::from_millis(500)), Workload::Matrix { size: 20 }] {
            let target = Target {
                workload,
                service: Some(Service::Virtual),
                time: Some(Duration::from_millis(500)),
                distribution: Distribution::Exponential,
                speed: 0.5,
                ..Target::default()
            };
            let times = seconds(target, 100_000);
            assert!((mean(&times) - 1.0).abs() < 0.016, "{}", mean(&times));
            assert!((variance(&times) - 1.0).abs() < 0.05, "{}", variance(&times));
        }
    }

    #[test]
    fn a_seed_repeats_the_times() {
        let times = |seed| seconds(Target { seed, ..poisson(3.0, 1) }, 100);
        assert_eq!(times(1), times(1));
        assert_ne!(times(1), times(2));
    }

    #[test]
    fn a_computation_fills_its_time_on_the_processor() {
        let burning = Burning { computation: Computation::Loop { turns: 1000 }, time: Some(Duration::from_millis(20)) };
        let (start, used) = (processor_time(), burning.run());
        assert!(used >= Duration::from_millis(20) && processor_time() - start >= used);
        // Longer by less than one of its 1000 turns, but the processor may be taken away at any moment.
        assert!((0..5).any(|_| burning.run() < Duration::from_millis(21)));
        // At least once, however little time it has.
        assert!(Burning { time: Some(Duration::ZERO), ..burning }.run() > Duration::ZERO);
    }

    proptest! {
        #[test]
        fn speed_divides_every_cost(speed in 0.1_f64..10.0, milliseconds in 1_u64..1000, seed: u64) {
            let time = Duration::from_millis(milliseconds);
            let delay = Target { workload: Workload::Delay(time), speed, seed, ..Target::default() };
            prop_assert!((seconds(delay.clone(), 1)[0] * speed * 1e3 - milliseconds as f64).abs() < 1e-3);
            let page = Target { workload: Workload::Fixed, time: Some(time), ..delay };
            prop_assert!((seconds(page, 1)[0] * speed * 1e3 - milliseconds as f64).abs() < 1e-3);

            let poisson = Target { seed, ..poisson(2.0, milliseconds) };
            let (stated, scaled) = (seconds(poisson.clone(), 20), seconds(Target { speed, ..poisson }, 20));
            prop_assert!(stated.iter().zip(&scaled).all(|(a, b)| (a - b * speed).abs() < 1e-6));

            let loops = Target { workload: Workload::Loop { turns: 50_000 }, speed, ..Target::default() };
            let turns = (50_000.0 / speed).round() as u64;
            let expected = Burning { computation: Computation::Loop { turns }, time: None };
            prop_assert_eq!(Cost::of(&loops).draw(&mut rng(seed)), Job::Burn(expected));
            let timed = Cost::of(&Target { time: Some(time), ..loops }).draw(&mut rng(seed));
            let computation = Computation::Loop { turns: 50_000 };
            prop_assert_eq!(timed, Job::Burn(Burning { computation, time: Some(time.div_f64(speed)) }));
        }
    }
}
