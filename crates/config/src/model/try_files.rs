//! `try_files`.

use crate::template::Template;

/// `try_files`: the first of these files that exists is served.
#[derive(Debug)]
pub struct TryFiles {
    /// Names under the location's root or alias.
    pub files: Vec<TriedFile>,
    /// When none exists.
    pub fallback: Fallback,
}

/// A file that `try_files` looks for.
#[derive(Debug)]
pub struct TriedFile {
    /// Its name, without the slash of a directory.
    pub name: Template,
    /// A directory of this name is looked for.
    pub is_directory: bool,
}

/// The last argument of `try_files`.
#[derive(Debug)]
pub enum Fallback {
    /// `=404`.
    Status(u16),
    /// A URI with arguments, or `@name`.
    Redirect(Template),
}
