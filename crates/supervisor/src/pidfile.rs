//! The pid file.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use balanza_config::model::Level;

use crate::Failed;
use crate::log::{Log, OsError};

/// Writes this process's id.
///
/// # Errors
/// The log says why.
pub fn write(path: &Path, log: &Log) -> Result<(), Failed> {
    fs::write(path, format!("{}\n", std::process::id())).map_err(|error| cannot_open(path, &error, Level::Emerg, log))
}

/// Checks that the file can be written, and leaves everything as it was (`-t`).
///
/// # Errors
/// The log says why.
pub fn check(path: &Path, log: &Log) -> Result<(), Failed> {
    let absent = !path.exists();
    let opened = fs::OpenOptions::new().write(true).create(true).truncate(false).open(path);
    opened.map_err(|error| cannot_open(path, &error, Level::Emerg, log))?;
    if absent {
        remove(path, log);
    }
    Ok(())
}

/// Reads the process id that `-s` is to signal.
///
/// # Errors
/// The log says why.
pub fn read(path: &Path, log: &Log) -> Result<nix::unistd::Pid, Failed> {
    let text = fs::read(path).map_err(|error| {
        let failed = cannot_open(path, &error, Level::Error, log);
        if error.kind() == io::ErrorKind::NotFound {
            log.write(
                Level::Error,
                "no process to signal: Balanza does not run with this configuration and this prefix",
            );
        }
        failed
    })?;
    let text = String::from_utf8_lossy(&text);
    let number = text.trim_end_matches(['\r', '\n']);
    match number.parse() {
        Ok(pid) if pid > 0 => Ok(nix::unistd::Pid::from_raw(pid)),
        _ => {
            log.write(Level::Error, format_args!("invalid PID number \"{number}\" in \"{}\"", path.display()));
            Err(Failed)
        }
    }
}

/// Removes the file; the log says why it could not.
pub fn remove(path: &Path, log: &Log) {
    if let Err(error) = fs::remove_file(path) {
        log.write(Level::Alert, format_args!("unlink() \"{}\" failed {}", path.display(), OsError(&error)));
    }
}

/// The name of the pid file of a supervisor that has a successor.
pub fn old(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".oldbin");
    name.into()
}

fn cannot_open(path: &Path, error: &io::Error, level: Level, log: &Log) -> Failed {
    log.write(level, format_args!("open() \"{}\" failed {}", path.display(), OsError(error)));
    Failed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_can_be_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("balanza.pid");
        let log = Log::default();
        assert!(read(&path, &log).is_err());
        check(&path, &log).unwrap();
        assert!(!path.exists());
        write(&path, &log).unwrap();
        check(&path, &log).unwrap();
        assert_eq!(read(&path, &log).unwrap(), nix::unistd::Pid::this());
        for wrong in ["", "0", "-1", "12x", "\n", "99999999999999"] {
            fs::write(&path, wrong).unwrap();
            assert!(read(&path, &log).is_err(), "{wrong:?}");
        }
        assert_eq!(old(&path), directory.path().join("balanza.pid.oldbin"));
    }
}
