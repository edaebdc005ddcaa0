//! What decides about single fields of responses.

use crate::template::Template;

/// `if_modified_since`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(missing_docs)]
pub enum IfModifiedSince {
    Off,
    #[default]
    Exact,
    Before,
}

/// `server_tokens`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[allow(missing_docs)]
pub enum ServerTokens {
    #[default]
    On,
    Off,
    Build,
    /// The text itself; without one there is no Server field.
    Text(Template),
}
