//! What a check found, as text and as JSON.

use std::fmt::Write as _;

use serde_json::{Value, json};

/// How good it is, the best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// Nothing to do.
    Fine,
    /// It could not be found out.
    Unknown,
    /// It works, and will not under load or later.
    Warning,
    /// It does not work.
    Error,
}

impl State {
    fn word(self) -> &'static str {
        match self {
            State::Fine => "ok",
            State::Unknown => "unknown",
            State::Warning => "warning",
            State::Error => "error",
        }
    }

    fn colour(self) -> &'static str {
        match self {
            State::Fine => "32",
            State::Unknown => "2",
            State::Warning => "33",
            State::Error => "31",
        }
    }
}

/// The result of one check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What was checked, in a word or two.
    pub check: &'static str,
    /// How good it is.
    pub state: State,
    /// What was found.
    pub found: String,
    /// What to set: a command of the shell, or a directive.
    pub fix: Option<String>,
}

impl Finding {
    /// Something that is as it should be.
    pub fn fine(check: &'static str, found: impl Into<String>) -> Finding {
        Finding { check, state: State::Fine, found: found.into(), fix: None }
    }

    /// Something that could not be found out.
    pub fn unknown(check: &'static str, found: impl Into<String>) -> Finding {
        Finding { state: State::Unknown, ..Finding::fine(check, found) }
    }

    /// Something that should be changed.
    pub fn warning(check: &'static str, found: impl Into<String>, fix: impl Into<String>) -> Finding {
        Finding { check, state: State::Warning, found: found.into(), fix: Some(fix.into()) }
    }

    /// Something that must be changed.
    pub fn error(check: &'static str, found: impl Into<String>, fix: impl Into<String>) -> Finding {
        Finding { state: State::Error, ..Finding::warning(check, found, fix) }
    }
}

/// The worst state; `Fine` without findings.
pub fn worst(findings: &[Finding]) -> State {
    findings.iter().map(|finding| finding.state).max().unwrap_or(State::Fine)
}

/// A line for each finding, and below it what to set.
pub fn table(findings: &[Finding], colour: bool) -> String {
    let width = findings.iter().map(|finding| finding.check.chars().count()).max().unwrap_or(0);
    let mut text = String::new();
    for Finding { check, state, found, fix } in findings {
        let word = format!("{:7}", state.word());
        let word = if colour { format!("\x1b[{}m{word}\x1b[0m", state.colour()) } else { word };
        // Nothing fails that writes to a text.
        let _ = writeln!(text, "{word}  {check:width$}  {found}");
        if let Some(fix) = fix {
            let _ = writeln!(text, "{:7}  {:width$}  set: {fix}", "", "");
        }
    }
    let count = |state| findings.iter().filter(|finding| finding.state == state).count();
    let (errors, warnings) = (count(State::Error), count(State::Warning));
    let _ = writeln!(text, "\n{} checks, {errors} errors, {warnings} warnings", findings.len());
    if findings.iter().any(|finding| finding.fix.as_ref().is_some_and(|fix| fix.starts_with("sysctl -w"))) {
        text.push_str("To keep settings of sysctl over a restart, write them to /etc/sysctl.d/90-balanza.conf.\n");
    }
    text
}

/// The same for programs.
pub fn json(findings: &[Finding]) -> Value {
    let each = findings.iter().map(|finding| {
        json!({ "check": finding.check, "state": finding.state.word(), "found": finding.found, "set": finding.fix })
    });
    json!({ "state": worst(findings).word(), "checks": each.collect::<Vec<_>>() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_the_state_the_finding_and_the_command() {
        let findings = [
            Finding::fine("clock", "synchronised"),
            Finding::warning("backlog", "128", "sysctl -w net.core.somaxconn=511"),
        ];
        let expected = "\
ok       clock    synchronised
warning  backlog  128
                  set: sysctl -w net.core.somaxconn=511

2 checks, 0 errors, 1 warnings
To keep settings of sysctl over a restart, write them to /etc/sysctl.d/90-balanza.conf.
";
        assert_eq!(table(&findings, false), expected);
        assert!(table(&findings, true).starts_with("\x1b[32mok     \x1b[0m  clock"));
        assert_eq!(worst(&findings), State::Warning);
        assert_eq!(worst(&[Finding::unknown("a", "b")]), State::Unknown);
        assert_eq!(json(&findings)["checks"][1]["set"], "sysctl -w net.core.somaxconn=511");
        assert_eq!(json(&findings)["state"], "warning");
    }
}
