//! What could not be carried over, each line once.

use std::collections::BTreeMap;

use super::lines::Line;
use crate::Note;

/// Notes by line.
#[derive(Debug, Default)]
pub struct Notes(BTreeMap<usize, (String, Vec<String>)>);

impl Notes {
    /// Notes something of a line. A line of `defaults` is read for each section, and noted once.
    pub fn add(&mut self, line: &Line, why: impl Into<String>) {
        let why = why.into();
        let (_, reasons) = self.0.entry(line.number).or_insert_with(|| (line.text.clone(), Vec::new()));
        if !reasons.contains(&why) {
            reasons.push(why);
        }
    }

    /// All of them, by line.
    pub fn into_list(self) -> Vec<Note> {
        let note =
            |(line, (text, reasons)): (usize, (String, Vec<String>))| Note { line, text, why: reasons.join("; ") };
        self.0.into_iter().map(note).collect()
    }
}
