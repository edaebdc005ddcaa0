//! What the command line of `balanza target` means: the settings of the servers.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{bail, ensure};
use clap::ValueEnum;

use super::{Credits, Kind, Options, Target, Workload};

impl Options {
    /// The targets that these options describe, in order.
    ///
    /// Errors: an option of another workload than the chosen one; lists of another length than the servers; too few ports.
    pub fn targets(&self) -> anyhow::Result<Vec<Target>> {
        let addresses = self.addresses()?;
        let count = addresses.len();
        let controls = self.controls(count)?;
        let workload = self.workload()?;
        for (option, values) in [("--speed", self.speed.len()), ("--name", self.name.len())] {
            ensure!(
                values <= 1 || values == count,
                "{option} has {values} values for {count} servers: give one, or one for each"
            );
        }
        let credits = self.credits()?;
        let seed = self.seed.unwrap_or_else(rand::random);
        let target = |(index, listen): (usize, SocketAddr)| Target {
            name: match self.name.as_slice() {
                [] => String::new(),
                [name] if count > 1 => format!("{name}-{}", index + 1),
                [name] => name.clone(),
                names => names[index].clone(),
            },
            listen,
            control: controls.get(index).copied(),
            workload,
            service: self.service,
            time: self.time,
            distribution: self.distribution,
            speed: self.speed.get(index).or(self.speed.first()).copied().unwrap_or(1.0),
            credits,
            discipline: self.discipline,
            concurrency: self.concurrency.map(|n| n as usize),
            connections: self.connections.map(|n| n as usize),
            backlog: self.backlog,
            threads: usize::from(self.threads),
            body_size: self.body_size,
            status: self.status,
            report_load: self.report_load,
            keep_alive: !self.no_keep_alive,
            seed: seed.wrapping_add(index as u64),
        };
        let targets: Vec<Target> = addresses.into_iter().enumerate().map(target).collect();
        targets.iter().try_for_each(Target::check)?;
        Ok(targets)
    }

    fn addresses(&self) -> anyhow::Result<Vec<SocketAddr>> {
        let listen = if self.listen.is_empty() { vec![Target::default().listen] } else { self.listen.clone() };
        self.counted("--listen", listen)
    }

    fn controls(&self, servers: usize) -> anyhow::Result<Vec<SocketAddr>> {
        if self.control.is_empty() {
            return Ok(Vec::new());
        }
        let controls = self.counted("--control", self.control.clone())?;
        ensure!(
            controls.len() == servers,
            "--control is given for {} of {servers} servers: give it once for each, or leave it out",
            controls.len()
        );
        Ok(controls)
    }

    /// The addresses of all servers: those given, or with --count those that follow the one given.
    fn counted(&self, option: &str, given: Vec<SocketAddr>) -> anyhow::Result<Vec<SocketAddr>> {
        let Some(count) = self.count else { return Ok(given) };
        let [first] = given[..] else { bail!("--count takes one {option}, the first server's, not {}", given.len()) };
        let address = |offset: u16| {
            let port = if first.port() == 0 { Some(0) } else { first.port().checked_add(offset) };
            port.map(|port| SocketAddr::new(first.ip(), port))
        };
        match (0..count).map(address).collect() {
            Some(addresses) => Ok(addresses),
            None => bail!("{count} servers from port {} on need ports above 65535", first.port()),
        }
    }

    fn credits(&self) -> anyhow::Result<Option<Credits>> {
        let Some(size) = self.credits else {
            for (option, given) in [("--credit-rate", self.credit_rate), ("--throttle", self.throttle)] {
                ensure!(given.is_none(), "{option} is about credits: add --credits, or leave {option} out");
            }
            return Ok(None);
        };
        let rate = self.credit_rate.unwrap_or(0.1);
        Ok(Some(Credits { size, rate, throttle: self.throttle.unwrap_or(rate) }))
    }

    fn workload(&self) -> anyhow::Result<Workload> {
        let timed = self.delay.is_some() || self.time.is_some();
        let kind = self.workload.unwrap_or(if timed { Kind::Delay } else { Kind::Fixed });
        let settings = [
            ("--delay", Kind::Delay, self.delay.is_some()),
            ("--poisson-mean", Kind::Poisson, self.poisson_mean.is_some()),
            ("--poisson-step", Kind::Poisson, self.poisson_step.is_some()),
            ("--matrix-size", Kind::Matrix, self.matrix_size.is_some()),
            ("--turns", Kind::Loop, self.turns.is_some()),
        ];
        for (option, of, given) in settings {
            ensure!(
                !given || of == kind,
                "{option} says nothing to the workload \"{}\": add --workload {}, or leave {option} out",
                name(kind),
                name(of)
            );
        }
        ensure!(
            self.delay.is_none() || self.time.is_none(),
            "--delay and --time mean the same to the workload \"delay\": leave one of them out"
        );
        Ok(match kind {
            Kind::Fixed => Workload::Fixed,
            Kind::Delay => Workload::Delay(self.delay.or(self.time).unwrap_or(Duration::from_millis(10))),
            Kind::Poisson => Workload::Poisson {
                mean: self.poisson_mean.unwrap_or(0.99),
                step: self.poisson_step.unwrap_or(Duration::from_millis(100)),
            },
            Kind::Matrix => Workload::Matrix { size: usize::from(self.matrix_size.unwrap_or(20)) },
            Kind::Loop => Workload::Loop { turns: self.turns.unwrap_or(50_000) },
        })
    }
}

