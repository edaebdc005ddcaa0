//! A table before it is a page's, a terminal's or Markdown's.

use balanza_plot::{Cell, Table};

use super::words::NOTHING;
use crate::text::wrap;

/// How a column stands, in all forms of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Align {
    /// Names and verdicts.
    Left,
    /// Numbers.
    Right,
    /// Sentences.
    Prose,
}

/// A column's heading.
#[derive(Clone, Debug)]
pub(super) struct Column {
    pub title: String,
    pub align: Align,
    /// In a terminal that is too narrow, columns go in this order; those with 0 stay.
    pub dispensable: u8,
}

/// What an entry says about what it stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tone {
    Plain,
    Good,
    Bad,
}

/// An entry.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub text: String,
    pub tone: Tone,
}

impl Entry {
    pub fn new(text: impl Into<String>, tone: Tone) -> Self {
        Self { text: text.into(), tone }
    }
}

impl<T: Into<String>> From<T> for Entry {
    fn from(text: T) -> Self {
        Self::new(text, Tone::Plain)
    }
}

/// A table.
#[derive(Clone, Debug, Default)]
pub(super) struct Grid {
    columns: Vec<Column>,
    rows: Vec<Vec<Entry>>,
}

impl Grid {
    /// A column more; before any row.
    pub fn column(mut self, title: &str, align: Align, dispensable: u8) -> Self {
        self.columns.push(Column { title: title.to_string(), align, dispensable });
        self
    }

    /// A row more, as many entries as there are columns.
    pub fn row(&mut self, entries: Vec<Entry>) {
        debug_assert_eq!(entries.len(), self.columns.len(), "a row has an entry for each column");
        self.rows.push(entries);
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Whether any row says more than its names.
    pub fn has_numbers(&self) -> bool {
        self.columns.iter().any(|column| column.align == Align::Right) && !self.is_empty()
    }

    /// Without the columns that say nothing in any row.
    pub fn without_empty(mut self) -> Self {
        let says = |column: usize| self.rows.iter().any(|row| !matches!(row[column].text.as_str(), "" | NOTHING));
        let kept: Vec<bool> = (0..self.columns.len()).map(says).collect();
        let mut keep = kept.iter().copied();
        self.columns.retain(|_| keep.next().unwrap_or(true));
        for row in &mut self.rows {
            let mut keep = kept.iter().copied();
            row.retain(|_| keep.next().unwrap_or(true));
        }
        self
    }

    /// For a page.
    pub fn html(&self) -> Table {
        let mut table = Table::new(self.columns.iter().map(|column| match column.align {
            Align::Right => Cell::number(&column.title),
            Align::Left | Align::Prose => Cell::text(&column.title),
        }));
        for row in &self.rows {
            table.row(row.iter().zip(&self.columns).map(|(entry, column)| match (entry.tone, column.align) {
                (Tone::Good, _) => Cell::good(&entry.text),
                (Tone::Bad, _) => Cell::bad(&entry.text),
                (Tone::Plain, Align::Left) => Cell::text(&entry.text),
                (Tone::Plain, Align::Right) => Cell::number(&entry.text),
                (Tone::Plain, Align::Prose) => Cell::prose(&entry.text),
            }));
        }
        table
    }

    /// For a Markdown file.
    pub fn markdown(&self) -> String {
        let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
        let mut text = line(self.columns.iter().map(|column| escape(&column.title)).collect());
        let rule = |column: &Column| if column.align == Align::Right { "--:" } else { "---" }.to_string();
        text.push_str(&format!("|{}|\n", self.columns.iter().map(rule).collect::<Vec<_>>().join("|")));
        for row in &self.rows {
            text.push_str(&line(row.iter().map(|entry| escape(&entry.text)).collect()));
        }
        text
    }

    /// For a terminal of so many columns. What does not fit goes: first dispensable columns, then ends of names.
    pub fn terminal(&self, width: usize, colour: bool) -> String {
        let all: Vec<usize> = (0..self.columns.len()).collect();
        let widths: Vec<usize> = all.iter().map(|&column| self.widest(column)).collect();
        let total = |shown: &[usize]| shown.iter().map(|&column| widths[column] + 2).sum::<usize>().saturating_sub(2);
        let mut shown = all;
        while total(&shown) > width {
            let least = shown.iter().copied().filter(|&column| self.columns[column].dispensable > 0);
            let Some(least) = least.min_by_key(|&column| self.columns[column].dispensable) else { break };
            shown.retain(|&column| column != least);
        }
        // What is still too wide is cut from the names, the widest first.
        let mut widths: Vec<usize> = shown.iter().map(|&column| widths[column]).collect();
        while widths.iter().map(|width| width + 2).sum::<usize>().saturating_sub(2) > width {
            let left = (0..shown.len()).filter(|&at| self.columns[shown[at]].align != Align::Right && widths[at] > 8);
            let Some(widest) = left.max_by_key(|&at| widths[at]) else { break };
            widths[widest] -= 1;
        }
        let line = |entries: &mut dyn Iterator<Item = (usize, &str, Tone)>| {
            let mut line = String::new();
            for (at, text, tone) in entries {
                let text = cut(text, widths[at]);
                let room = " ".repeat(widths[at] - text.chars().count());
                let text = match (tone, colour) {
                    (Tone::Good, true) => format!("\x1b[32m{text}\x1b[0m"),
                    (Tone::Bad, true) => format!("\x1b[31m{text}\x1b[0m"),
                    _ => text,
                };
                match self.columns[shown[at]].align {
                    Align::Right => line.push_str(&format!("{room}{text}  ")),
                    Align::Left | Align::Prose => line.push_str(&format!("{text}{room}  ")),
                }
            }
            format!("{}\n", line.trim_end())
        };
        let mut heading =
            shown.iter().enumerate().map(|(at, &column)| (at, self.columns[column].title.as_str(), Tone::Plain));
        let mut text = line(&mut heading);
        for row in &self.rows {
            text.push_str(&line(
                &mut shown.iter().enumerate().map(|(at, &column)| (at, row[column].text.as_str(), row[column].tone)),
            ));
        }
        text
    }

    fn widest(&self, column: usize) -> usize {
        let entries = self.rows.iter().map(|row| row[column].text.chars().count());
        entries.chain([self.columns[column].title.chars().count()]).max().unwrap_or(0)
    }
}

fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_string();
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

/// Text of users is no markup of a table: pipes, emphasis, tags.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '|' | '*' | '_' | '`' | '<' | '[' | ']' | '\\' => out.extend(['\\', char]),
            '\n' | '\r' => out.push(' '),
            char => out.push(char),
        }
    }
    out
}

