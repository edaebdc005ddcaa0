//! Servers drawn at random whose truth is known: what they write in a log, and what each algorithm really gives on them.
//!
//! The verification of this crate: a log of a drawn farm under round robin is read, an answer is given, and all candidates
//! are simulated on the true farm with other arrivals.

use std::fmt::Write as _;

use balanza_simulator::{Line, Progress, Trace};

use crate::Error;
use crate::candidates::Candidate;
use crate::farm::{Draws, Farm, Pool, Server};
use crate::format::{BUILT_IN, Escape, Format};
use crate::log::{KeyOf, Log, Reader};
use crate::queue::{Order, serve};
use crate::runs::{Conditions, Outcome};
use crate::setting::Current;
use crate::study::{Question, Study, study};
use crate::verdict::Answer;

/// A distribution of work, with mean 1.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Work {
    /// Memoryless.
    Exponential,
    /// Always the same.
    Constant,
    /// Skewed to the right, with this coefficient of variation.
    Lognormal(f64),
    /// Some are ten times as long, with this probability.
    Bimodal(f64),
}

/// When requests come.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Coming {
    /// Independent of each other.
    Poisson,
    /// In bursts of this many times the rate in between, of 2 s each, every 10 s on average.
    Bursts(f64),
}

/// A farm and its traffic.
#[derive(Clone, Debug)]
pub struct Truth {
    /// Of each server.
    pub speeds: Vec<f64>,
    /// Of each server.
    pub units: Vec<u32>,
    /// Of all.
    pub order: Order,
    /// Of requests, as a part of their mean.
    pub work: Work,
    /// Mean work in microseconds at speed 1.
    pub mean: f64,
    /// When they come.
    pub coming: Coming,
    /// Offered work as a part of the capacity.
    pub load: f64,
    /// Different clients.
    pub clients: u32,
    /// Of all random numbers.
    pub seed: u64,
}

impl Truth {
    /// A farm drawn at random: sizes, speeds, units, order, work, arrivals, load.
    pub fn draw(seed: u64) -> Truth {
        let mut draws = Draws(seed);
        let servers = 2 + draws.below(9);
        let kinds = [1.0, 0.7, 0.5, 0.35];
        let unequal = draws.unit() < 0.6;
        let units = [1, 2, 4, 8][draws.below(4)];
        let other = [1, 2, 4, 8][draws.below(4)];
        let mixed = draws.unit() < 0.25;
        let speeds: Vec<f64> = (0..servers).map(|_| if unequal { kinds[draws.below(4)] } else { 1.0 }).collect();
        let units: Vec<u32> = (0..servers).map(|_| if mixed && draws.unit() < 0.5 { other } else { units }).collect();
        let work = match draws.below(4) {
            0 => Work::Exponential,
            1 => Work::Constant,
            2 => Work::Lognormal(0.5 + 1.5 * draws.unit()),
            _ => Work::Bimodal(0.02 + 0.08 * draws.unit()),
        };
        let order = if draws.unit() < 0.5 { Order::Fifo } else { Order::Shared };
        let coming = if draws.unit() < 0.7 { Coming::Poisson } else { Coming::Bursts(2.0 + draws.unit()) };
        let mean = 20_000.0 * 10f64.powf(draws.unit());
        // Round robin is what wrote the log: a share for each server that the slowest can bear.
        let capacity: f64 = speeds.iter().zip(&units).map(|(speed, units)| speed * f64::from(*units)).sum();
        let least =
            speeds.iter().zip(&units).map(|(speed, units)| speed * f64::from(*units)).fold(f64::INFINITY, f64::min);
        let bearable = least * servers as f64 / capacity;
        let burst = if matches!(coming, Coming::Bursts(_)) { 0.75 } else { 1.0 };
        let load = (0.35 + 0.5 * draws.unit()) * bearable * burst;
        let clients = 50 + draws.below(2_000) as u32;
        Truth { speeds, units, order, work, mean, coming, load, clients, seed: draws.number() }
    }

    /// A farm on which no algorithm is better than another: equal servers with more units than they need.
    pub fn draw_equal(seed: u64) -> Truth {
        let drawn = Truth::draw(seed);
        let count = drawn.speeds.len();
        Truth {
            speeds: vec![1.0; count],
            units: vec![16; count],
            load: 0.15 + 0.2 * drawn.load,
            coming: Coming::Poisson,
            ..drawn
        }
    }

