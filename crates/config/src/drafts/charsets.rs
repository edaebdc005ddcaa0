//! Character sets.

use crate::diagnostics::Span;
use crate::model::Charsets;

/// Character sets while a configuration is read.
#[derive(Debug, Default)]
pub(crate) struct CharsetDrafts {
    pub charsets: Charsets,
    /// Conversions that blocks need.
    pub needed: Vec<(usize, usize, Option<Span>)>,
}

impl CharsetDrafts {
    pub fn index(&mut self, name: &str) -> usize {
        self.charsets.find(name.as_bytes()).unwrap_or_else(|| {
            self.charsets.names.push(name.into());
            self.charsets.names.len() - 1
        })
    }
}
