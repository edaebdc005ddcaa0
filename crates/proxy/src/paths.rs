//! Paths of files that come from requests, as bytes.

use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use balanza_config::model::Level;

/// The path of bytes.
pub fn as_path(bytes: &[u8]) -> &Path {
    Path::new(std::ffi::OsStr::from_bytes(bytes))
}

/// Whether there is no such file.
pub fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::InvalidFilename)
}

/// The status of a response whose file or directory cannot be opened, and the level of the message.
pub fn open_failure(error: &io::Error) -> (u16, Level) {
    match error.kind() {
        _ if is_missing(error) => (404, Level::Error),
        ErrorKind::PermissionDenied => (403, Level::Error),
        _ => (500, Level::Crit),
    }
}

/// Whether a path has a segment "..": a path from a variable or a server may leave its directory.
pub fn climbs(path: &[u8]) -> bool {
    path.split(|byte| *byte == b'/').any(|segment| segment == b"..")
}
