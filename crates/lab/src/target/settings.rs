//! The settings of one workload server.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::ensure;

use super::{Credits, Discipline, Distribution, Service, Workload};
use crate::units::{count, show_duration};

/// The settings of one workload server.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// What the answers carry in `X-Server` and in their body, visible ASCII; empty = the address.
    pub name: String,
    /// Where to listen; port 0 takes any free one.
    pub listen: SocketAddr,
    /// Where to answer questions about the target alone, whatever its queues hold; port 0 takes any free one.
    pub control: Option<SocketAddr>,
    /// What a request costs.
    pub workload: Workload,
    /// Whether work is done or only its time passes; none = what the workload suggests ([`Service::of`]).
    pub service: Option<Service>,
    /// Service time at speed 1 of the workloads that have no time of their own; a computation is repeated until it took
    /// so much processor time.
    pub time: Option<Duration>,
    /// How service times vary.
    pub distribution: Distribution,
    /// Divides delays and CPU work: 0.5 = half as fast. Above 0.
    pub speed: f64,
    /// Credits that full speed costs.
    pub credits: Option<Credits>,
    /// Requests worked on at once; others wait in the order of their arrival.
    pub concurrency: Option<usize>,
    /// How requests share the `concurrency` workers.
    pub discipline: Discipline,
    /// Connections accepted at once; others wait in the listen queue.
    pub connections: Option<usize>,
    /// Length of the listen queue.
    pub backlog: u16,
    /// Threads that read and answer, and as many for CPU work; above 0.
    pub threads: usize,
    /// Bytes of an answer's body; none = the name and a newline.
    pub body_size: Option<usize>,
    /// Status of the answers, 200 to 599.
    pub status: u16,
    /// Whether answers carry [`LOAD_FIELD`](super::LOAD_FIELD): the requests that are here for each of the `concurrency`
    /// places, so 1 is a busy server.
    pub report_load: bool,
    /// Whether a connection takes more than one request.
    pub keep_alive: bool,
    /// Seed of the random numbers.
    pub seed: u64,
}

impl Default for Target {
    fn default() -> Self {
        Self {
            name: String::new(),
            listen: SocketAddr::from(([127, 0, 0, 1], 9001)),
            control: None,
            workload: Workload::Fixed,
            service: None,
            time: None,
            distribution: Distribution::Constant,
            speed: 1.0,
            credits: None,
            concurrency: None,
            discipline: Discipline::Fifo,
            connections: None,
            backlog: 511,
            threads: 1,
            body_size: None,
            status: 200,
            report_load: false,
            keep_alive: true,
            seed: 0,
        }
    }
}

impl Target {
    /// Whether work is done or only its time passes.
    pub fn service(&self) -> Service {
        self.service.unwrap_or_else(|| Service::of(self.workload))
    }

    /// Whether requests cost nothing at all.
    pub(super) fn is_free(&self) -> bool {
        self.workload == Workload::Fixed && self.time.is_none()
    }

