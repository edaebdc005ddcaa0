//! Log files and what is written to them.

pub mod error;
pub mod syslog;

use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use balanza_config::log_text::OneLine;
use balanza_config::model::Level;
use balanza_net::clock;

/// An open log file, shared by all workers; reopening replaces the descriptor under its path.
pub struct LogFile {
    path: PathBuf,
    file: ArcSwap<File>,
    /// When a failed write was last told of.
    complained: AtomicU64,
}

impl LogFile {
    /// A log file that is open already.
    pub fn new(path: PathBuf, fd: OwnedFd) -> LogFile {
        LogFile { path, file: ArcSwap::from_pointee(File::from(fd)), complained: AtomicU64::new(0) }
    }

    /// Its path, as in the configuration.
    pub fn path(&self) -> &std::path::Path {
        &self.path
    }

    /// Goes on with another descriptor (after a rotation).
    pub fn replace(&self, fd: OwnedFd) {
        self.file.store(Arc::new(File::from(fd)));
    }

    /// Appends complete lines. A full disk loses lines, never requests; it is told of once a minute.
    pub fn append(&self, lines: &[u8]) {
        let file = self.file.load();
        if let Err(error) = (&mut &**file).write_all(lines) {
            let minute = clock::wall().as_secs() / 60;
            if self.complained.swap(minute, Ordering::Relaxed) != minute {
                complain(Level::Alert, format_args!("write to \"{}\" failed: {error}", self.path.display()));
            }
        }
    }
}

/// Says on standard error what no log can take. That may be closed or full too; then nothing is said.
pub fn complain(level: Level, message: std::fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stderr(), "balanza: [{}] {}", level.name(), OneLine(&message));
}

/// The files that a configuration logs to.
#[derive(Default, Clone)]
pub struct LogFiles {
    files: Vec<Arc<LogFile>>,
}

impl LogFiles {
    /// Takes over open files. A file that `previous` has under the same path stays open, for all its writers.
    pub fn new(files: Vec<(PathBuf, OwnedFd)>, previous: &LogFiles) -> LogFiles {
        let take = |(path, fd): (PathBuf, OwnedFd)| match previous.find(&path) {
            Some(file) => {
                file.replace(fd);
                Arc::clone(file)
            }
            None => Arc::new(LogFile::new(path, fd)),
        };
        LogFiles { files: files.into_iter().map(take).collect() }
    }

    /// The open file of this path.
    pub fn find(&self, path: &std::path::Path) -> Option<&Arc<LogFile>> {
        self.files.iter().find(|file| file.path == path)
    }

    /// Replaces the descriptors of files with new ones of the same path.
    pub fn reopen(&self, files: Vec<(PathBuf, OwnedFd)>) {
        for (path, fd) in files {
            if let Some(file) = self.find(&path) {
                file.replace(fd);
            }
        }
    }
}
