//! Temporary files of bodies that outgrow memory.

use std::fs::{DirBuilder, File, FileTimes, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use balanza_config::model::{BodyFiles, TempPath};
use tempfile::NamedTempFile;

/// How many names are tried: another process may use the same directory.
const ATTEMPTS: u32 = 1000;
/// From a name that is taken to the next one: processes that count side by side part at once.
const STRIDE: u32 = 123_457;

static NUMBER: AtomicU32 = AtomicU32::new(0);

/// A file of a request's body. As in NGINX, its name is taken away as soon as it is open, unless
/// `client_body_in_file_only` keeps it.
pub struct TempFile {
    /// The file.
    pub file: File,
    /// Its path, for `$request_body_file`.
    pub path: PathBuf,
    /// It has its name until the request ends.
    removed_at_end: bool,
}

impl TempFile {
    /// The same file for another request, which does not remove it.
    ///
    /// # Errors
    /// The system's.
    pub fn share(&self) -> io::Result<TempFile> {
        Ok(TempFile { file: self.file.try_clone()?, path: self.path.clone(), removed_at_end: false })
    }

    /// Gives the file another name, in directories that are made with this mode when they are missing. It replaces
    /// a file of that name. A file on another file system is a copy, which is there as a whole or not at all.
    ///
    /// # Errors
    /// The system's.
    pub fn persist(mut self, to: &Path, directories: u32) -> io::Result<()> {
        let rename = |from: &Path| match std::fs::rename(from, to) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let parent = to.parent().unwrap_or(Path::new("/"));
                DirBuilder::new().recursive(true).mode(directories).create(parent)?;
                std::fs::rename(from, to)
            }
            renamed => renamed,
        };
        match rename(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::CrossesDevices => {
                let number = NUMBER.fetch_add(1, Ordering::Relaxed);
                let mut name = to.as_os_str().to_owned();
                name.push(format!(".{}.{number:010}", std::process::id()));
                let beside = PathBuf::from(name);
                let copied = self.copy_to(&beside).and_then(|()| std::fs::rename(&beside, to));
                if copied.is_err() {
                    let _ = std::fs::remove_file(&beside);
                }
                copied
            }
            renamed => {
                self.removed_at_end &= renamed.is_err();
                renamed
            }
        }
    }

    /// Copies contents, mode and time of the last change.
    fn copy_to(&self, path: &Path) -> io::Result<()> {
        std::fs::copy(&self.path, path)?;
        let modified = self.file.metadata()?.modified()?;
        File::options().write(true).open(path)?.set_times(FileTimes::new().set_modified(modified))
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        if self.removed_at_end {
            // It may have been moved or removed while the request was served.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// A new file in the configured directory, else where the system has such files.
///
/// # Errors
/// The system's.
pub fn create(place: Option<&TempPath>, keep: BodyFiles) -> io::Result<TempFile> {
    let removed_at_end = keep == BodyFiles::Clean;
    let Some(place) = place else {
        let mut file = NamedTempFile::with_prefix("balanza-body-")?;
        let path = file.path().to_path_buf();
        if keep != BodyFiles::Off {
            file.disable_cleanup(true);
        }
        return Ok(TempFile { file: file.into_file(), path, removed_at_end });
    };
    for _ in 0..ATTEMPTS {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        let Some(path) = place.file(&format!("{number:010}")) else { break };
        match open(&path, place) {
            Ok(file) => {
                if keep == BodyFiles::Off {
                    std::fs::remove_file(&path)?;
                }
                return Ok(TempFile { file, path, removed_at_end });
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
        let path = create(Some(&place), BodyFiles::Off).unwrap().path.clone();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        assert_eq!(name.len(), 10);
        assert_eq!(path, directory.path().join(&name[9..]).join(&name[7..9]).join(&name));
        assert!(path.parent().unwrap().is_dir() && !path.exists());
        assert_ne!(create(Some(&place), BodyFiles::Off).unwrap().path, path);
        assert!(!create(None, BodyFiles::Off).unwrap().path.exists());
    }

    #[test]
    fn names_that_are_taken_are_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let place = TempPath { directory: directory.path().to_path_buf(), levels: Vec::new() };
        let next = NUMBER.load(Ordering::Relaxed).wrapping_add(1);
        for number in next..next + 20 {
            std::fs::write(place.file(&format!("{number:010}")).unwrap(), "taken").unwrap();
        }
        let created = create(Some(&place), BodyFiles::Off).unwrap();
        assert_eq!(created.file.metadata().unwrap().len(), 0);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 20);
    }

    #[test]
    fn a_name_is_kept_if_it_is_to_be() {
        let directory = tempfile::tempdir().unwrap();
        let place = TempPath { directory: directory.path().to_path_buf(), levels: Vec::new() };
        let stays = create(Some(&place), BodyFiles::On).unwrap();
        let goes = create(Some(&place), BodyFiles::Clean).unwrap();
        let shared = goes.share().unwrap();
        let (stays_at, goes_at) = (stays.path.clone(), goes.path.clone());
        drop((stays, shared));
        assert!(stays_at.exists() && goes_at.exists());
        drop(goes);
        assert!(stays_at.exists() && !goes_at.exists());
    }

    #[test]
    fn a_missing_directory_is_an_error() {
        let place = TempPath { directory: "/nonexistent/body".into(), levels: vec![1] };
        assert_eq!(create(Some(&place), BodyFiles::Off).err().unwrap().kind(), io::ErrorKind::NotFound);
        assert_eq!(unnamed(Some(&place)).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
