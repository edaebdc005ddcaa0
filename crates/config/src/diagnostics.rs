//! What is wrong with a configuration, and where.

use std::cell::OnceCell;
use std::fmt;
use std::path::{Path, PathBuf};

use crate::log_text::OneLine;

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The configuration can be used, but something in it has no effect or is doubtful.
    Warning,
    /// The configuration cannot be used.
    Error,
}

/// How the message about what NGINX has and Balanza has not ends.
pub(crate) const MISSING: &str = "that Balanza does not have yet";

/// The place of a problem in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The file, or "command line" for `-g`.
    pub file: PathBuf,
    /// Line, from 1.
    pub line: usize,
    /// Column in bytes, from 1.
    pub column: usize,
    /// Length of the marked text in bytes, at least 1, within the line.
    pub length: usize,
    /// The line itself, without its line feed; of a very long one what is around the marked text.
    pub source: String,
    /// Bytes of the line that `source` leaves out at its beginning.
    pub skipped: usize,
}

/// One problem.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// How bad it is.
    pub severity: Severity,
    /// What is wrong, in NGINX's words wherever NGINX has words for it.
    pub message: String,
    /// Where, unless the whole configuration is meant.
    pub place: Option<Place>,
    /// What to do about it.
    pub hint: Option<String>,
    /// In how many places it is; `place` is the first of them.
    pub places: usize,
}

impl Diagnostic {
    /// A problem without a hint; control characters in its message are replaced, so that it is one line.
    pub(crate) fn new(severity: Severity, message: &str, place: Option<Place>) -> Diagnostic {
        Diagnostic { severity, message: printable(message.as_bytes()), place, hint: None, places: 1 }
    }

    /// What follows the message of a problem that is in several places.
    fn count(&self) -> String {
        if self.places > 1 { format!(" ({} places, this is the first)", self.places) } else { String::new() }
    }

    /// The message and in how many places it is.
    pub fn summary(&self) -> String {
        format!("{}{}", self.message, self.count())
    }

    /// NGINX's name of the severity.
    fn level(&self) -> &'static str {
        match self.severity {
            Severity::Error => "emerg",
            Severity::Warning => "warn",
        }
    }

    /// The long form: message, place, the source line with the place marked, and the hint; `color` is for terminals.
    pub fn render(&self, color: bool) -> String {
        let paint = |code: &str, text: &str| {
            if color { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_string() }
        };
        let (word, code) = match self.severity {
            Severity::Error => ("error", "1;31"),
            Severity::Warning => ("warning", "1;33"),
        };
        let mut out = format!("{}{}\n", paint(code, word), paint("1", &format!(": {}", self.summary())));
        if let Some(place) = &self.place {
            let number = place.line.to_string();
            let margin = " ".repeat(number.len());
            let bar = paint("34", "|");
            let mark = place.column - 1 - place.skipped;
            // Tabs stay tabs, so that the mark stands under what it marks whatever a tab's width is.
            let lead: String = place
                .source
                .bytes()
                .take(mark)
                .filter(|b| b & 0xc0 != 0x80)
                .map(|b| if b == b'\t' { '\t' } else { ' ' })
                .collect();
            let marked = place.source.bytes().skip(mark).take(place.length).filter(|b| b & 0xc0 != 0x80).count();
            out.push_str(&format!(
                "{margin}{} {}:{}:{}\n",
                paint("34", "-->"),
                OneLine(&place.file.display()),
                place.line,
                place.column
            ));
            out.push_str(&format!("{margin} {bar}\n{} {bar} {}\n", paint("34", &number), place.source));
            out.push_str(&format!("{margin} {bar} {lead}{}\n", paint(code, &"^".repeat(marked.max(1)))));
            if let Some(hint) = &self.hint {
                out.push_str(&format!("{margin} {} {hint}\n", paint("34", "= hint:")));
            }
        } else if let Some(hint) = &self.hint {
            out.push_str(&format!("  {} {hint}\n", paint("34", "= hint:")));
        }
        out
    }
}

impl fmt::Display for Diagnostic {
    /// NGINX's one-line form.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "balanza: [{}] {}", self.level(), self.summary())?;
        match &self.place {
            Some(place) => write!(f, " in {}:{}", OneLine(&place.file.display()), place.line),
            None => Ok(()),
        }
    }
}

/// A piece of a file: byte offsets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    pub file: u32,
    pub start: u32,
    pub end: u32,
}

/// Text for a terminal: each byte that cannot be printed becomes a question mark, so that columns stay right.
fn printable(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            if character.is_control() && character != '\t' {
                out.extend(std::iter::repeat_n('?', character.len_utf8()));
            } else {
                out.push(character);
            }
        }
        out.extend(std::iter::repeat_n('?', chunk.invalid().len()));
    }
    out
}

/// The files that were read, for turning a [`Span`] into a [`Place`].
#[derive(Debug, Default)]
pub(crate) struct Files {
    files: Vec<File>,
}

#[derive(Debug)]
struct File {
    path: PathBuf,
    text: Vec<u8>,
    /// Where the lines begin; found when the first place is asked for.
    lines: OnceCell<Vec<u32>>,
}

impl File {
    /// The line of an offset, from 0, and where it begins.
    fn line(&self, offset: usize) -> (usize, usize) {
        let lines = self.lines.get_or_init(|| {
            let ends = self.text.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
            std::iter::once(0).chain(ends.map(|(at, _)| u32::try_from(at + 1).unwrap_or(u32::MAX))).collect()
        });
        let line = lines.partition_point(|begin| *begin as usize <= offset).saturating_sub(1);
        (line, lines[line] as usize)
    }
}

/// How much of a line is shown before and behind the place of a problem.
const SHOWN: usize = 500;

impl Files {
    pub fn add(&mut self, path: &Path, text: Vec<u8>) -> u32 {
        self.files.push(File { path: path.to_path_buf(), text, lines: OnceCell::new() });
        u32::try_from(self.files.len() - 1).unwrap_or(u32::MAX)
    }

    /// How many files were read, each as often as it was read.
    pub fn count(&self) -> usize {
        self.files.len()
    }

    /// Their paths, in the order in which they were read.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().map(|file| file.path.as_path())
    }

    /// The line of an offset, from 1.
    pub fn line(&self, file: u32, offset: u32) -> usize {
        self.files[file as usize].line(offset as usize).0 + 1
    }

    pub fn place(&self, span: Span) -> Place {
        let file = &self.files[span.file as usize];
        let text = &file.text;
        let start = (span.start as usize).min(text.len());
        let (number, line_start) = file.line(start);
        let rest = &text[start..(start + SHOWN).min(text.len())];
        let line_end = start + rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len());
        let shown_from = line_start.max(start.saturating_sub(SHOWN));
        let line = &text[shown_from..line_end];
        let source = printable(line.strip_suffix(b"\r").unwrap_or(line));
        let end = (span.end as usize).clamp(start, line_end.max(start));
        Place {
            file: file.path.clone(),
            line: number + 1,
            column: start - line_start + 1,
            length: (end - start).max(1),
            source,
            skipped: shown_from - line_start,
        }
    }
}
