//! Paths of files that come from requests, as bytes.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The path of bytes.
pub fn as_path(bytes: &[u8]) -> &Path {
    Path::new(std::ffi::OsStr::from_bytes(bytes))
}

/// Whether a path has a segment "..": a path from a variable or a server may leave its directory.
pub fn climbs(path: &[u8]) -> bool {
    path.split(|byte| *byte == b'/').any(|segment| segment == b"..")
}
