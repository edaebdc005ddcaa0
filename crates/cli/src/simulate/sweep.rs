//! `balanza simulate sweep`: a scenario with some of its values varied.

use std::collections::HashMap;
use std::io::{self, BufRead as _, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use balanza_plot::columns;
use balanza_sweep::summary::{self, Point};
use balanza_sweep::{Journal, Record, Sweep, Unit, report, side_by_side};
use clap::Args;
use serde_json::json;

use super::dask::{self, Cluster};
use super::screen::Meter;
use crate::output::{colour, print, say};

/// Run a scenario with some of its values varied: algorithms x loads x sizes x seeds.
///
/// A finished run is kept at once. The same command goes on after an interruption,
/// and after a change of the plan it runs only what is new. All algorithms get the
/// same requests from the same seed. The files of the results do not depend on
/// where, when and by how many processes they were made. docs/simulator.md has the
/// form of a plan, and how a cluster of Dask takes part.
///
///   balanza simulate sweep plan.toml
///   balanza simulate sweep plan.toml --on dask://10.0.0.1:8786
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub struct Options {
    /// The plan: a file
    #[arg(required_unless_present = "units")]
    plan: Option<PathBuf>,

    /// The directory of the results [default: balanza-sweep/PLAN]
    #[arg(long, short, value_name = "DIR")]
    out: Option<PathBuf>,

    /// Runs at a time [default: the number of processors]
    #[arg(long, short, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    jobs: Option<u16>,

    /// Run on the workers of a Dask cluster
    #[arg(long, value_name = "dask://HOST:PORT", value_parser = dask::address, conflicts_with = "jobs")]
    on: Option<String>,

    /// The Python with the package balanza-sweep, for --on
    #[arg(long, value_name = "PROGRAM", default_value = "python3", requires = "on", hide_default_value = true)]
    python: PathBuf,

    /// Where the workers of a cluster have this program [default: where it is here]
    #[arg(long, value_name = "FILE", requires = "on")]
    worker_binary: Option<PathBuf>,

    /// Print the runs, and which of them are done
    #[arg(long, conflicts_with = "on")]
    dry_run: bool,

    /// Do this run alone, print its record, and keep nothing
    #[arg(long, value_name = "ID", conflicts_with_all = ["on", "dry_run", "out"])]
    run: Option<String>,

    /// Read runs as lines of JSON from standard input, and print the record of each: what workers do
    #[arg(long, hide = true, exclusive = true)]
    units: bool,

    /// Print the runs with their results as lines of JSON
    #[arg(long)]
    json: bool,
}

/// Runs it.
pub fn run(options: &Options) -> anyhow::Result<()> {
    let Some(file) = options.plan.as_deref().filter(|_| !options.units) else { return units() };
    let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
    let sweep = Sweep::read(file, &text).map_err(|error| {
        let colour = io::stderr().is_terminal() && colour();
        anyhow::anyhow!("the plan {} cannot be used\n{}", file.display(), error.render(colour).trim_end())
    })?;
    if let Some(id) = &options.run {
        return one(&sweep, id);
    }
    let name = file.file_stem().unwrap_or(file.as_os_str());
    let out = options.out.clone().unwrap_or_else(|| Path::new("balanza-sweep").join(name));
    if options.dry_run {
        return list(&sweep, &Journal::peek(&out)?, options.json);
    }
    let mut journal = Journal::open(&out)?;
    perform(options, &sweep, &mut journal)?;
    journal.sync()?;
    report::write(&sweep, &text, &journal)?;
    say(&format!("balanza: the report is {}", out.join("report.html").display()));
    if options.json {
        return print(&report::lines(&sweep, journal.records())?);
    }
    print(&overview(&sweep, &summary::points(&sweep, journal.records())))
}

/// Does the runs that are missing, and keeps each.
fn perform(options: &Options, sweep: &Sweep, journal: &mut Journal) -> anyhow::Result<()> {
    let missing: Vec<usize> = (0..sweep.len()).filter(|run| !journal.records().contains_key(&sweep.id(*run))).collect();
    if missing.is_empty() {
        return Ok(());
    }
    if missing.len() < sweep.len() {
        let done = sweep.len() - missing.len();
        say(&format!("balanza: {done} of {} runs are done already", sweep.len()));
    }
    let weight = |run: &usize| sweep.at(*run).0.requests;
    let weights: HashMap<String, f64> = missing.iter().map(|run| (sweep.id(*run), weight(run))).collect();
    let mut meter = Meter::new(missing.len(), weights.values().sum());
    let finished = |record: Record| {
        let weight = weights.get(&record.id).with_context(|| format!("run {} was not asked for", record.id))?;
        journal.add(record)?;
        meter.done(*weight);
        Ok(())
    };
    let unit = |at: usize| sweep.unit(missing[at]);
    match &options.on {
        Some(address) => {
            let cluster = Cluster { address, python: &options.python, binary: options.worker_binary.as_deref() };
            cluster.perform(missing.len(), unit, finished)
        }
        None => {
            let processors = || std::thread::available_parallelism().map_or(1, usize::from);
            let jobs = options.jobs.map_or_else(processors, usize::from);
            side_by_side(missing.len(), jobs.min(balanza_simulator::at_once(sweep.states())), unit, finished)
        }
    }
}

/// Performs what stands on standard input.
fn units() -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    for line in io::stdin().lock().lines() {
        writeln!(out, "{}", Unit::parse(&line?)?.perform()?.line()?)?;
        out.flush()?;
    }
    Ok(())
}

