//! `balanza lab run`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use balanza_lab::plan::Plan;
use balanza_lab::runner;
use balanza_lab::statistics::summarize;
use balanza_lab::summary::Summary;
use balanza_lab::{report, signals};
use clap::Args;

use super::screen::Screen;
use super::{colour, plans, print, width, write};
use crate::output::say;

const INTERRUPTED: u8 = 130;
const UNEXPECTED: u8 = 2;

/// What `lab run` is told.
#[derive(Args)]
#[command(after_help = "\
Ctrl-C ends a run in order: servers and balancers are stopped, finished runs are
kept, and --resume goes on with the others.

Exit status: 0 done; 1 an error; 2 with --strict, a claim did not come out as it
must, or cannot be told; 130 interrupted.")]
pub struct Options {
    /// A plan that comes with the program, or a file
    plan: PathBuf,

    /// Two minutes instead of many: fewer repetitions and combinations, shorter loads
    #[arg(long)]
    quick: bool,

    /// The directory of the results [default: balanza-lab/PLAN, with --quick balanza-lab/PLAN-quick]
    #[arg(long, short, value_name = "DIR")]
    out: Option<PathBuf>,

    /// Only combinations of these parts: PART=NAME or NAME, separated by commas; PART is farm, system, algorithm or load
    #[arg(long, value_name = "FILTER")]
    only: Vec<String>,

    /// Keep the finished runs in the directory and do what is missing
    #[arg(long)]
    resume: bool,

    /// Measure each combination so often, instead of what the plan says; intervals need 3
    #[arg(long, short, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    repetitions: Option<u32>,

    /// Everything random comes from it, instead of from the plan's
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    /// Print everything as JSON in the end, instead of a summary
    #[arg(long)]
    json: bool,

    /// Fail if a claim does not come out as it must
    #[arg(long)]
    strict: bool,
}

impl Options {
    fn plan(&self) -> anyhow::Result<Plan> {
        let whole = plans::find(&self.plan)?;
        let mut plan = if self.quick { whole.quick() } else { whole.clone() };
        plan.repetitions = self.repetitions.unwrap_or(plan.repetitions);
        plan.seed = self.seed.unwrap_or(plan.seed);
        let plan = plan.only(&self.only).map_err(anyhow::Error::msg)?;
        let (asked, all) = (plan.checks.len(), whole.checks.len());
        if asked < all {
            say(&format!(
                "{asked} of the plan's {all} claims are asked; the others need combinations that are not run"
            ));
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

/// Whether a claim did not come out as it must.
fn unexpected(summary: &Summary) -> bool {
    summary.checks.iter().any(|check| check.expected != Some(true))
}
