//! Problems of a configuration for programs: one JSON object a line.

use std::fmt::Display;

use balanza_config::model::Level;
use balanza_config::{Diagnostic, Severity};
use serde::Serialize;

/// A problem. Fields that do not apply are `null`.
#[derive(Serialize)]
struct Problem<'a> {
    severity: &'a str,
    message: String,
    file: Option<String>,
    line: Option<usize>,
    column: Option<usize>,
    length: Option<usize>,
    /// In how many places the same is; the one given is the first.
    places: usize,
    hint: Option<&'a str>,
}

/// A problem in the text.
pub fn diagnostic(diagnostic: &Diagnostic) -> String {
    let place = diagnostic.place.as_ref();
    line(&Problem {
        severity: match diagnostic.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        },
        message: diagnostic.message.clone(),
        file: place.map(|place| place.file.display().to_string()),
        line: place.map(|place| place.line),
        column: place.map(|place| place.column),
        length: place.map(|place| place.length),
        places: diagnostic.places,
        hint: diagnostic.hint.as_deref(),
    })
}

/// A problem that is not in the text: a log that cannot be opened, an address that does not exist.
pub fn message(level: Level, message: &impl Display) -> String {
    let severity = if level <= Level::Error { "error" } else { "warning" };
    let message = message.to_string();
    line(&Problem { severity, message, file: None, line: None, column: None, length: None, places: 1, hint: None })
}

fn line(problem: &Problem<'_>) -> String {
    // Strings and numbers can always be written.
    let mut text = serde_json::to_string(problem).unwrap_or_default();
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problems_are_objects() {
        let mut files = balanza_config::Bundle::default();
        files.add_file("/n.conf", "events { }\nhttp {\n  sendfil on;\n}");
        let (_, problems) = balanza_config::load(&files, &balanza_config::Options::new("/", "/n.conf"));
        let text = diagnostic(&problems[0]);
        let object: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert!(text.ends_with("}\n") && text.lines().count() == 1, "{text}");
        let expected = serde_json::json!({
            "severity": "error", "message": "unknown directive \"sendfil\"", "file": "/n.conf", "line": 3, "column": 3,
            "length": 7, "places": 1, "hint": "did you mean `sendfile`?",
        });
        assert_eq!(object, expected);
        let object: serde_json::Value = serde_json::from_str(&message(Level::Emerg, &"a \"b\"\n")).unwrap();
        assert_eq!((&object["message"], &object["severity"]), (&"a \"b\"\n".into(), &"error".into()));
    }
}
