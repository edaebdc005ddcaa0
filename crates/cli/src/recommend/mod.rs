//! `balanza recommend`: which algorithm for these servers, from their access logs.

mod given;
mod screen;

use std::path::PathBuf;

use anyhow::Context;
use balanza_recommend::read::{self, Input};
use balanza_recommend::report;
use balanza_recommend::study::{Question, study};
use balanza_recommend::trial::Truth;
use balanza_recommend::verdict::{Answer, Goal};
use clap::{Args, ValueEnum};

use crate::output::print;
use given::Given;

/// Recommend an algorithm from access logs.
///
/// Reads access logs of NGINX or Balanza, finds from the response times what each
/// server can do, simulates the algorithms on that model with the arrivals of the
/// log, and says which one is best, by how much, and how far the model is off.
/// The log is not replayed: response times under one algorithm are not those
/// under another.
///
///   balanza recommend -c /etc/nginx/nginx.conf /var/log/nginx/access.log
///   balanza recommend --goal mean access.log access.log.1 access.log.2.gz
///   balanza recommend --goal servers --target 200ms -c nginx.conf access.log
///   balanza recommend --format '$msec $upstream_addr $upstream_response_time' access.log
///   balanza recommend --sample > access.log
///
/// The log needs $upstream_addr, $upstream_response_time and $msec; a log without
/// them is refused, with the log_format to use. Files may be compressed by gzip,
/// and - is standard input. Lines of JSON with the names of variables as keys need
/// no format. The response time is that of the servers, retries included, without
/// the way to the client.
///
/// The answer is a change of the upstream block, "stay", or "inconclusive". What
/// the log cannot show is said: a server that was never busy has no known capacity.
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub struct Options {
    /// Access logs, plain or compressed by gzip, in any order; - is standard input
    #[arg(required_unless_present = "sample", value_name = "ACCESS_LOG")]
    files: Vec<PathBuf>,

    /// The configuration that wrote the log: its log_format, and the upstream block with the algorithm and the weights
    /// [default: round robin with equal weights]
    #[arg(short = 'c', long = "conf", value_name = "FILE")]
    file: Option<PathBuf>,

    /// The upstream to look at, if the configuration has several [default: the one with most requests in the log]
    #[arg(long, value_name = "NAME", requires = "file")]
    upstream: Option<String>,

    /// The name of a log_format of the configuration, or its text [default: the one that fits the lines]
    #[arg(long, value_name = "FORMAT")]
    format: Option<String>,

    /// How values of --format are escaped
    #[arg(long, value_name = "ESCAPE", default_value = "default")]
    escape: Escape,

    /// The algorithm that was in operation, as after balance in nginx.conf, if there is no configuration
    #[arg(long, value_name = "ALGORITHM", conflicts_with = "file")]
    current: Option<String>,

    /// What is to be best
    #[arg(long, value_name = "GOAL", default_value = "p99")]
    goal: GoalName,

    /// The p99 that --goal servers has to keep: 200ms, 1.5s
    #[arg(long, value_name = "TIME", required_if_eq("goal", "servers"))]
    target: Option<balanza_simulator::scenario::Time>,

    /// What a change has to be worth, in percent of the goal's figure; less is answered with "stay"
    #[arg(long, value_name = "PERCENT", default_value_t = 3.0, value_parser = worth)]
    worth: f64,

    /// Runs of each candidate, for the intervals
    #[arg(long, short, value_name = "R", default_value_t = 10, value_parser = clap::value_parser!(u32).range(2..=100))]
    replications: u32,

    /// Seed of all random numbers; the same seed and log give the same answer
    #[arg(long, short, value_name = "S", default_value_t = 1)]
    seed: u64,

    /// Write report.html and results.json into this directory
    #[arg(long, short, value_name = "DIR")]
    out: Option<PathBuf>,

    /// Print JSON
    #[arg(long)]
    json: bool,

    /// Print a log of 30,000 requests to simulated servers of different speed, to try this command with
    #[arg(long, exclusive = true)]
    sample: bool,
}

/// The values of `--goal`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum GoalName {
    /// The response time that 99 of 100 requests stay below
    P99,
    /// The mean response time
    Mean,
    /// The part of failed requests
    Errors,
    /// The number of servers that keep the p99 below --target
    Servers,
}

/// The values of `--escape`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Escape {
    Default,
    Json,
    None,
}

fn worth(text: &str) -> Result<f64, String> {
    text.parse().ok().filter(|percent| (0.0..=90.0).contains(percent)).ok_or_else(|| "a number from 0 to 90".into())
}

/// Reads, studies, answers.
pub fn run(options: &Options) -> anyhow::Result<()> {
    if options.sample {
        return print(&Truth::sample().lines(30_000));
    }
    if let Some(out) = &options.out {
        std::fs::create_dir_all(out).with_context(|| format!("--out {}", out.display()))?;
    }
    let given = Given::new(options)?;
    let mut input = Input { files: options.files.clone(), formats: given.formats.clone(), ..Input::default() };
    let mut block = given.block(&input)?;
    if let Some(block) = &block {
        input.key = block.key();
        input.only = block.addresses();
    }
    let log = screen::reading(&input)?;
    let current = match (&mut block, &options.current) {
        (Some(block), _) => block.current(),
        (None, Some(text)) => given::stated(text)?,
        (None, None) => Default::default(),
    };
    let goal = match options.goal {
        GoalName::P99 => Goal::P99,
        GoalName::Mean => Goal::Mean,
        GoalName::Errors => Goal::Errors,
        GoalName::Servers => Goal::Servers,
    };
    let question = Question {
        goal,
        target: options.target.map(|time| time.secs()),
        worth: options.worth / 100.0,
        current,
        seed: options.seed,
        replications: options.replications as usize,
    };
    let study = crate::simulate::watched(|progress| study(&log, &question, progress))?;
    let names: Vec<String> = study.servers.iter().map(|server| server.name.clone()).collect();
    let diff = match (study.verdict.answer, &block) {
        (Answer::Change(index), Some(block)) => block.diff(&study.outcomes[index].candidate, &names),
        _ => String::new(),
    };
    if let Some(directory) = &options.out {
        report::write(&study, &diff, directory).with_context(|| directory.display().to_string())?;
        eprintln!("balanza: the report is {}", directory.join("report.html").display());
    }
    if options.json {
        print(&format!("{}\n", report::json(&study, &diff)?))
    } else {
        print(&report::text(&study, &diff))
    }
}

/// Reads the log without a screen.
fn quietly(input: &Input) -> anyhow::Result<balanza_recommend::log::Log> {
    Ok(read::read(input, &Default::default())?)
}
