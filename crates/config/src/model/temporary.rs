//! Where temporary files are.

use std::path::{Path, PathBuf};

/// A directory of temporary files: `client_body_temp_path` and its kin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TempPath {
    /// The directory, absolute.
    pub directory: PathBuf,
    /// How many characters of a file's name name the directory of each level below; none for files in the directory
    /// itself.
    pub levels: Vec<usize>,
}

impl TempPath {
    /// The path of a file: with levels 1 and 2, "0000012345" is "5/34/0000012345" below the directory. `None` for a name
    /// shorter than its levels.
    pub fn file(&self, name: &str) -> Option<PathBuf> {
        let mut path = self.directory.clone();
        let mut rest = name;
        for level in &self.levels {
            let (before, last) = rest.split_at_checked(rest.len().checked_sub(*level)?)?;
            path.push(last);
            rest = before;
        }
        path.push(name);
        Some(path)
    }

    /// The directories of the levels that a file of this path is in, outermost first.
    pub fn level_directories<'a>(&self, file: &'a Path) -> Vec<&'a Path> {
        let mut directories: Vec<&Path> = file.ancestors().skip(1).take(self.levels.len()).collect();
        directories.reverse();
        directories
    }
}

/// `client_body_in_file_only`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BodyFiles {
    /// A body is in a file only if it is too large for memory.
    #[default]
    Off,
    /// Every body that is buffered is in a file, which stays.
    On,
    /// The same, and the file is removed when the request ends.
    Clean,
}
