//! The directory of an experiment's results.
//!
//! ```text
//! plan.toml            what was run
//! environment.json     where
//! left-out.json        combinations that could not be run there, and why
//! runs/*.json          one file for each finished run
//! configurations/      what each balancer was given, by system, algorithm and farm
//! logs/                what the processes of the last run said
//! ```
//!
//! A run's file is written aside and renamed, so it is there as a whole or not at all.

mod names;

use std::fs;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use nix::fcntl::{Flock, FlockArg};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::environment::Environment;
use crate::plan::{Cell, Plan};
use crate::record::Run;

const PLAN: &str = "plan.toml";
const ENVIRONMENT: &str = "environment.json";
const LEFT_OUT: &str = "left-out.json";
const RUNS: &str = "runs";
const CONFIGURATIONS: &str = "configurations";
const LOGS: &str = "logs";
const LOCK: &str = ".lock";

/// A directory that one lab writes at a time.
#[derive(Debug)]
pub struct Results {
    directory: PathBuf,
    /// Held until the end; the kernel releases it however the lab ends.
    _lock: Flock<fs::File>,
}

/// What a directory of results holds.
#[derive(Clone, Debug, PartialEq)]
pub struct Kept {
    /// The plan as it was run.
    pub plan: Plan,
    /// Where it was run; empty for one that never got so far.
    pub environment: Environment,
    /// What could not be run there, and why.
    pub left_out: Vec<(Cell, String)>,
    /// The finished runs, in the order in which they were made.
    pub runs: Vec<Run>,
}

impl Results {
    /// Makes the directory for a plan, or opens it to go on; the finished runs come along.
    ///
    /// Errors: there are finished runs and `resume` is not set, or they are of another plan; the directory holds
    /// something else; another lab writes it; it cannot be written.
    pub fn create(directory: &Path, plan: &Plan, resume: bool) -> anyhow::Result<(Results, Vec<Run>)> {
        let shown = directory.display();
        let is_ours = directory.join(PLAN).exists();
        let is_empty = match fs::read_dir(directory) {
            Ok(mut entries) => entries.next().is_none(),
            Err(error) if error.kind() == ErrorKind::NotFound => true,
            Err(error) => return Err(error).context(format!("cannot read {shown}")),
        };
        if !is_empty && !is_ours && !directory.join(LOCK).exists() {
            bail!("{shown} holds something else than results: name another directory with --out");
        }
        fs::create_dir_all(directory).with_context(|| format!("cannot make {shown}"))?;
        // First, so that on a full disk the directory is known to be ours or stays empty.
        let lock = lock(directory)?;
        for part in [RUNS, CONFIGURATIONS, LOGS] {
            let path = directory.join(part);
            fs::create_dir_all(&path).with_context(|| format!("cannot make {}", path.display()))?;
        }
        let mut runs = Vec::new();
        if is_ours {
            let kept = open(directory)?;
            if !kept.runs.is_empty() {
                if !resume {
                    let finished = crate::units::count(kept.runs.len() as u64, "finished run");
                    bail!("{shown} has {finished}: go on with --resume, or name another directory with --out");
                }
                if let Some(difference) = difference(&kept.plan, plan) {
                    bail!("{shown} was made with another plan ({difference}): name another directory with --out");
                }
            }
            runs = kept.runs;
        }
        let results = Results { directory: directory.to_owned(), _lock: lock };
        results.write(PLAN, show(plan)?.as_bytes())?;
        Ok((results, runs))
    }

    /// Keeps where the experiment runs, and what cannot be run there.
    pub fn environment(&self, environment: &Environment, left_out: &[(Cell, String)]) -> anyhow::Result<()> {
        self.write(ENVIRONMENT, &json(environment)?)?;
        self.write(LEFT_OUT, &json(&left_out)?)
    }

    /// Keeps a finished run.
    ///
    /// Errors: the disk is full, or the file cannot be written for another reason; then there is no such file.
    pub fn save(&self, run: &Run) -> anyhow::Result<()> {
        self.write(&format!("{RUNS}/{}.json", names::run(&run.cell, run.repetition)), &json(run)?)
    }

    /// Keeps the files that a system was given for a cell; the one of the last run stays.
    pub fn configuration(&self, cell: &Cell, keep_alive: bool, files: &[(String, String)]) -> anyhow::Result<()> {
        let folder = format!("{CONFIGURATIONS}/{}", names::configuration(cell, keep_alive));
        let path = self.directory.join(&folder);
        fs::create_dir_all(&path).with_context(|| format!("cannot make {}", path.display()))?;
        files.iter().try_for_each(|(name, text)| self.write(&format!("{folder}/{name}"), text.as_bytes()))
    }

