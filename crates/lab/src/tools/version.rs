//! What the tools say of their versions.

use std::process::{Command, Stdio};

use super::program;
use crate::plan::Tool;

/// What a tool calls its version, `2.3`; none if it is not installed or does not say. Locust takes a second.
pub fn version(tool: Tool) -> Option<String> {
    let (option, before) = match tool {
        Tool::Balanza => return Some(env!("CARGO_PKG_VERSION").into()),
        Tool::Ab => ("-V", "Version "),
        Tool::Siege => ("-V", "SIEGE "),
        Tool::Httperf => ("--version", "httperf-"),
        Tool::Wrk => ("-v", "/"),
        Tool::Locust => ("--version", "locust "),
    };
    // Siege writes into the home directory of whoever asks; there is none here. wrk ends with an error, after saying it.
    let output = Command::new(program(tool)?).arg(option).env("HOME", "/nonexistent").stdin(Stdio::null()).output();
    let output = output.ok()?;
    after(&String::from_utf8_lossy(&[output.stdout, output.stderr].concat()), before)
}

/// The word behind `before`, which begins with a digit.
fn after(said: &str, before: &str) -> Option<String> {
    let words = said.match_indices(before).map(|(at, _)| &said[at + before.len()..]);
    let version = words.filter(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    version.filter_map(|rest| rest.split_whitespace().next()).map(str::to_owned).next()
}

#[cfg(test)]
mod tests {
    use super::after;

    #[test]
    fn a_version_begins_with_a_digit() {
        assert_eq!(after("This is ApacheBench, Version 2.3 <$Revision$>", "Version ").as_deref(), Some("2.3"));
        assert_eq!(after("wrk debian/4.1.0-3+b2 [epoll]", "/").as_deref(), Some("4.1.0-3+b2"));
        assert_eq!(after("New template added to /root/.siege\nSIEGE 4.0.7\n", "SIEGE ").as_deref(), Some("4.0.7"));
        assert_eq!(after("locust (not here)", "locust "), None);
    }
}
