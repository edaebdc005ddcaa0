//! The command line of `balanza target`.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{bail, ensure};
use clap::ValueEnum;

use super::{Target, Workload};
use crate::units::{parse_duration, parse_size};

/// Start small HTTP servers whose cost for each request is known, to have
/// something to balance.
///
/// Every answer names its server in the header X-Server and in the body.
/// GET /_target/stats answers with the server's counters as JSON and counts
/// nothing, GET /balanza-load answers probes of `balance prequal`. --name and
/// --speed take a list, one value for each server:
///
///   balanza target --count 3 --workload poisson --speed 1,0.5,0.25
///
/// A server that does one thing at a time, with a short listen queue:
///
///   balanza target --workload matrix --connections 1 --no-keep-alive --backlog 128
///
/// Ctrl-C ends it.
#[derive(Clone, Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Options {
    /// Address to listen on, once for each server; port 0 takes any free one [default: 127.0.0.1:9001]
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub listen: Vec<SocketAddr>,

    /// Start so many servers, on the ports that follow the one given by --listen
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub count: Option<u16>,

    /// What a request costs [default: delay with --delay, else fixed]
    #[arg(long, value_enum, value_name = "KIND")]
    pub workload: Option<Kind>,

    /// Delay of the workload "delay", as in 10ms; granularity 1ms [default: 10ms]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub delay: Option<Duration>,

    /// Mean of the Poisson number of the workload "poisson" [default: 0.99]
    #[arg(long, value_name = "MEAN", value_parser = positive)]
    pub poisson_mean: Option<f64>,

    /// Delay for each unit of the Poisson number [default: 100ms]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub poisson_step: Option<Duration>,

    /// Rows and columns of the matrices of the workload "matrix" [default: 20]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub matrix_size: Option<u16>,

    /// Turns of the workload "loop" [default: 50000]
    #[arg(long, value_name = "N")]
    pub turns: Option<u64>,

    /// How fast a server is: divides delays and CPU work, 0.5 = half as fast
    #[arg(long, value_name = "FACTOR", value_parser = positive, value_delimiter = ',', default_value = "1")]
    pub speed: Vec<f64>,

    /// Requests that one server works on at once, others wait in order [default: unlimited]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub concurrency: Option<u32>,

    /// Connections that one server accepts at once, others wait in the listen queue [default: unlimited]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub connections: Option<u32>,

    /// Length of the listen queue, where connections wait to be accepted
    #[arg(long, value_name = "N", default_value_t = 511)]
    pub backlog: u16,

    /// Threads of one server that read and answer; CPU work has as many of its own
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub threads: u16,

    /// Size of the answer's body, as in 200, 16k, 1m [default: just the server's name]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub body_size: Option<usize>,

    /// Status of the answers
    #[arg(long, value_name = "CODE", default_value_t = 200, value_parser = clap::value_parser!(u16).range(200..=599))]
    pub status: u16,

    /// Close every connection after one answer
    #[arg(long)]
    pub no_keep_alive: bool,

    /// Name that the answers carry; several servers number themselves NAME-1, NAME-2 [default: ADDRESS:PORT]
    #[arg(long, value_name = "NAME", value_parser = header_value, value_delimiter = ',')]
    pub name: Vec<String>,

    /// Seed of the random numbers: the same seed, the same sequence of delays [default: another each time]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
}

/// The kinds of workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// Answer at once
    Fixed,
    /// Wait for --delay
    Delay,
    /// Wait for --poisson-step times a Poisson number of mean --poisson-mean: 100ms x Poisson(0.99)
    Poisson,
    /// Fill two 20x20 matrices with random numbers and multiply them (--matrix-size)
    Matrix,
    /// Run a loop of 50000 turns (--turns)
    Loop,
}

impl Options {
    /// The targets that these options describe, in order.
    ///
    /// Errors: an option of another workload than the chosen one; lists of another length than the servers; too few ports.
    pub fn targets(&self) -> anyhow::Result<Vec<Target>> {
        let addresses = self.addresses()?;
        let count = addresses.len();
        let workload = self.workload()?;
        for (option, values) in [("--speed", self.speed.len()), ("--name", self.name.len())] {
            ensure!(
                values <= 1 || values == count,
                "{option} has {values} values for {count} servers: give one, or one for each"
            );
        }
        let seed = self.seed.unwrap_or_else(rand::random);
        let target = |(index, listen): (usize, SocketAddr)| Target {
            name: match self.name.as_slice() {
                [] => String::new(),
                [name] if count > 1 => format!("{name}-{}", index + 1),
                [name] => name.clone(),
                names => names[index].clone(),
            },
            listen,
            workload,
            speed: self.speed.get(index).or(self.speed.first()).copied().unwrap_or(1.0),
            concurrency: self.concurrency.map(|n| n as usize),
            connections: self.connections.map(|n| n as usize),
            backlog: self.backlog,
            threads: usize::from(self.threads),
            body_size: self.body_size,
            status: self.status,
            keep_alive: !self.no_keep_alive,
            seed: seed.wrapping_add(index as u64),
        };
        Ok(addresses.into_iter().enumerate().map(target).collect())
    }

    fn addresses(&self) -> anyhow::Result<Vec<SocketAddr>> {
        let listen = if self.listen.is_empty() { vec![Target::default().listen] } else { self.listen.clone() };
        let Some(count) = self.count else { return Ok(listen) };
        let [first] = listen[..] else { bail!("--count takes one --listen, the first server's, not {}", listen.len()) };
        let address = |offset: u16| {
            let port = if first.port() == 0 { Some(0) } else { first.port().checked_add(offset) };
            port.map(|port| SocketAddr::new(first.ip(), port))
        };
        match (0..count).map(address).collect() {
            Some(addresses) => Ok(addresses),
            None => bail!("{count} servers from port {} on need ports above 65535", first.port()),
        }
    }

    fn workload(&self) -> anyhow::Result<Workload> {
        let kind = self.workload.unwrap_or(if self.delay.is_some() { Kind::Delay } else { Kind::Fixed });
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
        Ok(match kind {
            Kind::Fixed => Workload::Fixed,
            Kind::Delay => Workload::Delay(self.delay.unwrap_or(Duration::from_millis(10))),
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

fn positive(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(number) if (1e-3..=1e3).contains(&number) => Ok(number),
        Ok(_) => Err("must be between 0.001 and 1000".into()),
        Err(_) => Err("not a number".into()),
    }
}

/// A name travels in a header, so it is printable ASCII.
fn header_value(text: &str) -> Result<String, String> {
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic()) {
        Ok(text.to_owned())
    } else {
        Err("must be printable ASCII without spaces".into())
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

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
        ] {
            assert_eq!(targets(line).unwrap()[0].workload, workload, "{line}");
        }
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
            "--speed 0",
            "--delay 10",
            "--status 100",
            "--name a\u{e9}",
        ];
        let text = lines.map(|line| format!("{line}\n    {}", targets(line).unwrap_err().lines().next().unwrap()));
        insta::assert_snapshot!(text.join("\n"));
    }
}