    /// A new empty directory for the logs of a run; those of the run before are removed.
    pub fn logs(&self) -> anyhow::Result<PathBuf> {
        let path = self.directory.join(LOGS);
        let made = match fs::remove_dir_all(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => fs::create_dir_all(&path),
        };
        made.with_context(|| format!("cannot empty {}", path.display()))?;
        // Processes get it as an argument and may have another working directory.
        path.canonicalize().with_context(|| format!("cannot find {}", path.display()))
    }

    /// The directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Writes a file aside and renames it.
    fn write(&self, name: &str, content: &[u8]) -> anyhow::Result<()> {
        let path = self.directory.join(name);
        let file_name = path.file_name().unwrap_or_default().to_string_lossy();
        let aside = path.with_file_name(format!(".aside-{file_name}"));
        let written = (|| {
            let mut file = fs::File::create(&aside)?;
            file.write_all(content)?;
            file.sync_data()?;
            fs::rename(&aside, &path)
        })();
        if written.is_err() {
            // It may never have been there; what counts is why it was not written.
            let _ = fs::remove_file(&aside);
        }
        written.with_context(|| format!("cannot write {}", path.display()))
    }
}

/// Reads a directory of results.
///
/// Errors: it is none; a file of it cannot be read or is damaged.
pub fn open(directory: &Path) -> anyhow::Result<Kept> {
    let path = directory.join(PLAN);
    let text = match fs::read_to_string(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            bail!("{} holds no results: there is no {PLAN} in it", directory.display())
        }
        text => text.with_context(|| format!("cannot read {}", path.display()))?,
    };
    let plan = toml::from_str(&text).with_context(|| format!("{} is not a plan", path.display()))?;
    let environment = read_if_there(&directory.join(ENVIRONMENT))?;
    let left_out = read_if_there(&directory.join(LEFT_OUT))?;
    let path = directory.join(RUNS);
    let mut runs: Vec<Run> = Vec::new();
    for entry in fs::read_dir(&path).with_context(|| format!("cannot read {}", path.display()))? {
        let path = entry.with_context(|| format!("cannot read {}", path.display()))?.path();
        let hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        if !hidden && path.extension().is_some_and(|extension| extension == "json") {
            runs.push(read(&path)?);
        }
    }
    runs.sort_by(|a, b| (a.order, a.repetition, &a.cell).cmp(&(b.order, b.repetition, &b.cell)));
    Ok(Kept { plan, environment, left_out, runs })
}

/// What a lab writes when it begins, and one that ended before that has not.
fn read_if_there<T: DeserializeOwned + Default>(path: &Path) -> anyhow::Result<T> {
    if path.exists() { read(path) } else { Ok(T::default()) }
}

fn read<T: DeserializeOwned>(path: &Path) -> anyhow::Result<T> {
    let text = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_slice(&text)
        .with_context(|| format!("{} is damaged: remove it, and --resume measures it again", path.display()))
}

fn json<T: Serialize>(value: &T) -> anyhow::Result<Vec<u8>> {
    let mut text = serde_json::to_vec_pretty(value)?;
    text.push(b'\n');
    Ok(text)
}

fn show(plan: &Plan) -> anyhow::Result<String> {
    toml::to_string(plan).context("the plan cannot be written as TOML")
}

fn lock(directory: &Path) -> anyhow::Result<Flock<fs::File>> {
    let path = directory.join(LOCK);
    let file = fs::File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
    Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, error)| match error {
        nix::errno::Errno::EWOULDBLOCK => {
            anyhow::anyhow!("another lab is at work in {}: wait for it, or use --out", directory.display())
        }
        error => anyhow::Error::new(error).context(format!("cannot lock {}", path.display())),
    })
}

/// What keeps runs of two plans from being counted together: the same name for different things. More or other cells,
/// repetitions and claims do not.
fn difference(before: &Plan, now: &Plan) -> Option<String> {
    fn changed<'a, T: Serialize>(
        kind: &str,
        before: &'a [T],
        now: &'a [T],
        name: impl Fn(&'a T) -> &'a str,
    ) -> Option<String> {
        let text = |part: &T| serde_json::to_string(part).unwrap_or_default();
        let differs = |part: &&'a T| {
            let other = before.iter().find(|other| name(other) == name(part));
            other.is_some_and(|other| text(other) != text(part))
        };
        now.iter().find(differs).map(|part| format!("{kind} {} is not the same", name(part)))
    }
    if before.name != now.name {
        return Some(format!("{}, not {}", before.name, now.name));
    }
    if before.seed != now.seed {
        return Some(format!("seed {}, not {}", before.seed, now.seed));
    }
    changed("farm", &before.farms, &now.farms, |farm| &farm.name)
        .or_else(|| changed("algorithm", &before.algorithms, &now.algorithms, |algorithm| &algorithm.name))
        .or_else(|| changed("load", &before.loads, &now.loads, |load| &load.name))
}

#[cfg(test)]
mod tests;
