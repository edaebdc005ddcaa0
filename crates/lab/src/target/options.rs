//! The command line of `balanza target`; [`meaning`](super::meaning) has what it means.

use std::net::SocketAddr;
use std::time::Duration;

use clap::ValueEnum;

use super::{Discipline, Distribution, Service};
use crate::units::{parse_duration, parse_size};

/// Start small HTTP servers whose cost for each request is known, to have
/// something to balance.
///
/// Every answer names its server in the header X-Server and in the body.
/// GET /_target/stats answers with the server's counters as JSON and counts
/// nothing. GET /balanza-load answers probes of `balance prequal`, as its paper
/// says: requests in flight, and the median time of recent requests that found
/// about as many. --control opens a port that answers these two, however full
/// the server is. There, GET /_target/change?slower=4 makes the server slower and
/// GET /_target/change?failing=on makes it answer 503; slower=1 and failing=off
/// undo that.
/// --name and --speed take a list, one value for each server:
///
///   balanza target --count 3 --workload poisson --speed 1,0.5,0.25
///
/// A server works in one of two ways. With --service burn it computes, on a
/// processor of this machine. With --service virtual a request holds one of
/// --concurrency workers for its service time and uses no processor, so that
/// many servers, each as slow as you like, fit on one machine. When each
/// request ends is computed from the arrivals, so a serial server of 1.31ms
/// answers 763 requests a second, neither fewer nor more:
///
///   balanza target --time 1.31ms --concurrency 1
///
/// A server that takes one connection at a time and leaves the others in a
/// short listen queue, where the kernel drops those that find it full; first
/// in virtual time, then multiplying matrices for as long:
///
///   balanza target --time 6.81ms --connections 1 --no-keep-alive --backlog 128
///   balanza target --workload matrix --time 6.81ms --connections 1 --no-keep-alive --backlog 128
///
/// A small virtual machine whose credits pay for 30 seconds of work at full
/// speed, and that is throttled to 27% when they are spent:
///
///   balanza target --time 6.81ms --concurrency 1 --credits 30s --credit-rate 0.1 --throttle 0.27
///
/// Ctrl-C ends it. SIGQUIT ends it after it has answered the requests that it has.
#[derive(Clone, Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Options {
    /// Address to listen on, once for each server; port 0 takes any free one [default: 127.0.0.1:9001]
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub listen: Vec<SocketAddr>,

    /// Start so many servers, on the ports that follow the one given by --listen
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub count: Option<u16>,

    /// Address that answers questions about the server alone, once for each; as --listen with --count
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub control: Vec<SocketAddr>,

    /// What a request costs [default: delay with --delay or --time, else fixed]
    #[arg(long, value_enum, value_name = "KIND")]
    pub workload: Option<Kind>,

    /// Whether a request computes or only takes its time [default: burn for matrix and loop, else virtual]
    #[arg(long, value_enum, value_name = "HOW")]
    pub service: Option<Service>,

    /// Service time of a request at speed 1; under burn so much processor time, in whole computations
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub time: Option<Duration>,

    /// How --time varies from request to request
    #[arg(long, value_enum, value_name = "HOW", default_value_t)]
    pub distribution: Distribution,

    /// Delay of the workload "delay", as in 10ms; the same as --time there [default: 10ms]
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

    /// Credits of a server, full at the start: seconds of work at full speed that they pay for, as in 30s
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub credits: Option<Duration>,

    /// Credits earned in each second, in seconds of work, 0 to 1 [default: 0.1]
    #[arg(long, value_name = "RATE", value_parser = part)]
    pub credit_rate: Option<f64>,

    /// Speed without credits, as a part of the full one [default: --credit-rate]
    #[arg(long, value_name = "FACTOR", value_parser = part)]
    pub throttle: Option<f64>,

    /// Requests that one server works on at once, others wait in order [default: unlimited]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub concurrency: Option<u32>,

    /// How requests share the workers of --concurrency, under virtual
    #[arg(long, value_enum, value_name = "HOW", default_value_t)]
    pub discipline: Discipline,

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

    /// Answers say how busy the server is, in the header X-Load, for `load_report header X-Load`: its
    /// requests as a part of --concurrency, 1 = as many as it works on at once
    #[arg(long, requires = "concurrency")]
    pub report_load: bool,

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
    /// Take --delay, 10ms
    Delay,
    /// Take --poisson-step times a Poisson number of mean --poisson-mean: 100ms x Poisson(0.99)
    Poisson,
    /// Fill two 20x20 matrices with random numbers and multiply them (--matrix-size)
    Matrix,
    /// Run a loop of 50000 turns (--turns)
    Loop,
}

fn positive(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(number) if (1e-3..=1e3).contains(&number) => Ok(number),
        Ok(_) => Err("must be between 0.001 and 1000".into()),
        Err(_) => Err("not a number".into()),
    }
}

fn part(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(number) if (0.0..=1.0).contains(&number) => Ok(number),
        Ok(_) => Err("must be between 0 and 1".into()),
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
