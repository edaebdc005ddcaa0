//! The directory of a sweep's results.
//!
//! ```text
//! journal.jsonl    the records as they came, also those of earlier plans
//! results.jsonl    those of the plan, in its order: the settings and the record of each run
//! results.csv, report.html, picture.svg
//! ```
//!
//! A record is appended by one write; what a crash left of the last one is cut off. The other files are written aside
//! and renamed.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use nix::fcntl::{Flock, FlockArg};

use crate::record::Record;

const JOURNAL: &str = "journal.jsonl";

/// The records that a directory has. One sweep writes it at a time.
#[derive(Debug)]
pub struct Journal {
    directory: PathBuf,
    file: Flock<File>,
    records: HashMap<String, Record>,
}

impl Journal {
    /// The records that a directory has, by their ids, without taking it.
    ///
    /// Errors: the journal cannot be read, or a line of it is damaged.
    pub fn peek(directory: &Path) -> anyhow::Result<HashMap<String, Record>> {
        let path = directory.join(JOURNAL);
        match fs::read_to_string(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(HashMap::new()),
            text => Ok(parse(&path, &text.with_context(|| path.display().to_string())?)?.0),
        }
    }

    /// Takes the directory, which is made if it is missing.
    ///
    /// Errors: another sweep has it; it holds something else; it cannot be written; a line of the journal is damaged.
    pub fn open(directory: &Path) -> anyhow::Result<Journal> {
        let path = directory.join(JOURNAL);
        let is_empty = match fs::read_dir(directory) {
            Ok(mut entries) => entries.next().is_none(),
            Err(error) if error.kind() == ErrorKind::NotFound => true,
            Err(error) => return Err(error).with_context(|| directory.display().to_string()),
        };
        if !is_empty && !path.exists() {
            bail!("{} holds something else than a sweep: name another directory with --out", directory.display());
        }
        fs::create_dir_all(directory).with_context(|| directory.display().to_string())?;
        let file = File::options().create(true).read(true).append(true).open(&path);
        let file = file.with_context(|| path.display().to_string())?;
        let file = Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, error)| match error {
            nix::errno::Errno::EWOULDBLOCK => {
                anyhow::anyhow!("another sweep is at work in {}: wait for it, or use --out", directory.display())
            }
            error => anyhow::Error::new(error).context(format!("cannot lock {}", path.display())),
        })?;
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let (records, whole) = parse(&path, &text)?;
        if whole < text.len() {
            file.set_len(whole as u64).with_context(|| path.display().to_string())?;
        }
        Ok(Journal { directory: directory.into(), file, records })
    }

    /// The records by their ids.
    pub fn records(&self) -> &HashMap<String, Record> {
        &self.records
    }

    /// Keeps a record.
    ///
    /// Errors: it cannot be written.
    pub fn add(&mut self, record: Record) -> anyhow::Result<()> {
        let line = format!("{}\n", record.line()?);
        self.file.write_all(line.as_bytes()).with_context(|| self.directory.join(JOURNAL).display().to_string())?;
        self.records.insert(record.id.clone(), record);
        Ok(())
    }

    /// Writes a file of the results, as a whole or not at all.
    ///
    /// Errors: it cannot be written.
    pub fn write(&self, name: &str, content: &str) -> anyhow::Result<()> {
        let (path, aside) = (self.directory.join(name), self.directory.join(format!(".{name}")));
        let written = fs::write(&aside, content).and_then(|()| fs::rename(&aside, &path));
        written.with_context(|| format!("cannot write {}", path.display()))
    }

    /// Makes the records durable: until then, a crash of the machine may take the last ones.
    ///
    /// Errors: the disk reports one.
    pub fn sync(&self) -> anyhow::Result<()> {
        self.file.sync_data().with_context(|| self.directory.join(JOURNAL).display().to_string())
    }
}

/// The records of a journal, and how much of the text is whole lines.
fn parse(path: &Path, text: &str) -> anyhow::Result<(HashMap<String, Record>, usize)> {
    let whole = text.rfind('\n').map_or(0, |at| at + 1);
    let mut records = HashMap::new();
    for (number, line) in text[..whole].lines().enumerate() {
        let record: Result<Record, _> = serde_json::from_str(line);
        ensure!(
            record.is_ok(),
            "{}:{}: not a record: remove the line, and its run is done again",
            path.display(),
            number + 1
        );
        records.extend(record.map(|record| (record.id.clone(), record)));
    }
    Ok((records, whole))
}

#[cfg(test)]
pub(crate) mod tests {
    use balanza_simulator::result::{Counts, Quantiles};

    use super::*;

    pub(crate) fn record(id: &str) -> Record {
        Record {
            id: id.into(),
            algorithm: "random".into(),
            seed: 1,
            servers: 1,
            load: 0.1,
            rate: Some(1.0 / 3.0),
            users: None,
            duration: 1.0,
            warmup: 0.0,
            mean_time_in_system: 0.1 + 0.2,
            sd_time_in_system: 0.0,
            quantiles: Quantiles::default(),
            utilization: 0.0,
            mean_queue: 0.0,
            max_queue: 0,
            jain: 1.0,
            throughput: 0.0,
            counts: Counts::default(),
            events: 0,
        }
    }

    #[test]
    fn a_torn_line_is_cut_off_and_a_damaged_one_reported() {
        let directory = tempfile::tempdir().unwrap();
        let out = directory.path().join("out");
        let mut journal = Journal::open(&out).unwrap();
        assert!(Journal::open(&out).unwrap_err().to_string().contains("another sweep is at work"));
        journal.add(record("a")).unwrap();
        journal.add(record("b")).unwrap();
        drop(journal);
        let path = out.join(JOURNAL);
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, &text[..text.len() - 9]).unwrap();
        assert_eq!(Journal::peek(&out).unwrap().len(), 1);
        let mut journal = Journal::open(&out).unwrap();
        assert_eq!(journal.records().keys().collect::<Vec<_>>(), ["a"]);
        journal.add(record("b")).unwrap();
        drop(journal);
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
        assert_eq!(Journal::open(&out).unwrap().records()["b"], record("b"));
        fs::write(&path, format!("x{text}")).unwrap();
        assert!(Journal::open(&out).unwrap_err().to_string().contains("journal.jsonl:1: not a record"));
    }

    #[test]
    fn a_directory_of_something_else_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("letter.txt"), "").unwrap();
        assert!(Journal::open(directory.path()).unwrap_err().to_string().contains("something else"));
    }
}
