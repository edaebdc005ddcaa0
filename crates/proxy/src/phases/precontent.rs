//! The precontent phase: `try_files`.

use balanza_config::log_text::Escaped;
use balanza_config::model::{Fallback, Level, Location, Matcher, Root, TriedFile, TryFiles};
use balanza_config::template::{Part, Template};
use balanza_net::shortage::describe;

use crate::exchange::Exchange;
use crate::paths::{as_path, is_missing};
use crate::step::Step;
use crate::undecided::Undecided;
use crate::variables;

/// Looks for the files of `try_files`. One that exists becomes the URI, which the location's handler answers.
///
/// # Errors
/// None exists: the fallback.
pub fn try_files(x: &mut Exchange, location: &Location) -> Result<(), Step> {
    let Some(TryFiles { files, fallback }) = &location.try_files else { return Ok(()) };
    let replaced = replaced(location);
    let mut path = Vec::new();
    for TriedFile { name, is_directory } in files {
        path.clear();
        let (Root::Root(root) | Root::Alias(root)) = &location.settings.root;
        variables::render(root, x, &mut path)?;
        let begin = path.len();
        path.extend_from_slice(&render(name, x, replaced)?);
        match std::fs::metadata(as_path(&path)) {
            Ok(metadata) if metadata.is_dir() == *is_directory => {
                enter(x, &path[begin..], replaced, *is_directory);
                return Ok(());
            }
            Ok(_) => {}
            Err(error) if is_missing(&error) => {}
            Err(error) => {
                let error = describe(&error);
                x.report(Level::Crit, format_args!("stat() \"{}\" failed {error}", Escaped(&path)));
            }
        }
    }
    Err(match fallback {
        Fallback::Status(444) => Step::Drop,
        Fallback::Status(status) => Step::Error(*status),
        Fallback::Redirect(to) => redirect(render(to, x, replaced)?),
    })
}

/// What the root of a location replaces of the URI.
#[derive(Clone, Copy)]
enum Replaced {
    /// `root`: nothing.
    Nothing,
    /// `alias`: so many bytes at the beginning.
    Prefix(usize),
    /// `alias` in a regular expression: all of it.
    All,
}

fn replaced(location: &Location) -> Replaced {
    match (&location.settings.root, &location.matcher) {
        (Root::Root(_), _) => Replaced::Nothing,
        (Root::Alias(_), Matcher::Prefix { prefix, .. } | Matcher::Exact(prefix)) => Replaced::Prefix(prefix.len()),
        (Root::Alias(_), Matcher::Regex(_)) => Replaced::All,
        (Root::Alias(_), Matcher::Named(_)) => Replaced::Prefix(0),
    }
}

/// A name under the root. Of one with variables, an alias replaces the prefix that it has in common with the URI.
fn render(name: &Template, x: &mut Exchange, replaced: Replaced) -> Result<Vec<u8>, Undecided> {
    let mut text = Vec::new();
    variables::render(name, x, &mut text)?;
    let is_constant = name.parts().iter().all(|part| matches!(part, Part::Literal(_)));
    if let Replaced::Prefix(length) = replaced
        && !is_constant
        && x.route.uri.get(..length).is_some_and(|prefix| text.starts_with(prefix))
    {
        text.drain(..length);
    }
    Ok(text)
}

/// The file of this name is the request's from now on.
fn enter(x: &mut Exchange, name: &[u8], replaced: Replaced, is_directory: bool) {
    match replaced {
        Replaced::Nothing => name.clone_into(&mut x.route.uri),
        Replaced::Prefix(length) => {
            x.route.uri.truncate(length);
            x.route.uri.extend_from_slice(name);
        }
        Replaced::All if is_directory => {}
        Replaced::All => {
            name.clone_into(&mut x.route.uri);
            x.route.extend_alias();
        }
    }
}

fn redirect(to: Vec<u8>) -> Step {
    if to.starts_with(b"@") {
        return Step::Named(to);
    }
    match to.iter().position(|byte| *byte == b'?') {
        Some(mark) => Step::Internal(to[..mark].to_vec(), to[mark + 1..].to_vec()),
        None => Step::Internal(to, Vec::new()),
    }
}
