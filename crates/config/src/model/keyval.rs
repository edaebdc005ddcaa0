//! `keyval_zone`.

use std::path::PathBuf;
use std::time::Duration;

/// A zone of pairs that the API changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyvalZone {
    /// Its name.
    pub name: String,
    /// Its size in bytes.
    pub size: u64,
    /// `state=`: where its pairs are kept.
    pub state: Option<PathBuf>,
    /// `timeout=`: when pairs are removed.
    pub timeout: Option<Duration>,
    /// `type=`: how keys are found.
    pub kind: KeyvalKind,
}

/// How a key is found among those of a zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum KeyvalKind {
    /// `string`: by the same text.
    #[default]
    Text,
    /// `ip`: by the address, or the smallest network or range with it.
    Ip,
    /// `prefix`: by the longest text that it begins with.
    Prefix,
}
