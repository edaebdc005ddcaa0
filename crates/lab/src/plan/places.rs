//! Where in its text a part of a plan stands.

use std::ops::Range;
use std::path::{Path, PathBuf};

use balanza_config::Place;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A text of TOML whose values can be found again.
pub(super) struct Places<'a> {
    file: PathBuf,
    text: &'a str,
    root: Spanned<DeTable<'a>>,
}

impl<'a> Places<'a> {
    /// `root` is what `text` says.
    pub fn new(file: &Path, text: &'a str, root: Spanned<DeTable<'a>>) -> Places<'a> {
        Places { file: file.into(), text, root }
    }

    /// The place of the value of a path like `farms.0.servers.1.target.backlog`; of the innermost part that there is.
    pub fn of(&self, path: &str) -> Option<Place> {
        let mut table = Some(self.root.get_ref());
        let mut list: Option<&[Spanned<DeValue>]> = None;
        let mut span = None;
        for step in path.split('.').filter(|step| !step.is_empty()) {
            let found = match (table, list) {
                (Some(table), _) => table.get(step),
                (None, Some(list)) => step.parse().ok().and_then(|at: usize| list.get(at)),
                (None, None) => None,
            };
            let Some(value) = found else { break };
            span = Some(value.span());
            (table, list) = match value.get_ref() {
                DeValue::Table(inner) => (Some(inner), None),
                DeValue::Array(inner) => (None, Some(&inner[..])),
                _ => (None, None),
            };
        }
        Some(place(&self.file, self.text, span?))
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
