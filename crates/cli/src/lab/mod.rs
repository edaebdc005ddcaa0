//! `balanza lab`: experiments on real processes.

mod plans;
mod run;
mod screen;

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use balanza_lab::environment::Environment;
use balanza_lab::record::Run;
use balanza_lab::report::{self, Side};
use balanza_lab::results;
use balanza_lab::statistics::summarize;
use balanza_lab::summary::Summary;
use clap::{Args, Subcommand};

use crate::output::{self, colour, failure};

/// Repeat experiments on real processes: servers, balancers side by side, load.
///
/// A plan defines the servers, the systems that balance them (Balanza, NGINX,
/// HAProxy, or no balancer), the algorithms and the load. The lab starts all of
/// them on this machine, measures each combination several times in random order,
/// and reports which algorithm is best and by how much, or that the difference is
/// inconclusive.
///
///   balanza lab list                            the plans that come with the program
///   balanza lab show unicamp-2021               what a plan does and how long it takes
///   balanza lab run unicamp-2021 --quick        a short run of about two minutes
///   balanza lab run unicamp-2021 --resume       continue an interrupted run
///   balanza lab run own.toml --only system=nginx,load=250
///   balanza lab report balanza-lab/unicamp-2021 --markdown
///   balanza lab compare before/ after/
///   balanza lab doctor                          which tools are missing
///
/// docs/lab.md describes the format of plans and the method.
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub struct Options {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// List the plans that come with the program
    List {
        /// As JSON: name, title, seconds, quick_seconds
        #[arg(long)]
        json: bool,
    },
    /// Show what a plan does and how long it takes
    Show(plans::Show),
    /// Run a plan and write its report
    Run(Box<run::Options>),
    /// Show the results in a directory and write the report again
    Report(ReportOptions),
    /// Compare two directories of results
    Compare {
        /// The directory to compare with
        before: PathBuf,
        /// The directory to compare
        after: PathBuf,
    },
    /// Check the tools that the plans need, and print the command that installs missing ones
    Doctor {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Args)]
struct ReportOptions {
    /// The directory that `lab run` wrote
    directory: PathBuf,
    /// Print Markdown
    #[arg(long, group = "form")]
    markdown: bool,
    /// Print all results as JSON
    #[arg(long, group = "form")]
    json: bool,
    /// Print the columns of Locust's statistics as CSV
    #[arg(long, group = "form")]
    csv: bool,
}

/// Does what was asked for. The status is 130 for an interrupted run, and 2 if checks fail with --strict.
pub fn run(options: Options) -> ExitCode {
    let done = match options.what {
        What::List { json } => plans::list(json),
        What::Show(show) => plans::show(&show),
        What::Run(options) => return run::run(&options).unwrap_or_else(|error| failure(&error)),
        What::Report(options) => show_results(&options),
        What::Compare { before, after } => compare(&before, &after),
        What::Doctor { json } => {
            let found = balanza_lab::doctor::examine();
            print(&if json { found.json() } else { found.text() })
        }
    };
    done.map_or_else(|error| failure(&error), |()| ExitCode::SUCCESS)
}

/// Results with what they come to.
struct Read {
    summary: Summary,
    environment: Environment,
    runs: Vec<Run>,
}

/// Reads a directory of results.
fn read(directory: &Path) -> anyhow::Result<Read> {
    let kept = results::open(directory)?;
    anyhow::ensure!(!kept.runs.is_empty(), "{} has no finished run yet", directory.display());
    let summary = summarize(&kept.plan, &kept.runs, &kept.left_out);
    Ok(Read { summary, environment: kept.environment, runs: kept.runs })
}

fn show_results(options: &ReportOptions) -> anyhow::Result<()> {
    let Read { summary, environment, runs } = read(&options.directory)?;
    if options.markdown {
        return print(&report::markdown(&summary, &environment));
    }
    if options.json {
        return print(&report::json(&summary, &environment)?);
    }
    if options.csv {
        return print(&report::csv(&summary));
    }
    print(&report::terminal(&summary, width(), colour()))?;
    write(&summary, &environment, &runs, &options.directory)
}

/// Writes the report's files and says where they are.
fn write(summary: &Summary, environment: &Environment, runs: &[Run], directory: &Path) -> anyhow::Result<()> {
    let shown = directory.display();
    report::write(summary, environment, runs, directory)
        .with_context(|| format!("the report could not be written; to try again: balanza lab report {shown}"))?;
    output::say(&format!("balanza: the report is {}", directory.join("report.html").display()));
    Ok(())
}

fn compare(before: &Path, after: &Path) -> anyhow::Result<()> {
    let (first, second) = (read(before)?, read(after)?);
    let names = [before, after].map(|path| path.display().to_string());
    let first = Side { name: &names[0], summary: &first.summary, environment: &first.environment };
    let second = Side { name: &names[1], summary: &second.summary, environment: &second.environment };
    print(&report::compare(first, second, width(), colour()))
}

/// Columns of the terminal; 100 where there is none.
fn width() -> usize {
    let terminal = io::stdout().is_terminal().then(terminal_size::terminal_size).flatten();
    terminal.map_or(100, |(width, _)| usize::from(width.0))
}

fn print(text: &str) -> anyhow::Result<()> {
    output::print(&format!("{}\n", text.trim_end_matches('\n')))
}
