//! One run as data.

use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use balanza_simulator::{Progress, Scenario};
use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_64;

use crate::record::Record;

/// Raised when the same input gives other results or other fields in records, so that old records do not count.
const RECORDS: u32 = 1;

/// One run: a scenario with one algorithm, one load and one replication. It is the same wherever it is performed.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Unit {
    /// Made of everything that the result depends on: the scenario, the content of its files, and the program's version.
    pub id: String,
    /// What the names of files are relative to.
    pub directory: PathBuf,
    /// What is simulated.
    pub scenario: Scenario,
}

impl Unit {
    /// Reads a unit from a line of JSON.
    pub fn parse(line: &str) -> anyhow::Result<Unit> {
        serde_json::from_str(line).context("not a unit of a sweep")
    }

    /// Performs the run on this thread.
    ///
    /// Errors: the files are others here than where the unit was made; the simulation fails.
    pub fn perform(&self) -> anyhow::Result<Record> {
        let id = Inputs::read(&self.scenario, &self.directory)?.id(self.scenario.seed);
        ensure!(
            id == self.id,
            "the input of run {} is not the same here: its files or the program's version differ",
            self.id
        );
        let comparison = balanza_simulator::run(&self.scenario, &self.directory, &Progress::new())?;
        let point = comparison.points.into_iter().next().context("a run has one load")?;
        Record::of(&self.id, &point)
    }
}

/// What the ids of the runs that differ in their seed alone have in common.
pub(crate) struct Inputs(Vec<u8>);

impl Inputs {
    /// Those of a scenario.
    pub fn read(scenario: &Scenario, directory: &Path) -> anyhow::Result<Inputs> {
        // What a reader is told does not change a result.
        let plain = Scenario { name: String::new(), description: String::new(), seed: 0, ..scenario.clone() };
        let mut all = serde_json::to_vec(&(RECORDS, env!("CARGO_PKG_VERSION"), &plain))?;
        for file in scenario.files() {
            let content = std::fs::read(directory.join(file)).with_context(|| file.to_string())?;
            all.extend_from_slice(&XxHash3_64::oneshot(&content).to_le_bytes());
        }
        Ok(Inputs(digest(&all).to_vec()))
    }

    /// The id of a run with this seed.
    pub fn id(&self, seed: u64) -> String {
        let words = digest(&[&self.0[..], &seed.to_le_bytes()].concat());
        words.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// 128 bits: a million runs have the same id with a probability of 10^-27.
fn digest(bytes: &[u8]) -> [u8; 16] {
    let half = |seed| XxHash3_64::oneshot_with_seed(seed, bytes).to_le_bytes();
    let mut both = [0; 16];
    both[..8].copy_from_slice(&half(1));
    both[8..].copy_from_slice(&half(2));
    both
}