    /// Refuses what would fail, hang or mean nothing later, at a request. The messages speak of the options of
    /// `balanza target`.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        let positive = |number: f64| number.is_finite() && number > 0.0;
        ensure!(positive(self.speed), "the speed must be above 0, not {}", self.speed);
        ensure!(self.threads > 0 && self.concurrency != Some(0) && self.connections != Some(0), "a limit of 0");
        ensure!((200..=599).contains(&self.status), "the status must be from 200 to 599, not {}", self.status);
        match self.workload {
            Workload::Poisson { mean, .. } => ensure!(positive(mean), "the mean must be above 0, not {mean}"),
            Workload::Matrix { size } => ensure!(size > 0, "a matrix needs at least one row"),
            Workload::Fixed | Workload::Delay(_) | Workload::Loop { .. } => {}
        }
        self.check_service()?;
        let Some(Credits { rate, throttle, .. }) = self.credits else { return Ok(()) };
        ensure!(
            !self.is_free(),
            "--credits: the workload \"fixed\" costs nothing; add --time, its service time, or leave --credits out"
        );
        ensure!((0.0..=1.0).contains(&rate), "--credit-rate must be from 0 to 1, not {rate}");
        ensure!(
            positive(throttle) && throttle <= 1.0,
            "--throttle must be above 0 and at most 1, not {throttle}: say how fast the server is without credits"
        );
        ensure!(
            throttle >= rate,
            "--throttle {throttle} is below --credit-rate {rate}: a server that works slower than it earns credits has \
             some again at once; make --throttle at least {rate}"
        );
        Ok(())
    }

    fn check_service(&self) -> anyhow::Result<()> {
        let computes = matches!(self.workload, Workload::Matrix { .. } | Workload::Loop { .. });
        if self.service() == Service::Burn {
            ensure!(
                computes,
                "--service burn: this workload computes nothing; add --workload matrix or --workload loop, or leave \
                 --service out"
            );
            ensure!(
                self.discipline == Discipline::Fifo,
                "--discipline sharing is for --service virtual: how computations share the processors is the kernel's \
                 affair; add --service virtual, or leave --discipline out"
            );
        } else {
            ensure!(
                !computes || self.time.is_some(),
                "--service virtual does not compute, so it needs --time, how long a request takes; or leave --service \
                 out and it does"
            );
            ensure!(
                self.discipline == Discipline::Fifo || self.concurrency.is_some(),
                "--discipline sharing needs something to share: add --concurrency, the number of processors that the \
                 server is to have"
            );
        }
        let timed = matches!(self.workload, Workload::Delay(_)) || self.time.is_some();
        ensure!(
            self.distribution == Distribution::Constant || timed,
            "--distribution says how --time varies: add --time, or leave --distribution out"
        );
        ensure!(
            self.time.is_none() || !matches!(self.workload, Workload::Poisson { .. }),
            "--time says nothing to the workload \"poisson\", whose times are --poisson-step times a Poisson number of \
             mean --poisson-mean: set these, or leave --time out"
        );
        Ok(())
    }

    /// The settings in one line, for people.
    pub(super) fn describe(&self) -> String {
        let mut text = self.workload.to_string();
        if let Some(time) = self.time.filter(|_| !matches!(self.workload, Workload::Delay(_))) {
            let time = show_duration(time);
            text = match self.service() {
                Service::Burn => format!("{text} again and again for {time} of processor time"),
                Service::Virtual if self.workload == Workload::Fixed => format!("holds a worker for {time}"),
                Service::Virtual => format!("{text} in virtual time, {time}"),
            };
        }
        if self.distribution == Distribution::Exponential {
            text += " on average, exponentially distributed";
        }
        if self.speed != 1.0 {
            text += &format!(" at speed {}", self.speed);
        }
        if let Some(Credits { size, rate, throttle }) = self.credits {
            text +=
                &format!(", credits for {} and {rate} a second, without them {throttle} as fast", show_duration(size));
        }
        match (self.concurrency, self.discipline) {
            (Some(places), Discipline::Fifo) => text += &format!(", {} at once", count(places as u64, "request")),
            (Some(workers), Discipline::Sharing) => {
                text += &format!(", all requests share {}", count(workers as u64, "processor"));
            }
            (None, _) => text += ", any number at once",
        }
        if let Some(connections) = self.connections {
            text += &format!(", accepts {}", count(connections as u64, "connection"));
        }
        text + &format!(", backlog {}", self.backlog)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_out_of_range_are_refused() {
        let poisson = |mean| Workload::Poisson { mean, step: Duration::ZERO };
        let credits = |rate, throttle| Some(Credits { size: Duration::from_secs(1), rate, throttle });
        let delay = || Target { workload: Workload::Delay(Duration::from_millis(1)), ..Target::default() };
        for target in [
            Target { speed: 0.0, ..delay() },
            Target { speed: f64::NAN, ..delay() },
            Target { threads: 0, ..delay() },
            Target { concurrency: Some(0), ..delay() },
            Target { status: 100, ..delay() },
            Target { workload: poisson(-1.0), ..delay() },
            Target { workload: Workload::Matrix { size: 0 }, ..delay() },
            Target { service: Some(Service::Burn), ..delay() },
            Target { discipline: Discipline::Sharing, ..delay() },
            Target { credits: credits(0.0, 0.0), ..delay() },
            Target { credits: credits(f64::NAN, 0.5), ..delay() },
            Target { credits: credits(0.5, 0.4), ..delay() },
        ] {
            assert!(target.check().is_err(), "{target:?}");
        }
        Target { credits: credits(0.1, 0.1), ..delay() }.check().unwrap();
    }

    #[test]
    fn targets_describe_themselves() {
        let time = Some(Duration::from_micros(6810));
        let matrix = Target { workload: Workload::Matrix { size: 20 }, ..Target::default() };
        let page = Target { time: Some(Duration::from_micros(1310)), ..Target::default() };
        let targets = [
            Target::default(),
            Target { connections: Some(1), backlog: 128, ..page.clone() },
            Target { concurrency: Some(2), discipline: Discipline::Sharing, ..page.clone() },
            matrix.clone(),
            Target { time, speed: 0.5, ..matrix.clone() },
            Target { time, service: Some(Service::Virtual), concurrency: Some(1), ..matrix },
            Target {
                workload: Workload::Delay(Duration::from_millis(10)),
                distribution: Distribution::Exponential,
                credits: Some(Credits { size: Duration::from_secs(30), rate: 0.1, throttle: 0.27 }),
                ..Target::default()
            },
        ];
        insta::assert_snapshot!(targets.map(|target| target.describe()).join("\n"));
    }
}
