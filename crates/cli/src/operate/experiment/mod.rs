//! `balanza experiment`: methods of an upstream that take turns, started, shown and stopped by the API.

mod table;

use std::process::ExitCode;

use anyhow::bail;
use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};

use super::{Common, PAUSE, Protocol};
use crate::output;

/// The exit code of an experiment that a guard or something else has ended.
const BROKEN_OFF: u8 = 2;

/// Compare balancing methods in production, in blocks of time.
///
/// The method of an upstream and the arms of the experiment take turns. The upstream needs a `zone`, and the configuration a location with
/// "api write=on;".
#[derive(Args)]
pub struct Experiment {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    List(List),
    Show(Show),
    Start(Box<Start>),
    Stop(Stop),
}

/// List the experiments that are configured, run or have ended.
#[derive(Args)]
struct List {
    #[command(flatten)]
    common: Common,
}

/// Show the experiment of an upstream: its arms, and what follows so far.
///
/// The exit code is 0, 1 if there is none, 2 if a guard or something else has ended it before its time, 3 if the API cannot be
/// reached.
#[derive(Args)]
struct Show {
    /// The upstream.
    upstream: String,
    /// Wait until it has ended.
    #[arg(long)]
    wait: bool,
    #[command(flatten)]
    common: Common,
}

/// Begin an experiment.
///
/// What is not given is as `experiment` in the configuration says, and otherwise its default. The exit code is 0 if it is done, 1 if
/// it is refused, 3 if the API cannot be reached.
#[derive(Args)]
struct Start {
    /// The upstream.
    upstream: String,
    /// A method that is compared with that of the upstream, as in a configuration; several times for several.
    #[arg(long, value_name = "METHOD")]
    arm: Vec<String>,
    /// How long an arm runs: 60s, 5m.
    #[arg(long, value_name = "TIME")]
    block: Option<String>,
    /// The beginning of a block, which does not count.
    #[arg(long, value_name = "TIME")]
    washout: Option<String>,
    /// How many blocks of each arm.
    #[arg(long, value_name = "NUMBER")]
    rounds: Option<u64>,
    /// Of the order of the blocks.
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,
    /// Guard: the part of the requests that may fail, as in 5%.
    #[arg(long, value_name = "PERCENT")]
    errors: Option<String>,
    /// Guard: the longest p99, as in 500ms.
    #[arg(long, value_name = "TIME")]
    p99: Option<String>,
    /// Guard: the greatest ratio of an arm's p99 to that of the upstream's method, as in 1.5.
    #[arg(long, value_name = "NUMBER")]
    p99_ratio: Option<f64>,
    /// Guard: the part of the servers' max_conns that may be in use, as in 90%.
    #[arg(long, value_name = "PERCENT")]
    full: Option<String>,
    /// Requests of a block before a guard judges it.
    #[arg(long, value_name = "NUMBER")]
    requests: Option<u64>,
    #[command(flatten)]
    common: Common,
}

/// End the experiment of an upstream and go back to its method.
///
/// The exit code is 0 if it is done, 1 if none runs or it is refused, 3 if the API cannot be reached.
#[derive(Args)]
struct Stop {
    /// The upstream.
    upstream: String,
    #[command(flatten)]
    common: Common,
}

impl Start {
    /// The body of the request.
    fn body(&self) -> Value {
        let Start { block, washout, rounds, seed, errors, p99, p99_ratio, full, requests, .. } = self;
        let text = |value: &Option<String>| value.as_deref().map(Value::from);
        let arms = (!self.arm.is_empty()).then(|| json!(self.arm));
        let given = [
            ("arms", arms),
            ("block", text(block)),
            ("washout", text(washout)),
            ("rounds", rounds.map(Value::from)),
            ("seed", seed.map(Value::from)),
            ("errors", text(errors)),
            ("p99", text(p99)),
            ("p99_ratio", p99_ratio.map(Value::from)),
            ("full", text(full)),
            ("requests", requests.map(Value::from)),
        ];
        let given = given.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
        given.collect::<Map<String, Value>>().into()
    }
}

impl Common {
    /// The path of the experiment of an upstream.
    fn experiment(&self, upstream: &str) -> anyhow::Result<String> {
        let mut found = Vec::new();
        for protocol in [Protocol::Http, Protocol::Stream] {
            let name = protocol.name();
            if self.protocol.is_none_or(|it| it == protocol)
                && self.url.ask("GET", &format!("balanza/{name}/upstreams"), None)?.get(upstream).is_some()
            {
                found.push(format!("balanza/{name}/upstreams/{upstream}/experiment"));
            }
        }
        match found.len() {
            0 => bail!("there is no upstream \"{upstream}\""),
            1 => Ok(found.remove(0)),
            _ => bail!("http and stream have an upstream \"{upstream}\": add --protocol http or --protocol stream"),
        }
    }

    fn show_experiment(&self, experiment: &Value) -> anyhow::Result<()> {
        output::print(&match self.json {
            true => format!("{experiment:#}\n"),
            false => table::whole(experiment),
        })
    }
}

/// Does what the command line says.
pub fn run(options: &Experiment) -> ExitCode {
    match &options.action {
        Action::List(List { common }) => common.finish((|| {
            let all = common.url.ask("GET", "balanza/experiments", None)?;
            let text = if common.json { format!("{all:#}\n") } else { table::list(&all) };
            output::print(&text)?;
            Ok(ExitCode::SUCCESS)
        })()),
        Action::Show(Show { upstream, wait, common }) => common.finish((|| {
            let path = common.experiment(upstream)?;
            let mut shown = common.url.ask("GET", &path, None)?;
            while *wait && shown["state"] == "running" {
                std::thread::sleep(PAUSE);
                shown = common.url.ask("GET", &path, None)?;
            }
            common.show_experiment(&shown)?;
            let is_broken_off = matches!(shown["state"].as_str(), Some("guard" | "disturbed"));
            Ok(if is_broken_off { ExitCode::from(BROKEN_OFF) } else { ExitCode::SUCCESS })
        })()),
        Action::Start(start) => start.common.finish((|| {
            let path = start.common.experiment(&start.upstream)?;
            let shown = start.common.url.ask("POST", &path, Some(&start.body().to_string()))?;
            start.common.show_experiment(&shown)?;
            Ok(ExitCode::SUCCESS)
        })()),
        Action::Stop(Stop { upstream, common }) => common.finish((|| {
            let path = common.experiment(upstream)?;
            common.show_experiment(&common.url.ask("DELETE", &path, None)?)?;
            Ok(ExitCode::SUCCESS)
        })()),
    }
}
