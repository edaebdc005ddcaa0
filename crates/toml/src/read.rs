//! A value from its text, or everything that is wrong with it.

use std::fmt;
use std::ops::Range;
use std::path::Path;

use balanza_config::{Diagnostic, Severity, nearest};
use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeTable, DeValue, Deserializer};

use crate::places::{Places, place};

/// What is wrong with a file, all of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// In the order of the text.
    pub problems: Vec<Diagnostic>,
}

impl Error {
    /// These problems, in the order of the text.
    pub fn new(mut problems: Vec<Diagnostic>) -> Error {
        problems.sort_by_key(|problem| problem.place.as_ref().map(|place| (place.line, place.column)));
        Error { problems }
    }

    /// Each with its line of the file and a hint; `colour` is for terminals.
    pub fn render(&self, colour: bool) -> String {
        self.problems.iter().map(|problem| problem.render(colour)).collect::<Vec<_>>().join("\n")
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.render(false).trim_end())
    }
}

impl std::error::Error for Error {}

/// The text of this file by its form. What cannot be read is taken out and the rest is read again, so that all errors are
/// reported.
pub fn read<'a, T: DeserializeOwned>(file: &Path, text: &'a str) -> Result<(T, Places<'a>), Error> {
    let (root, errors) = DeTable::parse_recoverable(text);
    let mut problems: Vec<_> = errors.iter().map(|error| diagnostic(file, text, error)).collect();
    if !errors.is_empty() {
        return Err(Error::new(problems));
    }
    let mut rest = root.clone();
    loop {
        let error = match T::deserialize(Deserializer::from(rest.clone())) {
            Ok(value) if problems.is_empty() => return Ok((value, Places::new(file, text, root))),
            Ok(_) => return Err(Error::new(problems)),
            Err(error) => error,
        };
        problems.push(diagnostic(file, text, &error));
        if !error.span().is_some_and(|span| remove(rest.get_mut(), &span)) {
            return Err(Error::new(problems));
        }
    }
}

/// Takes out the key that stands there, or the innermost item of a list around that place.
fn remove(table: &mut DeTable<'_>, span: &Range<usize>) -> bool {
    let key = table.keys().find(|key| key.span() == *span).cloned();
    match key {
        Some(key) => table.remove(&key).is_some(),
        None => table.iter_mut().any(|(_, value)| remove_inside(value, span)),
    }
}

fn remove_inside(value: &mut Spanned<DeValue<'_>>, span: &Range<usize>) -> bool {
    let list = match value.get_mut() {
        DeValue::Table(table) => return remove(table, span),
        DeValue::Array(list) => list,
        _ => return false,
    };
    if list.iter_mut().any(|item| remove_inside(item, span)) {
        return true;
    }
    let before = list.len();
    *list = list.iter().filter(|item| !contains(item, span)).cloned().collect();
    list.len() < before
}

/// Whether the place is in this value: a table of several lines has the span of its head alone.
fn contains(value: &Spanned<DeValue<'_>>, span: &Range<usize>) -> bool {
    let own = value.span();
    (own.start <= span.start && span.end <= own.end)
        || match value.get_ref() {
            DeValue::Table(table) => table.values().any(|inner| contains(inner, span)),
            DeValue::Array(list) => list.iter().any(|inner| contains(inner, span)),
            _ => false,
        }
}

/// An error of the reader's in this program's words.
fn diagnostic(file: &Path, text: &str, error: &toml::de::Error) -> Diagnostic {
    let (message, hint) = words(error.message());
    let place = error.span().map(|span| place(file, text, span));
    Diagnostic { severity: Severity::Error, message, place, hint, places: 1 }
}

/// A message of serde's in this program's words, with a hint. Names stand in grave accents there: the first is what is in
/// the text, the others what may be.
pub fn words(message: &str) -> (String, Option<String>) {
    let message = message.lines().collect::<Vec<_>>().join(" ");
    let names: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
    let (Some((unknown, known)), true) = (names.split_first(), message.starts_with("unknown ")) else {
        return (message.replace('`', "\""), None);
    };
    let what = if message.starts_with("unknown field") { "nothing here is called" } else { "there is no" };
    let hint = match nearest(unknown, known.iter().copied()) {
        Some(near) => format!("did you mean {near}?"),
        None => format!("there are: {}", known.join(", ")),
    };
    (format!("{what} \"{unknown}\""), Some(hint))
}
