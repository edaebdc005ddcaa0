//! `balanza simulate`: the algorithms in virtual time.

mod bins;
mod flags;
mod screen;
mod table;

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use balanza_simulator::result::Comparison;
use balanza_simulator::{Error, Progress, Scenario};
use clap::{Args, Subcommand};

use flags::Flags;

/// Run the algorithms in virtual time, on servers that do not exist.
///
/// The choices are made by the same code as in the proxy. Requests come at
/// random, servers take random times; the same --seed gives the same numbers.
/// Several algorithms see the same requests and are compared in pairs.
///
///   balanza simulate --servers 100 --load 0.9
///   balanza simulate --algorithm random --algorithm 'two_choices choices=3' --load 0.5,0.9
///   balanza simulate --algorithm least_conn --dispatchers 10 --staleness 2s
///   balanza simulate bins --servers 800 --requests 100000
///   balanza simulate scenario.toml
///
/// The time in system is that of a request from its arrival to its answer, in
/// seconds; a service takes 1 second on average if --service does not say more.
#[derive(Args)]
#[command(verbatim_doc_comment, args_conflicts_with_subcommands = true)]
pub struct Options {
    #[command(subcommand)]
    what: Option<What>,

    /// A scenario (docs/simulator.md); flags do not mix with it but for --seed, --replications and --json
    file: Option<PathBuf>,

    #[command(flatten)]
    flags: Flags,
}

#[derive(Subcommand)]
enum What {
    Bins(bins::Options),
}

/// Simulates what was asked for.
pub fn run(options: Options) -> anyhow::Result<()> {
    match (options.what, options.file) {
        (Some(What::Bins(bins)), _) => bins::run(&bins),
        (None, Some(file)) => run_file(&file, &options.flags),
        (None, None) => {
            let comparison = simulate(&options.flags.scenario().map_err(anyhow::Error::msg)?, Path::new("."))?;
            if options.flags.json {
                let runs = comparison.points.iter().flat_map(|point| &point.runs);
                let lines = runs.map(|run| serde_json::to_string(&run.summary())).collect::<Result<Vec<_>, _>>()?;
                return print(&format!("{}\n", lines.join("\n")));
            }
            print(&table::of(&comparison, io::stdout().is_terminal()))
        }
    }
}

fn run_file(file: &Path, flags: &Flags) -> anyhow::Result<()> {
    if let Some(flag) = flags.of_scenarios() {
        anyhow::bail!("--{flag} does not go with a scenario: write it in {}", file.display());
    }
    let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
    let mut scenario = Scenario::parse(&text).map_err(|error| anyhow::anyhow!("{}: {error}", file.display()))?;
    scenario.seed = flags.seed.unwrap_or(scenario.seed);
    scenario.replications = flags.replications.unwrap_or(scenario.replications);
    let directory = file.parent().unwrap_or(Path::new("."));
    let comparison = simulate(&scenario, directory).with_context(|| file.display().to_string())?;
    if flags.json {
        return print(&format!("{}\n", serde_json::to_string(&comparison)?));
    }
    print(&table::of(&comparison, io::stdout().is_terminal()))
}

fn simulate(scenario: &Scenario, directory: &Path) -> anyhow::Result<Comparison> {
    screen::watched(|progress: &Progress| balanza_simulator::run(scenario, directory, progress)).map_err(explained)
}

/// With a guess at what was meant, where it is a name.
fn explained(error: Error) -> anyhow::Error {
    match error {
        Error::NoAlgorithm(name) => anyhow::anyhow!(crate::algorithms::unknown(&name)),
        error => error.into(),
    }
}

fn print(text: &str) -> anyhow::Result<()> {
    match io::stdout().write_all(text.as_bytes()) {
        // Whoever reads the output may stop early.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}
