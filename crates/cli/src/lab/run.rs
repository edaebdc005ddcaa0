//! `balanza lab run`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use balanza_lab::plan::{Plan, System};
use balanza_lab::runner;
use balanza_lab::statistics::summarize;
use balanza_lab::summary::Summary;
use balanza_lab::system::Programs;
use balanza_lab::{report, signals};
use clap::Args;

use super::screen::Screen;
use super::{colour, plans, print, width, write};
use crate::output::say;

const INTERRUPTED: u8 = 130;
const UNEXPECTED: u8 = 2;

/// The arguments of `lab run`.
#[derive(Args)]
#[command(after_help = "\
Ctrl-C stops servers and balancers and keeps the finished runs; --resume continues
with the others.

Exit status: 0 done; 1 error; 2 with --strict, if a check did not give the expected
result or is inconclusive; 130 interrupted.")]
pub struct Options {
    /// A plan that comes with the program, or a file
    plan: PathBuf,

    /// About two minutes: fewer repetitions and combinations, shorter loads
    #[arg(long)]
    quick: bool,

    /// The directory for the results [default: balanza-lab/PLAN, with --quick balanza-lab/PLAN-quick]
    #[arg(long, short, value_name = "DIR")]
    out: Option<PathBuf>,

    /// Only combinations of these parts: PART=NAME or NAME, separated by commas; PART is farm, system, algorithm or load
    #[arg(long, value_name = "FILTER")]
    only: Vec<String>,

    /// Add Caddy, with the algorithms that it has, beside the balancers of the plan, if it is installed
    #[arg(long)]
    peers: bool,

    /// Keep the finished runs in the directory and run the missing ones
    #[arg(long)]
    resume: bool,

    /// Repetitions of each combination, instead of those of the plan; intervals need 3
    #[arg(long, short, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    repetitions: Option<u32>,

    /// The seed of all random numbers, instead of that of the plan
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    /// Print all results as JSON instead of a summary
    #[arg(long)]
    json: bool,

    /// Fail if a check does not give the expected result
    #[arg(long)]
    strict: bool,
}

impl Options {
    fn plan(&self) -> anyhow::Result<Plan> {
        let mut whole = plans::find(&self.plan)?;
        if self.peers {
            match Programs::find().caddy {
                Some(_) => whole = whole.with_peer(&System::Caddy),
                None => say("--peers adds Caddy, which is not installed: apt-get install caddy; the others are run"),
            }
        }
        let mut plan = if self.quick { whole.quick() } else { whole.clone() };
        plan.repetitions = self.repetitions.unwrap_or(plan.repetitions);
        plan.seed = self.seed.unwrap_or(plan.seed);
        let plan = plan.only(&self.only).map_err(anyhow::Error::msg)?;
        let (asked, all) = (plan.checks.len(), whole.checks.len());
        if asked < all {
            say(&format!("{asked} of {all} checks are evaluated; the others need combinations that are not run"));
        }
        Ok(plan)
    }

    fn out(&self, plan: &Plan) -> PathBuf {
        let name = if self.quick { format!("{}-quick", plan.name) } else { plan.name.clone() };
        self.out.clone().unwrap_or_else(|| PathBuf::from("balanza-lab").join(name))
    }
}

/// Runs a plan.
pub fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let plan = options.plan()?;
    let stop = signals::flag().context("signals cannot be watched")?;
    let how = runner::Options { out: options.out(&plan), resume: options.resume };
    let screen = Screen::new();
    let outcome = runner::run(&plan, &how, &screen, &stop);
    screen.clear();
    let outcome = outcome?;
    if let Some(advice) = outcome.advice(&how) {
        say(&format!("balanza: {advice}"));
        return Ok(ExitCode::from(INTERRUPTED));
    }
    let summary = summarize(&plan, &outcome.runs, &outcome.left_out);
    if options.json {
        print(&report::json(&summary, &outcome.environment)?)?;
    } else {
        print(&report::terminal(&summary, width(), colour()))?;
    }
    write(&summary, &outcome.environment, &outcome.runs, &how.out)?;
    Ok(if options.strict && unexpected(&summary) { ExitCode::from(UNEXPECTED) } else { ExitCode::SUCCESS })
}

/// Whether a check did not give the expected result.
fn unexpected(summary: &Summary) -> bool {
    summary.checks.iter().any(|check| check.expected != Some(true))
}
