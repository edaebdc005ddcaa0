//! What is wrong with a configuration, and where.

use std::fmt;
use std::path::{Path, PathBuf};

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The configuration can be used, but something in it has no effect or is doubtful.
    Warning,
    /// The configuration cannot be used.
    Error,
}

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
    /// The line itself, without its line feed.
    pub source: String,
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
}

impl Diagnostic {
    /// A problem without a hint. Control characters in the message, which quotes the configuration, are replaced: a
    /// message is one line.
    pub(crate) fn new(severity: Severity, message: &str, place: Option<Place>) -> Diagnostic {
        Diagnostic { severity, message: printable(message.as_bytes()), place, hint: None }
    }

    /// NGINX's name of the severity.
    fn level(&self) -> &'static str {
        match self.severity {
            Severity::Error => "emerg",
            Severity::Warning => "warn",
        }
    }

    /// The long form: message, place, the source line with the place marked, and the hint. `color` adds terminal
    /// colours.
    pub fn render(&self, color: bool) -> String {
        let paint = |code: &str, text: &str| {
            if color { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_string() }
        };
        let (word, code) = match self.severity {
            Severity::Error => ("error", "1;31"),
            Severity::Warning => ("warning", "1;33"),
        };
        let mut out = format!("{}{}\n", paint(code, word), paint("1", &format!(": {}", self.message)));
        if let Some(place) = &self.place {
            let number = place.line.to_string();
            let margin = " ".repeat(number.len());
            let bar = paint("34", "|");
            // Tabs stay tabs, so that the mark stands under what it marks whatever a tab's width is.
            let lead: String = place
                .source
                .bytes()
                .take(place.column - 1)
                .filter(|b| b & 0xc0 != 0x80)
                .map(|b| if b == b'\t' { '\t' } else { ' ' })
                .collect();
            let marked =
                place.source.bytes().skip(place.column - 1).take(place.length).filter(|b| b & 0xc0 != 0x80).count();
            out.push_str(&format!(
                "{margin}{} {}:{}:{}\n",
                paint("34", "-->"),
                place.file.display(),
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
        write!(f, "balanza: [{}] {}", self.level(), self.message)?;
        match &self.place {
            Some(place) => write!(f, " in {}:{}", place.file.display(), place.line),
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

/// Text for a terminal: control characters and bytes that are no text become question marks, as many as there were bytes,
/// so that columns stay right.
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
    files: Vec<(PathBuf, Vec<u8>)>,
}

impl Files {
    pub fn add(&mut self, path: &Path, text: Vec<u8>) -> u32 {
        self.files.push((path.to_path_buf(), text));
        u32::try_from(self.files.len() - 1).unwrap_or(u32::MAX)
    }

    /// How many files were read, each as often as it was read.
    pub fn count(&self) -> usize {
        self.files.len()
    }

    pub fn text(&self, file: u32) -> &[u8] {
        &self.files[file as usize].1
    }

    /// The line of an offset, from 1.
    pub fn line(&self, file: u32, offset: u32) -> usize {
        let text = self.text(file);
        1 + text[..(offset as usize).min(text.len())].iter().filter(|b| **b == b'\n').count()
    }

    pub fn place(&self, span: Span) -> Place {
        let (path, text) = &self.files[span.file as usize];
        let start = (span.start as usize).min(text.len());
        let line_start = text[..start].iter().rposition(|b| *b == b'\n').map_or(0, |i| i + 1);
        let line_end = text[start..].iter().position(|b| *b == b'\n').map_or(text.len(), |i| start + i);
        let line = &text[line_start..line_end];
        let source = printable(line.strip_suffix(b"\r").unwrap_or(line));
        let end = (span.end as usize).clamp(start, line_end.max(start));
        Place {
            file: path.clone(),
            line: self.line(span.file, span.start),
            column: start - line_start + 1,
            length: (end - start).max(1),
            source,
        }
    }
}
