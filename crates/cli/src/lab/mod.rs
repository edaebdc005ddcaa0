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

use crate::commands::failure;
use crate::output;

/// Repeat experiments on real processes: servers, balancers side by side, load.
///
/// A plan says which servers there are, which systems balance them (Balanza,
/// NGINX, HAProxy, nobody), by which algorithms, and what arrives. The lab starts
/// all of it on this machine, measures every combination several times in random
/// order, and tells which algorithm is best, by how much, or that no difference
/// can be shown.
///
///   balanza lab list                            what comes with the program
///   balanza lab show unicamp-2021               what it does, and for how long
///   balanza lab run unicamp-2021 --quick        two minutes
///   balanza lab run unicamp-2021 --resume       where an interrupted one ended
///   balanza lab run own.toml --only system=nginx,load=250
///   balanza lab report balanza-lab/unicamp-2021 --markdown
///   balanza lab compare before/ after/
///   balanza lab doctor                          which tools are missing
///
/// docs/lab.md has the plans' format and the method.
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
    /// Show what a plan does, and how long it takes
    Show(plans::Show),
    /// Run a plan and write its report
    Run(Box<run::Options>),
    /// Show the results in a directory, and write their report anew
    Report(ReportOptions),
    /// Compare two directories of results, cell by cell
    Compare {
        /// Results: those to compare with
        before: PathBuf,
        /// Results: those that may have changed
        after: PathBuf,
    },
    /// Tell which tools the plans need are there, and the command that installs the others
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
    /// Print everything as JSON
    #[arg(long, group = "form")]
    json: bool,
    /// Print the columns of Locust's statistics as CSV
    #[arg(long, group = "form")]
    csv: bool,
}

/// Does what was asked for. The status is 130 for a run that was interrupted, and 2 for one whose claims fail under
/// --strict.
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
        .with_context(|| format!("the report could not be written; balanza lab report {shown} writes it anew"))?;
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

fn colour() -> bool {
    io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none()
}

fn print(text: &str) -> anyhow::Result<()> {
    output::print(&format!("{}\n", text.trim_end_matches('\n')))
}