    /// Three servers of different speeds, for trying this out.
    pub fn sample() -> Truth {
        Truth {
            speeds: vec![1.0, 1.0, 0.5],
            units: vec![4, 4, 4],
            order: Order::Shared,
            work: Work::Lognormal(1.0),
            mean: 40_000.0,
            coming: Coming::Poisson,
            load: 0.5,
            clients: 500,
            seed: 1,
        }
    }

    /// Requests a second.
    pub fn rate(&self) -> f64 {
        let capacity: f64 = self.speeds.iter().zip(&self.units).map(|(speed, units)| speed * f64::from(*units)).sum();
        self.load * capacity * 1e6 / self.mean
    }

    fn draw_work(&self, draws: &mut Draws) -> f64 {
        let exponential = |draws: &mut Draws| -(1.0 - draws.unit()).ln();
        self.mean
            * match self.work {
                Work::Exponential => exponential(draws),
                Work::Constant => 1.0,
                Work::Lognormal(cv) => {
                    let sigma = (1.0 + cv * cv).ln().sqrt();
                    let angle = std::f64::consts::TAU * draws.unit();
                    let normal = (2.0 * exponential(draws)).sqrt() * angle.cos();
                    (sigma * normal - sigma * sigma / 2.0).exp()
                }
                Work::Bimodal(part) => {
                    let short = 1.0 / (1.0 + 9.0 * part);
                    if draws.unit() < part { 10.0 * short } else { short }
                }
            }
    }

    /// Arrivals in microseconds, and works.
    fn requests(&self, count: usize, draws: &mut Draws) -> (Vec<f64>, Vec<f64>) {
        let gap = 1e6 / self.rate();
        let (mut now, mut bursting, mut phase_end) = (0.0, false, 0.0);
        let arrivals = (0..count).map(|_| {
            let exponential = |draws: &mut Draws| -(1.0 - draws.unit()).ln();
            match self.coming {
                Coming::Poisson => now += gap * exponential(draws),
                Coming::Bursts(times) => loop {
                    let calm = (times * 2.0 + 8.0) / 10.0 * gap;
                    let at = now + exponential(draws) * if bursting { calm / times } else { calm };
                    if at < phase_end {
                        now = at;
                        break;
                    }
                    now = phase_end;
                    bursting = !bursting;
                    phase_end += exponential(draws) * if bursting { 2e6 } else { 8e6 };
                },
            }
            now
        });
        let arrivals = arrivals.collect();
        (arrivals, (0..count).map(|_| self.draw_work(draws)).collect())
    }

    /// What NGINX would write of so many requests under round robin, in the built-in format, in the order of their ends.
    pub fn lines(&self, count: usize) -> String {
        let mut draws = Draws(self.seed);
        let (arrivals, works) = self.requests(count, &mut draws);
        let servers = self.speeds.len();
        let mut ended: Vec<(u64, u64, usize, u32)> = Vec::with_capacity(count);
        for server in 0..servers {
            let own = |values: &[f64], speed: f64| -> Vec<f64> {
                values.iter().skip(server).step_by(servers).map(|value| value / speed).collect()
            };
            let (arrivals, works) = (own(&arrivals, 1.0), own(&works, self.speeds[server]));
            let ends = serve(self.order, self.units[server], &arrivals, &works);
            for (at, end) in arrivals.iter().zip(&ends) {
                // The log has milliseconds, of the clock at the beginning and the end.
                let (begin, end) = ((at / 1e3) as u64, (end / 1e3) as u64);
                ended.push((end, end - begin, server, draws.below(self.clients as usize) as u32));
            }
        }
        ended.sort_unstable();
        let mut text = String::new();
        for (end, time, server, client) in ended {
            let end = 1_700_000_000_000 + end;
            let time = format!("{}.{:03}", time / 1_000, time % 1_000);
            let _ = writeln!(
                text,
                "10.1.{}.{} - - [14/Nov/2023:22:13:20 +0000] \"GET /page HTTP/1.1\" 200 512 \"-\" \"trial\" {}.{:03} {time} \
                 \"10.0.0.{}:8080\" \"{time}\" \"{time}\" \"200\"",
                client / 250,
                client % 250,
                end / 1_000,
                end % 1_000,
                server + 1,
            );
        }
        text
    }

    /// The log of so many requests, read.
    ///
    /// # Errors
    /// None, as the format is built in.
    pub fn log(&self, count: usize) -> Result<Log, Error> {
        let format = Format::new(BUILT_IN, Escape::Default).map_err(Error::Format)?;
        let mut reader = Reader::new(&format, KeyOf::Client, &[]);
        self.lines(count).lines().for_each(|line| _ = reader.line(line.as_bytes()));
        Ok(reader.finish())
    }

