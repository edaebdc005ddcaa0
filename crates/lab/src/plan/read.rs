//! A plan from its text, or everything that is wrong with it.

use std::fmt;
use std::ops::Range;
use std::path::Path;

use balanza_config::{Diagnostic, Severity, nearest};
use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeTable, DeValue, Deserializer};

use super::places::{Places, place};
use super::{Plan, check};

/// What is wrong with a plan, all of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// In the order of the text.
    pub problems: Vec<Diagnostic>,
}

impl Error {
    /// Each with its line of the plan and a hint; `colour` is for terminals.
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

impl Plan {
    /// Reads a plan.
    pub fn parse(text: &str) -> Result<Plan, Error> {
        Plan::parse_file(Path::new("plan"), text)
    }

    /// Reads a plan that stands in this file.
    pub fn parse_file(file: &Path, text: &str) -> Result<Plan, Error> {
        let mut problems = Vec::new();
        let plan = structure(file, text, &mut problems);
        if let Some((plan, places)) = plan {
            if problems.is_empty() {
                problems = check::problems(&plan, &places);
            }
            if problems.is_empty() {
                return Ok(plan);
            }
        }
        problems.sort_by_key(|problem| problem.place.as_ref().map(|place| (place.line, place.column)));
        Err(Error { problems })
    }
}

/// The plan by its form. What cannot be read is taken out and the rest is read again, so that all errors are reported.
fn structure<'a>(file: &Path, text: &'a str, problems: &mut Vec<Diagnostic>) -> Option<(Plan, Places<'a>)> {
    let (root, errors) = DeTable::parse_recoverable(text);
    problems.extend(errors.iter().map(|error| diagnostic(file, text, error)));
    if !errors.is_empty() {
        return None;
    }
    let mut rest = root.clone();
    loop {
        let error = match Plan::deserialize(Deserializer::from(rest.clone())) {
            Ok(plan) => return Some((plan, Places::new(file, text, root))),
            Err(error) => error,
        };
        problems.push(diagnostic(file, text, &error));
        if !error.span().is_some_and(|span| remove(rest.get_mut(), &span)) {
            return None;
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

/// Names in a message of serde's stand in grave accents: the first is what is there, the others what may be.
fn words(message: &str) -> (String, Option<String>) {
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
