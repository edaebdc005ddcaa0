//! Lines of words, and sections of lines.

use super::notes::Notes;

/// A line with its words.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Line {
    /// From 1.
    pub number: usize,
    /// As it is written, without blanks around it.
    pub text: String,
    /// Its words, without quotes.
    pub words: Vec<String>,
}

impl Line {
    /// A word, or "".
    pub fn word(&self, nth: usize) -> &str {
        self.words.get(nth).map(String::as_str).unwrap_or_default()
    }

    /// The words from one on.
    pub fn from(&self, nth: usize) -> &[String] {
        self.words.get(nth..).unwrap_or_default()
    }

    /// Whether it begins with these words.
    pub fn is(&self, words: &[&str]) -> bool {
        self.words.len() >= words.len() && self.words.iter().zip(words).all(|(own, word)| own == word)
    }
}

/// A section.
#[derive(Debug, Clone, Default)]
pub struct Section {
    /// "frontend", "backend" and so on.
    pub kind: String,
    /// Its first line.
    pub head: Line,
    /// The others.
    pub lines: Vec<Line>,
}

/// The words that begin a section.
const KINDS: [&str; 19] = [
    "global",
    "defaults",
    "frontend",
    "backend",
    "listen",
    "peers",
    "resolvers",
    "userlist",
    "mailers",
    "program",
    "cache",
    "http-errors",
    "ring",
    "log-forward",
    "fcgi-app",
    "crt-store",
    "traces",
    "acme",
    "log-profile",
];

/// Whether a word begins a section of a haproxy.cfg.
pub fn is_section(word: &str) -> bool {
    KINDS.contains(&word)
}

/// The words of a line: blanks separate, quotes and backslashes keep them, "#" begins a comment.
fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut chars = text.chars();
    let mut quote = None;
    while let Some(char) = chars.next() {
        match (quote, char) {
            (Some('\''), '\'') | (Some('"'), '"') => quote = None,
            (Some('\''), _) => word.get_or_insert_default().push(char),
            (_, '\\') => word.get_or_insert_default().extend(chars.next()),
            (None, '\'' | '"') => {
                quote = Some(char);
                word.get_or_insert_default();
            }
            (None, '#') => break,
            (None, _) if char.is_whitespace() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(char),
        }
    }
    words.extend(word);
    words
}

/// The sections of a text. Lines before the first one are noted.
pub fn sections(text: &str, notes: &mut Notes) -> Vec<Section> {
    let mut sections: Vec<Section> = Vec::new();
    for (number, text) in text.lines().enumerate() {
        let line = Line { number: number + 1, text: text.trim().to_string(), words: words(text) };
        let Some(first) = line.words.first() else { continue };
        // Parts that depend on the environment: all of them are read.
        if first.starts_with('.') {
            notes.add(&line, "conditions are not evaluated: every branch is read");
            continue;
        }
        if is_section(first) {
            sections.push(Section { kind: first.clone(), head: line, lines: Vec::new() });
        } else if let Some(section) = sections.last_mut() {
            section.lines.push(line);
        } else {
            notes.add(&line, "a line before the first section");
        }
    }
    sections
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_separated() {
        assert_eq!(words("  bind *:80  # all"), ["bind", "*:80"]);
        assert_eq!(words(r#"a "b c" 'd "e' f\ g \#h"#), ["a", "b c", "d \"e", "f g", "#h"]);
        assert_eq!(words(r#"log-format "%ci\ \"%r\"" '' "#), ["log-format", "%ci \"%r\"", ""]);
        assert_eq!(words(" # nothing"), Vec::<String>::new());
    }

    #[test]
    fn sections_have_their_lines() {
        let mut notes = Notes::default();
        let sections = sections("stray\nglobal\n daemon\n\nfrontend a\n bind :80\n mode tcp\n", &mut notes);
        assert_eq!(
            sections.iter().map(|it| (it.kind.as_str(), it.lines.len())).collect::<Vec<_>>(),
            [("global", 1), ("frontend", 2)]
        );
        assert_eq!(sections[1].lines[1].number, 7);
        assert_eq!(notes.into_list()[0].line, 1);
    }
}
