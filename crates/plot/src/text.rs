//! Text in pictures: escaping, an estimate of its width, lines that fit.

use std::fmt::Write as _;

/// Escapes for the content and the double-quoted attributes of SVG and HTML. Control characters, which XML forbids, become
/// spaces.
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            char if char.is_control() => out.push(' '),
            char => out.push(char),
        }
    }
    out
}

/// Rows of cells in columns as wide as their longest cell: the first `left` columns begin at the left, the others end at
/// the right.
pub fn columns(rows: &[Vec<String>], left: usize) -> String {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let length = |text: &String| text.chars().count();
    let widths: Vec<usize> =
        (0..count).map(|c| rows.iter().filter_map(|row| row.get(c)).map(length).max().unwrap_or(0)).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (c, (word, width)) in row.iter().zip(&widths).enumerate() {
            let gap = if c == 0 { "" } else { "  " };
            // Nothing fails that writes to a text.
            let _ = if c < left { write!(line, "{gap}{word:width$}") } else { write!(line, "{gap}{word:>width$}") };
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// The width of a text of this size in pixels, as common sans-serif fonts set it, rather too wide than too narrow.
pub(crate) fn width(text: &str, size: f64) -> f64 {
    let em: f64 = text
        .chars()
        .map(|char| match char {
            'i' | 'j' | 'l' | 'I' | '.' | ',' | ':' | ';' | '\'' | '|' | '(' | ')' | '[' | ']' | ' ' => 0.34,
            'f' | 't' | 'r' | '-' | '/' => 0.42,
            'm' | 'w' | 'M' | 'W' | '%' | '@' => 0.92,
            'A'..='Z' | '+' | '=' | '<' | '>' => 0.7,
            // Ideographs and the like are as wide as they are high.
            '\u{1100}'.. => 1.0,
            _ => 0.58,
        })
        .sum();
    em * size
}

/// Breaks a text between words so that each line fits; what does not fit by itself is cut, with an ellipsis.
pub(crate) fn wrap(text: &str, size: f64, room: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if width(line, size) + width(" ", size) + width(word, size) <= room => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(fit(word, size, room)),
        }
    }
    lines
}

/// The text, or as much of it as fits with an ellipsis after it.
pub(crate) fn fit(text: &str, size: f64, room: f64) -> String {
    if width(text, size) <= room {
        return text.to_string();
    }
    let mut cut = String::new();
    for char in text.chars() {
        cut.push(char);
        if width(&cut, size) + width("…", size) > room {
            cut.pop();
            break;
        }
    }
    cut.push('…');
    cut
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let rows = [vec!["a".into(), "±1".into()], vec!["long".into(), "2".into()]];
        assert_eq!(columns(&rows, 1), "a     ±1\nlong   2\n");
    }

    #[test]
    fn markup_and_control_characters_are_no_markup() {
        assert_eq!(escape("a<b>&\"c\"\u{0}\n"), "a&lt;b&gt;&amp;&quot;c&quot;  ");
    }

    #[test]
    fn lines_break_between_words() {
        assert_eq!(wrap("mean time in system", 10.0, 60.0), ["mean time", "in system"]);
        assert_eq!(wrap("", 10.0, 60.0), [""; 0]);
        let cut = wrap("shortest_expected_delay", 10.0, 60.0);
        assert_eq!(cut, ["shortest_…"]);
        assert!(width(&cut[0], 10.0) <= 60.0);
    }
}
