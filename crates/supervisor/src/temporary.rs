//! The directories of temporary files: made before the worker starts, and given to its account.

use std::fs::{DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::Path;

use balanza_config::model::Level;
use nix::unistd::Uid;

use crate::Failed;
use crate::log::{Log, OsError};

/// Makes the directories that are missing and lets the worker's account use all of them.
///
/// # Errors
/// The log names each directory that cannot be used.
pub fn prepare<'a>(
    directories: impl IntoIterator<Item = &'a Path>,
    owner: Option<Uid>,
    log: &Log,
) -> Result<(), Failed> {
    let mut failed = false;
    for directory in directories {
        if let Err((call, error)) = prepare_one(directory, owner) {
            let (path, error) = (directory.display(), OsError(&error));
            log.write(Level::Emerg, format_args!("{call}() \"{path}\" failed {error}"));
            failed = true;
        }
    }
    if failed { Err(Failed) } else { Ok(()) }
}

fn prepare_one(directory: &Path, owner: Option<Uid>) -> Result<(), (&'static str, io::Error)> {
    match DirBuilder::new().mode(0o700).create(directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(("mkdir", error)),
        _ => {}
    }
    let metadata = std::fs::metadata(directory).map_err(|error| ("stat", error))?;
    if !metadata.is_dir() {
        return Err(("mkdir", io::Error::from_raw_os_error(libc::ENOTDIR)));
    }
    let Some(owner) = owner else { return Ok(()) };
    if metadata.uid() != owner.as_raw() {
        std::os::unix::fs::chown(directory, Some(owner.as_raw()), None).map_err(|error| ("chown", error))?;
    }
    let mode = metadata.mode();
    if mode & 0o700 != 0o700 {
        let permissions = Permissions::from_mode(mode & 0o7777 | 0o700);
        std::fs::set_permissions(directory, permissions).map_err(|error| ("chmod", error))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn directories_are_made_and_what_cannot_be_one_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let body = directory.path().join("body");
        for _ in 0..2 {
            assert!(prepare([body.as_path()], None, &Log::default()).is_ok());
            assert_eq!(std::fs::metadata(&body).unwrap().mode() & 0o777, 0o700);
        }

        let (path, occupied) = (directory.path().join("error.log"), directory.path().join("file"));
        File::create(&occupied).unwrap();
        let mut log = Log::default();
        log.also(path.clone(), File::create(&path).unwrap(), Level::Notice);
        let wrong = [occupied.as_path(), &directory.path().join("none/body")];
        assert!(prepare(wrong, None, &log).is_err());
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains("file\" failed (20: Not a directory)"), "{text}");
        assert!(text.contains("none/body\" failed (2: No such file or directory)"), "{text}");
    }
}
