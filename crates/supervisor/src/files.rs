//! The log files: opened by the supervisor, with its rights, and handed to the worker.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions, Permissions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use balanza_config::model::{ErrorLog, Level, LogTarget};
use nix::unistd::Uid;

use crate::Failed;
use crate::log::{Log, OsError};

/// Open log files by path.
#[derive(Debug, Default)]
pub struct LogFiles(BTreeMap<PathBuf, OwnedFd>);

impl LogFiles {
    /// Opens every file for appending, and creates those that are missing.
    ///
    /// # Errors
    /// The log names each file that could not be opened.
    pub fn open(paths: impl IntoIterator<Item = PathBuf>, log: &Log) -> Result<Self, Failed> {
        let mut files = BTreeMap::new();
        let mut failed = false;
        for path in paths {
            match open(&path) {
                Ok(file) => drop(files.insert(path, file.into())),
                Err(error) => {
                    log.write(Level::Emerg, format_args!("open() \"{}\" failed {}", path.display(), OsError(&error)));
                    failed = true;
                }
            }
        }
        if failed { Err(Failed) } else { Ok(Self(files)) }
    }

    /// Opens every file again (they have been renamed) and gives them to `owner`. A file that cannot be opened stays as
    /// it is; the log says why.
    pub fn reopen(&mut self, owner: Option<Uid>, log: &Log) {
        for (path, file) in &mut self.0 {
            match open(path) {
                Ok(fresh) => {
                    if let Some(owner) = owner
                        && let Err(error) = give(&fresh, owner)
                    {
                        let error = OsError(&error);
                        log.write(Level::Emerg, format_args!("chown(\"{}\", {owner}) failed {error}", path.display()));
                    }
                    *file = fresh.into();
                }
                Err(error) => {
                    log.write(Level::Emerg, format_args!("open() \"{}\" failed {}", path.display(), OsError(&error)));
                }
            }
        }
    }

    /// The log that `error_log` asks for. Files that are not among the open ones are left out.
    ///
    /// # Errors
    /// When a descriptor cannot be duplicated.
    pub fn log(&self, targets: &[ErrorLog]) -> io::Result<Log> {
        let mut log = Log::default();
        for ErrorLog { target, level } in targets {
            match target {
                LogTarget::Stderr => log.also_stderr(*level),
                LogTarget::Syslog(syslog) => log.also_syslog(Arc::clone(syslog), *level),
                LogTarget::File(path) => {
                    if let Some(file) = self.find(path) {
                        log.also(path.clone(), File::from(file.try_clone_to_owned()?), *level);
                    }
                }
            }
        }
        Ok(log)
    }

    /// Lets a log write to these files instead of those that were opened by the same path.
    ///
    /// # Errors
    /// When a descriptor cannot be duplicated.
    pub fn replace_in(&self, log: &mut Log) -> io::Result<()> {
        for (path, old) in log.files_mut() {
            if let Some(file) = self.find(path) {
                *old = File::from(file.try_clone_to_owned()?);
            }
        }
        Ok(())
    }

    /// Wraps files that another process has opened.
    pub fn adopt(files: impl IntoIterator<Item = (PathBuf, OwnedFd)>) -> Self {
        Self(files.into_iter().collect())
    }

    /// All, ordered by path.
    pub fn into_inner(self) -> Vec<(PathBuf, OwnedFd)> {
        self.0.into_iter().collect()
    }

    /// An open file by its path.
    pub fn find(&self, path: &Path) -> Option<BorrowedFd<'_>> {
        self.0.get(path).map(AsFd::as_fd)
    }

    /// All, ordered by path.
    pub fn iter(&self) -> impl Iterator<Item = (&Path, BorrowedFd<'_>)> {
        self.0.iter().map(|(path, file)| (path.as_path(), file.as_fd()))
    }

    /// Duplicates of all, ordered by path.
    ///
    /// # Errors
    /// When the process has no descriptor left.
    pub fn duplicate(&self) -> io::Result<Vec<(PathBuf, OwnedFd)>> {
        self.0.iter().map(|(path, file)| Ok((path.clone(), file.try_clone()?))).collect()
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o644).open(path)
}

/// Makes the worker's account the owner of a log that was just created, as NGINX does, so that tools that run as that
/// account can read and rotate it.
fn give(file: &File, owner: Uid) -> io::Result<()> {
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Ok(());
    }
    if metadata.uid() != owner.as_raw() {
        std::os::unix::fs::fchown(file, Some(owner.as_raw()), None)?;
    }
    let mode = metadata.mode();
    if mode & 0o600 != 0o600 {
        file.set_permissions(Permissions::from_mode(mode & 0o7777 | 0o600))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn reopened_files_are_new_files() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("access.log");
        let mut files = LogFiles::open([path.clone()], &Log::default()).unwrap();
        let write = |files: &LogFiles, text: &str| {
            let (_, fd) = files.duplicate().unwrap().remove(0);
            File::from(fd).write_all(text.as_bytes()).unwrap();
        };
        write(&files, "one\n");
        let rotated = directory.path().join("access.log.1");
        std::fs::rename(&path, &rotated).unwrap();
        write(&files, "two\n");
        files.reopen(None, &Log::default());
        write(&files, "three\n");
        assert_eq!(std::fs::read_to_string(rotated).unwrap(), "one\ntwo\n");
        assert_eq!(std::fs::read_to_string(path).unwrap(), "three\n");
    }

    #[test]
    fn a_missing_directory_fails() {
        let log = Log::default();
        assert!(LogFiles::open([PathBuf::from("/nonexistent/x.log")], &log).is_err());
    }
}