/// A text in lines of a terminal, each indented by so many spaces.
pub(super) fn indented(text: &str, indent: usize, width: usize) -> String {
    let room = width.saturating_sub(indent).max(20);
    wrap(text, room).iter().map(|line| format!("{}{line}\n", " ".repeat(indent))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid() -> Grid {
        let mut grid = Grid::default()
            .column("algorithm", Align::Left, 0)
            .column("requests/s", Align::Right, 0)
            .column("p95", Align::Right, 1)
            .column("max", Align::Right, 2)
            .column("", Align::Right, 0);
        grid.row(vec!["least_conn".into(), Entry::new("187 ± 1", Tone::Good), "1.2 s".into(), "5 s".into(), "".into()]);
        grid.row(vec!["round_robin".into(), "80 ± 1".into(), "3.2 s".into(), "38 s".into(), "–".into()]);
        grid.without_empty()
    }

    #[test]
    fn narrow_terminals_lose_columns_then_ends_of_names() {
        assert_eq!(
            grid().terminal(80, false),
            "algorithm    requests/s    p95   max\nleast_conn      187 ± 1  1.2 s   5 s\nround_robin      80 ± 1  3.2 s  38 s\n"
        );
        assert_eq!(grid().terminal(34, false).lines().next(), Some("algorithm    requests/s   max"));
        assert_eq!(grid().terminal(20, false).lines().nth(1), Some("least_c…     187 ± 1"));
        assert!(grid().terminal(80, true).contains("\x1b[32m187 ± 1\x1b[0m"));
        assert!(!grid().terminal(80, false).contains('\x1b'));
    }

    #[test]
    fn markup_in_names_is_escaped() {
        assert_eq!(escape("a|b*<i>"), "a\\|b\\*\\<i>");
        assert!(grid().markdown().starts_with("| algorithm | requests/s | p95 | max |\n|---|--:|--:|--:|\n"));
    }
}