    /// The true farm, in the order of a log's servers.
    fn farm(&self, log: &Log) -> Farm {
        let server = |name: &String| {
            let number: usize = name.trim_start_matches("10.0.0.").trim_end_matches(":8080").parse().unwrap_or(1);
            Server {
                name: name.clone(),
                attempts: 0,
                failed: 0.0,
                speed: self.speeds[number - 1],
                speed_error: 0.0,
                parallel: Some(self.units[number - 1]),
                parallel_range: None,
                in_flight_max: 0,
                capacity: None,
                peak: 0.0,
            }
        };
        Farm {
            servers: log.servers.iter().map(server).collect(),
            order: self.order,
            pools: vec![Pool::default(); 3],
            classes: 1,
            spans: 1,
            begin: 0,
            span: 1,
            mean_work: self.mean,
            delay: 0.0,
            by_time: vec![1.0],
        }
    }

    /// What each candidate really gives, with other arrivals and works than those of the log.
    ///
    /// # Errors
    /// The simulator's.
    pub fn outcomes(
        &self,
        log: &Log,
        candidates: &[Candidate],
        replications: usize,
        requests: usize,
    ) -> Result<Vec<Outcome>, Error> {
        let trace = |replication: usize| -> Trace {
            let mut draws = Draws(self.seed ^ (replication as u64 + 1) << 40);
            let (arrivals, works) = self.requests(requests, &mut draws);
            let line = |(at, work): (&f64, &f64)| Line {
                at: (at * 1e3) as u64,
                work: Some((work * 1e3) as u64),
                key: Some(draws.below(self.clients as usize) as u32),
            };
            arrivals.iter().zip(&works).map(line).collect()
        };
        let traces: Vec<Trace> = (0..replications).map(trace).collect();
        let (farm, current) = (self.farm(log), Current::default());
        let conditions = Conditions { farm: &farm, current: &current, retries: 0, lost: &[], seed: self.seed };
        conditions.run(candidates, &traces, &Progress::new())
    }
}

/// An answer beside the truth.
pub struct Trial {
    /// The answer, from the log.
    pub study: Study,
    /// What each candidate really gives, in the same order.
    pub truth: Vec<Outcome>,
}

impl Truth {
    /// Writes a log of so many requests, answers, and finds the truth.
    ///
    /// # Errors
    /// The study's.
    pub fn trial(
        &self,
        question: &Question,
        requests: usize,
        replications: usize,
        each: usize,
    ) -> Result<Trial, Error> {
        let log = self.log(requests)?;
        let study = study(&log, question, &Progress::new())?;
        let candidates: Vec<Candidate> = study.outcomes.iter().map(|outcome| outcome.candidate.clone()).collect();
        let truth = self.outcomes(&log, &candidates, replications, each)?;
        Ok(Trial { study, truth })
    }
}

impl Trial {
    /// What is to be in operation after the answer.
    fn index(&self) -> usize {
        match self.study.verdict.answer {
            Answer::Change(index) => index,
            Answer::Stay | Answer::Inconclusive => 0,
        }
    }

    /// The answer in a few words.
    pub fn answer(&self) -> String {
        match self.study.verdict.answer {
            Answer::Change(index) => self.study.outcomes[index].candidate.label(),
            Answer::Stay => "stay".into(),
            Answer::Inconclusive => "inconclusive".into(),
        }
    }

    /// The true outcome of the answer.
    pub fn chosen(&self) -> &Outcome {
        &self.truth[self.index()]
    }

    /// The true outcome of what is best.
    pub fn best(&self) -> &Outcome {
        let best = self.truth.iter().min_by(|a, b| a.p99.total_cmp(&b.p99));
        best.unwrap_or(&self.truth[0])
    }

    /// The p99 that the answer predicts, in seconds.
    pub fn predicted(&self) -> f64 {
        self.study.outcomes[self.index()].p99
    }

    /// How far the prediction is off.
    pub fn off(&self) -> f64 {
        (self.predicted() / self.chosen().p99 - 1.0).abs()
    }

    /// By how much the p99 of the answer is above the best one.
    pub fn loss(&self) -> f64 {
        self.chosen().p99 / self.best().p99 - 1.0
    }

    /// Whether the answer is the best, or within the 95 % interval of the best.
    pub fn is_right(&self) -> bool {
        let best: Vec<f64> = self.best().each.iter().map(|each| each.1).collect();
        let (_, half) = crate::verdict::mean_and_half(&best);
        self.chosen().p99 <= self.best().p99 + half
    }
}
