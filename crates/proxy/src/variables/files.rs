//! The files that a request's URI stands for.

use balanza_config::model::{Matcher, Root};

use super::render;
use crate::exchange::Exchange;
use crate::paths::as_path;
use crate::undecided::Undecided;
use crate::values::write;

/// Appends the file that the URI stands for.
///
/// # Errors
/// A regular expression is undecided.
pub fn map_path(x: &mut Exchange, out: &mut Vec<u8>) -> Result<(), Undecided> {
    let location = x.location().clone();
    match &location.settings.root {
        Root::Root(template) => {
            render(template, x, out)?;
            out.extend_from_slice(&x.route.uri);
        }
        Root::Alias(template) => {
            render(template, x, out)?;
            match &location.matcher {
                Matcher::Prefix { prefix, .. } | Matcher::Exact(prefix) => {
                    out.extend_from_slice(x.route.uri.get(prefix.len()..).unwrap_or_default());
                }
                // The whole path comes from the directive, with the expression's captures.
                Matcher::Regex(_) if !x.route.extends_alias() => {}
                Matcher::Regex(_) | Matcher::Named(_) => out.extend_from_slice(&x.route.uri),
            }
        }
    }
    Ok(())
}

/// Appends the value of `root` or `alias`.
pub(super) fn document_root(x: &mut Exchange, out: &mut Vec<u8>) -> Result<bool, Undecided> {
    let location = x.location().clone();
    let (Root::Root(template) | Root::Alias(template)) = &location.settings.root;
    render(template, x, out)?;
    Ok(true)
}

/// Appends the same without symbolic links; false when there is no such directory.
pub(super) fn real_root(x: &mut Exchange, out: &mut Vec<u8>) -> Result<bool, Undecided> {
    let mut root = Vec::new();
    document_root(x, &mut root)?;
    Ok(match std::fs::canonicalize(as_path(&root)) {
        Ok(path) => write(out, format_args!("{}", path.display())),
        Err(_) => false,
    })
}
