//! Temporary files of bodies that outgrow memory.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use balanza_config::model::TempPath;
use tempfile::NamedTempFile;

/// How many names are tried: another process may use the same directory.
const ATTEMPTS: u32 = 1000;
/// From a name that is taken to the next one: processes that count side by side part at once.
const STRIDE: u32 = 123_457;

static NUMBER: AtomicU32 = AtomicU32::new(0);

/// A file that goes with the process at the latest. As in NGINX, its name is taken away as soon as it is open.
pub struct TempFile {
    /// The file.
    pub file: File,
    /// Its path, for `$request_body_file`.
    pub path: PathBuf,
}

/// A new file in the configured directory, else where the system has such files.
///
/// # Errors
/// The system's.
pub fn create(place: Option<&TempPath>) -> io::Result<TempFile> {
    let Some(place) = place else {
        let file = NamedTempFile::with_prefix("balanza-body-")?;
        let path = file.path().to_path_buf();
        return Ok(TempFile { file: file.into_file(), path });
    };
    for _ in 0..ATTEMPTS {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        let Some(path) = place.file(&format!("{number:010}")) else { break };
        match open(&path, place) {
            Ok(file) => {
                std::fs::remove_file(&path)?;
                return Ok(TempFile { file, path });
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                NUMBER.fetch_add(STRIDE, Ordering::Relaxed);
            }
            Err(error) => return Err(error),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// A new file without a name.
///
/// # Errors
/// The system's.
pub fn unnamed(place: Option<&TempPath>) -> io::Result<File> {
    match place {
        Some(place) => tempfile::tempfile_in(&place.directory),
        None => tempfile::tempfile(),
    }
}

/// Creates a file, and the directories of its levels when they are missing.
fn open(path: &Path, place: &TempPath) -> io::Result<File> {
    let open = || OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path);
    match open() {
        Err(error) if error.kind() == io::ErrorKind::NotFound && !place.levels.is_empty() => {
            for directory in place.level_directories(path) {
                match DirBuilder::new().mode(0o700).create(directory) {
                    Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                    _ => {}
                }
            }
            open()
        }
        opened => opened,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_below_directories_of_their_last_digits() {
        let directory = tempfile::tempdir().unwrap();
        let place = TempPath { directory: directory.path().to_path_buf(), levels: vec![1, 2] };
        let path = create(Some(&place)).unwrap().path;
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        assert_eq!(name.len(), 10);
        assert_eq!(path, directory.path().join(&name[9..]).join(&name[7..9]).join(&name));
        assert!(path.parent().unwrap().is_dir() && !path.exists());
        assert_ne!(create(Some(&place)).unwrap().path, path);
        assert!(!create(None).unwrap().path.exists());
    }

    #[test]
    fn names_that_are_taken_are_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let place = TempPath { directory: directory.path().to_path_buf(), levels: Vec::new() };
        let next = NUMBER.load(Ordering::Relaxed).wrapping_add(1);
        for number in next..next + 20 {
            std::fs::write(place.file(&format!("{number:010}")).unwrap(), "taken").unwrap();
        }
        let file = create(Some(&place)).unwrap().file;
        assert_eq!(file.metadata().unwrap().len(), 0);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 20);
    }

    #[test]
    fn a_missing_directory_is_an_error() {
        let place = TempPath { directory: "/nonexistent/body".into(), levels: vec![1] };
        assert_eq!(create(Some(&place)).map(|file| file.path).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(unnamed(Some(&place)).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