/// The kind's name on the command line.
fn name(kind: Kind) -> String {
    kind.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::super::Service;
    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        options: Options,
    }

    fn targets(line: &str) -> Result<Vec<Target>, String> {
        let words = std::iter::once("target").chain(line.split_whitespace());
        let command = Command::try_parse_from(words).map_err(|error| error.to_string())?;
        command.options.targets().map_err(|error| error.to_string())
    }

    #[test]
    fn workloads() {
        let milliseconds = Duration::from_millis;
        for (line, workload) in [
            ("", Workload::Fixed),
            ("--delay 25ms", Workload::Delay(milliseconds(25))),
            ("--workload delay", Workload::Delay(milliseconds(10))),
            ("--workload poisson", Workload::Poisson { mean: 0.99, step: milliseconds(100) }),
            ("--workload poisson --poisson-mean 2", Workload::Poisson { mean: 2.0, step: milliseconds(100) }),
            ("--workload matrix", Workload::Matrix { size: 20 }),
            ("--workload loop", Workload::Loop { turns: 50_000 }),
            ("--workload loop --turns 7", Workload::Loop { turns: 7 }),
            ("--time 1.31ms", Workload::Delay(Duration::from_micros(1310))),
            ("--workload fixed --time 1ms", Workload::Fixed),
            ("--workload matrix --service virtual --time 1ms", Workload::Matrix { size: 20 }),
        ] {
            assert_eq!(targets(line).unwrap()[0].workload, workload, "{line}");
        }
    }

    #[test]
    fn services_and_credits() {
        let target = |line| targets(line).unwrap().remove(0);
        assert_eq!(target("--workload matrix").service(), Service::Burn);
        assert_eq!(target("--workload poisson").service(), Service::Virtual);
        assert_eq!(target("--workload loop --time 1s --service virtual").service(), Service::Virtual);
        let credits =
            |line| target(line).credits.map(|credits| (credits.size.as_secs(), credits.rate, credits.throttle));
        assert_eq!(credits("--time 1ms"), None);
        assert_eq!(credits("--time 1ms --credits 30s"), Some((30, 0.1, 0.1)));
        assert_eq!(credits("--time 1ms --credits 0 --credit-rate 0.05 --throttle 0.27"), Some((0, 0.05, 0.27)));
    }

    #[test]
    fn several_servers() {
        let ports = |line| -> Vec<u16> { targets(line).unwrap().iter().map(|target| target.listen.port()).collect() };
        assert_eq!(ports(""), [9001]);
        assert_eq!(ports("--count 3"), [9001, 9002, 9003]);
        assert_eq!(ports("--count 2 --listen 127.0.0.1:0"), [0, 0]);
        assert_eq!(ports("--listen [::1]:80 --listen 127.0.0.1:81"), [80, 81]);

        let three = targets("--count 3 --speed 1,0.5,0.25 --name web --seed 5").unwrap();
        assert_eq!(three.iter().map(|target| target.name.as_str()).collect::<Vec<_>>(), ["web-1", "web-2", "web-3"]);
        assert_eq!(three.iter().map(|target| target.speed).collect::<Vec<_>>(), [1.0, 0.5, 0.25]);
        assert_eq!(three.iter().map(|target| target.seed).collect::<Vec<_>>(), [5, 6, 7]);
        let controlled = targets("--count 2 --control 127.0.0.1:9101").unwrap();
        assert_eq!(controlled[1].control.unwrap().port(), 9102);
        assert_eq!(targets("").unwrap()[0].control, None);
        let named = targets("--count 2 --speed 2 --name a,b").unwrap();
        assert_eq!((named[1].name.as_str(), named[1].speed), ("b", 2.0));
    }

    #[test]
    fn contradictions_are_errors_that_say_what_to_do() {
        let lines = [
            "--workload fixed --delay 1ms",
            "--turns 5",
            "--count 2 --speed 1,2,3",
            "--count 2 --listen 127.0.0.1:1 --listen 127.0.0.1:2",
            "--count 9 --listen 127.0.0.1:65530",
            "--delay 1ms --time 1ms",
            "--workload poisson --time 1ms",
            "--workload matrix --service virtual",
            "--service burn --time 1ms",
            "--workload loop --discipline sharing --concurrency 1",
            "--time 1ms --discipline sharing",
            "--workload poisson --distribution exponential",
            "--throttle 0.5",
            "--credits 30s",
            "--time 1ms --credits 30s --throttle 0.05",
            "--time 1ms --credits 30s --credit-rate 0",
            "--listen 127.0.0.1:1 --listen 127.0.0.1:2 --control 127.0.0.1:3",
            "--count 2 --control 127.0.0.1:65535",
            "--credit-rate 2",
            "--speed 0",
            "--delay 10",
            "--status 100",
            "--name a\u{e9}",
        ];
        let text = lines.map(|line| format!("{line}\n    {}", targets(line).unwrap_err().lines().next().unwrap()));
        insta::assert_snapshot!(text.join("\n"));
    }
}