fn one(sweep: &Sweep, id: &str) -> anyhow::Result<()> {
    match (0..sweep.len()).find(|run| sweep.id(*run) == id) {
        Some(run) => print(&format!("{}\n", sweep.unit(run).perform()?.line()?)),
        None => bail!("the plan has no run {id}: --dry-run lists them"),
    }
}

fn list(sweep: &Sweep, records: &HashMap<String, Record>, json: bool) -> anyhow::Result<()> {
    let state = |done: bool| if done { "done" } else { "missing" };
    let mut done = 0;
    let mut text = String::new();
    for run in 0..sweep.len() {
        let (id, settings) = (sweep.id(run), sweep.settings(run));
        let is_done = records.contains_key(&id);
        done += usize::from(is_done);
        if json {
            let settings: serde_json::Map<_, _> = settings.into_iter().collect();
            let line = json!({ "id": id, "done": is_done, "settings": settings, "requests": sweep.at(run).0.requests });
            text.push_str(&format!("{line}\n"));
        } else {
            let words = settings.iter().map(|(title, value)| format!("{title} {}", report::shown(value)));
            text.push_str(&format!("{id}  {:7}  {}\n", state(is_done), words.collect::<Vec<_>>().join(", ")));
        }
    }
    if !json {
        let requests: f64 = (0..sweep.len()).map(|run| sweep.at(run).0.requests).sum();
        let requests = balanza_plot::number(requests);
        text.push_str(&format!("{} runs with {requests} requests, {done} of them done\n", sweep.len()));
    }
    print(&text)
}

/// The algorithms over all points.
fn overview(sweep: &Sweep, points: &[Point]) -> String {
    let head = ["algorithm", "best", "tied", "slower", "failing", "median", "worst"];
    let mut rows = vec![head.map(String::from).to_vec()];
    for line in summary::overall(sweep, points) {
        let times = |ratio: f64| format!("{ratio:.2}");
        let (median, worst) = line.ratios.map_or_else(Default::default, |(a, b)| (times(a), times(b)));
        let counts = line.counts.map(|count| count.to_string());
        rows.push([line.algorithm].into_iter().chain(counts).chain([median, worst]).collect());
    }
    format!(
        "{}\n{} points, {} runs. best: at so many points it has the shortest mean time of those with the fewest failed\n\
         requests. tied: the difference to the best is inconclusive. failing: more requests failed than with the best.\n\
         median, worst: its mean time as a multiple of the best one's, where it does not fail.\n",
        columns(&rows, 1),
        points.len(),
        sweep.len()
    )
}
