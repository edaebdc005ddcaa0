//! `balanza simulate`: the algorithms in virtual time.

mod bins;
mod dask;
mod flags;
mod screen;
mod sweep;
mod table;

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};

use anyhow::Context;
use balanza_config::nearest;
use balanza_simulator::gallery::{self, Ready};
use balanza_simulator::result::Comparison;
use balanza_simulator::{Progress, Scenario, report};
use clap::{Args, Subcommand};

use crate::output::print;
use flags::Flags;
pub use screen::watched;

/// Simulate the algorithms in virtual time.
///
/// The simulator uses the same algorithm code as the proxy. Arrivals and service
/// times are random; the same --seed gives the same numbers. All algorithms get
/// the same requests and are compared in pairs.
///
///   balanza simulate --servers 100 --load 0.9
///   balanza simulate --algorithm random --algorithm 'two_choices choices=3' --load 0.5,0.9
///   balanza simulate --algorithm least_conn --dispatchers 10 --staleness 2s
///   balanza simulate bins --servers 800 --requests 100000
///   balanza simulate scenario.toml --out report
///   balanza simulate sweep plan.toml
///   balanza simulate --list
///   balanza simulate one-slow-server
///
/// The time in system is the time from the arrival of a request to its end. The
/// mean service time is 1 second, unless --service sets it.
#[derive(Args)]
#[command(verbatim_doc_comment, args_conflicts_with_subcommands = true)]
pub struct Options {
    #[command(subcommand)]
    what: Option<What>,

    /// A scenario: a file (docs/simulator.md), or the name of one that comes with the program; of the flags only --seed,
    /// --replications, --json and --out go with it
    scenario: Option<PathBuf>,

    /// List the scenarios that come with the program
    #[arg(long, exclusive = true)]
    list: bool,

    /// Print the scenario without simulating it, as a start for your own
    #[arg(long, requires = "scenario")]
    print: bool,

    #[command(flatten)]
    flags: Flags,
}

#[derive(Subcommand)]
enum What {
    Bins(bins::Options),
    Sweep(Box<sweep::Options>),
}

/// Simulates what was asked for.
pub fn run(options: Options) -> anyhow::Result<()> {
    match (options.what, options.scenario) {
        _ if options.list => print(&list()),
        (Some(What::Bins(bins)), _) => bins::run(&bins),
        (Some(What::Sweep(sweep)), _) => sweep::run(&sweep),
        (None, Some(name)) if options.print => print(&text(&name)?),
        (None, Some(name)) => {
            let comparison = run_scenario(&name, &options.flags)?;
            if options.flags.json {
                return print(&format!("{}\n", serde_json::to_string(&comparison)?));
            }
            show(&comparison)
        }
        (None, None) => {
            prepare(options.flags.out.as_deref())?;
            let comparison = simulate(&options.flags.scenario().map_err(anyhow::Error::msg)?, Path::new("."))?;
            write(&comparison, &options.flags)?;
            if options.flags.json {
                let runs = comparison.points.iter().flat_map(|point| &point.runs);
                let lines = runs.map(|run| serde_json::to_string(&run.summary())).collect::<Result<Vec<_>, _>>()?;
                return print(&format!("{}\n", lines.join("\n")));
            }
            show(&comparison)
        }
    }
}

fn list() -> String {
    let row = |ready: &Ready| {
        let heading = ready.scenario().map(|scenario| scenario.name).unwrap_or_default();
        vec![ready.name.to_string(), heading]
    };
    let rows: Vec<_> = gallery::ALL.iter().map(row).collect();
    format!("{}\nbalanza simulate NAME runs a scenario; --out DIR writes a report.\n", table::list(&rows))
}

fn run_scenario(name: &Path, flags: &Flags) -> anyhow::Result<Comparison> {
    let (text, shown) = (text(name)?, name.display().to_string());
    if let Some(flag) = flags.of_scenarios() {
        anyhow::bail!(
            "--{flag} does not go with a scenario: write it into a file of your own; --print prints a scenario to start with"
        );
    }
    let mut scenario = Scenario::parse(&text).map_err(|error| anyhow::anyhow!("{shown}: {error}"))?;
    scenario.seed = flags.seed.unwrap_or(scenario.seed);
    scenario.replications = flags.replications.unwrap_or(scenario.replications);
    prepare(flags.out.as_deref())?;
    let comparison = simulate(&scenario, name.parent().unwrap_or(Path::new("."))).context(shown)?;
    write(&comparison, flags)?;
    Ok(comparison)
}

/// The scenario of this name: a file's, or one that comes with the program.
fn text(name: &Path) -> anyhow::Result<String> {
    match name.to_str().and_then(gallery::find).filter(|_| !name.is_file()) {
        Some(ready) => Ok(ready.text.to_string()),
        None => read(name),
    }
}

fn read(file: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(file).map_err(|error| {
        let name = file.display().to_string();
        let near = nearest(&name, gallery::ALL.iter().map(|ready| ready.name));
        let hint = match near {
            Some(near) => format!("did you mean {near}?"),
            None => "balanza simulate --list shows the scenarios that come with the program".into(),
        };
        anyhow::anyhow!("{name}: {error}; {hint}")
    })
}

/// Makes the directory of `--out` before anything is simulated for it.
fn prepare(out: Option<&Path>) -> anyhow::Result<()> {
    out.map_or(Ok(()), |out| std::fs::create_dir_all(out).with_context(|| format!("--out {}", out.display())))
}

/// Writes the report, if one is wanted.
fn write(comparison: &Comparison, flags: &Flags) -> anyhow::Result<()> {
    let Some(directory) = &flags.out else { return Ok(()) };
    report::write(comparison, directory).with_context(|| directory.display().to_string())?;
    eprintln!("balanza: the report is {}", directory.join("report.html").display());
    Ok(())
}

fn show(comparison: &Comparison) -> anyhow::Result<()> {
    print(&table::of(comparison, io::stdout().is_terminal()))
}

fn simulate(scenario: &Scenario, directory: &Path) -> anyhow::Result<Comparison> {
    Ok(screen::watched(|progress: &Progress| balanza_simulator::run(scenario, directory, progress))?)
}
