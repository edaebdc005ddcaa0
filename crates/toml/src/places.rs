//! Where in its text a part of a file stands.

use std::ops::Range;
use std::path::{Path, PathBuf};

use balanza_config::{Diagnostic, Place, Severity};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A text of TOML whose values can be found again.
pub struct Places<'a> {
    file: PathBuf,
    text: &'a str,
    root: Spanned<DeTable<'a>>,
}

impl<'a> Places<'a> {
    /// `root` is what `text` says.
    pub(super) fn new(file: &Path, text: &'a str, root: Spanned<DeTable<'a>>) -> Places<'a> {
        Places { file: file.into(), text, root }
    }

    /// The place of the value of a path like `farms.0.servers.1.target.backlog`; of the innermost part that there is. A key
    /// may have dots in it.
    pub fn of(&self, path: &str) -> Option<Place> {
        Some(place(&self.file, self.text, in_table(self.root.get_ref(), path)?))
    }

    /// What is wrong with the value of a path. An empty hint is none.
    pub fn problem(&self, path: &str, message: impl Into<String>, hint: impl Into<String>) -> Diagnostic {
        let hint = Some(hint.into()).filter(|hint| !hint.is_empty());
        Diagnostic { severity: Severity::Error, message: message.into(), place: self.of(path), hint, places: 1 }
    }

    /// Where the text inside a string begins, if it is written as it is read: on one line, without escapes.
    pub fn inside(&self, path: &str, text: &str, offset: usize) -> Option<Place> {
        let place = self.of(path)?;
        let written = place.source.get(place.column - 1..)?;
        let quote = written.find(text).filter(|at| *at <= 3)?;
        let length = text.get(offset..).map_or(1, word);
        Some(Place { column: place.column + quote + offset, length, ..place })
    }
}

fn in_table(table: &DeTable, path: &str) -> Option<Range<usize>> {
    let rest = |key: &str| path.strip_prefix(key).filter(|rest| rest.is_empty() || rest.starts_with('.'));
    let found = table.iter().filter_map(|(key, value)| Some((rest(key.get_ref())?, value)));
    let (rest, value) = found.min_by_key(|(rest, _)| rest.len())?;
    Some(in_value(value, rest.trim_start_matches('.')))
}

fn in_value(value: &Spanned<DeValue>, path: &str) -> Range<usize> {
    let deeper = match value.get_ref() {
        DeValue::Table(table) => in_table(table, path),
        DeValue::Array(list) => {
            let (step, rest) = path.split_once('.').unwrap_or((path, ""));
            step.parse().ok().and_then(|at: usize| list.get(at)).map(|item| in_value(item, rest))
        }
        _ => None,
    };
    deeper.unwrap_or_else(|| value.span())
}

/// Length of the word that begins here.
fn word(text: &str) -> usize {
    let end = text.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(text.len());
    end.max(1)
}

/// The place of a piece of a text: its first line.
pub(super) fn place(file: &Path, text: &str, span: Range<usize>) -> Place {
    let start = span.start.min(text.len());
    let line_start = text[..start].rfind('\n').map_or(0, |at| at + 1);
    let source = text[line_start..].lines().next().unwrap_or_default();
    let column = start - line_start;
    let length = span.len().clamp(1, source.len().saturating_sub(column).max(1));
    Place {
        file: file.into(),
        line: text[..start].matches('\n').count() + 1,
        column: column + 1,
        length,
        source: source.into(),
        skipped: 0,
    }
}
