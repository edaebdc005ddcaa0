//! The page: what works, what differs, what is missing, and how to go over.

use std::fmt::Write as _;
use std::path::PathBuf;

use balanza_config::Diagnostic;
use serde_json::{Value, json};

use super::differences::Difference;
use super::moving::{Plan, Step};

/// What to do about a directive for which there is no better way.
const ELSEWHERE: &str = "Remove it if nothing needs it; or leave its location to an NGINX on another port and send requests there with \"proxy_pass\"";

/// A problem of the configuration.
pub struct Problem {
    /// What.
    message: String,
    /// File and line.
    place: Option<String>,
    /// What to do.
    hint: Option<String>,
}

impl Problem {
    /// That of a diagnostic.
    pub fn of(diagnostic: &Diagnostic) -> Problem {
        let place = diagnostic.place.as_ref().map(|place| format!("{}:{}", place.file.display(), place.line));
        let message = diagnostic.summary();
        let elsewhere = || message.contains("does not have yet").then(|| ELSEWHERE.to_string());
        Problem { hint: diagnostic.hint.clone().or_else(elsewhere), place, message }
    }
}

/// All of it.
pub struct Report {
    /// NGINX's program and its version.
    pub nginx: Option<(PathBuf, String)>,
    /// Its master process.
    pub process: Option<u32>,
    /// The configuration.
    pub file: PathBuf,
    /// How many files it has.
    pub files: usize,
    /// Servers, upstreams and addresses, if it can be served.
    pub counts: Option<[usize; 3]>,
    /// Modules that it loads.
    pub modules: Vec<String>,
    /// What keeps it from being served.
    pub errors: Vec<Problem>,
    /// What is left out.
    pub warnings: Vec<Problem>,
    /// What behaves otherwise.
    pub differences: Vec<Difference>,
    /// The commands.
    pub plan: Plan,
}

/// "1 server", "2 servers".
fn count(number: usize, what: &str) -> String {
    let end = match what {
        _ if number == 1 => "",
        _ if what.ends_with('s') => "es",
        _ => "s",
    };
    format!("{number} {what}{end}")
}

/// A text of a page of docs, with the files that it refers to instead of links.
fn without_links(text: &str) -> String {
    let mut parts = text.split("](");
    let mut out = parts.next().unwrap_or_default().to_string();
    for part in parts {
        let (file, rest) = part.split_once(')').unwrap_or((part, ""));
        let name = out.rfind('[').unwrap_or(out.len());
        out.truncate(name);
        out.push_str("docs/");
        out.push_str(file);
        out.push_str(rest);
    }
    out
}

impl Report {
    /// For people.
    pub fn text(&self, colour: bool) -> String {
        let mut out = String::new();
        let head = |text: &str| if colour { format!("\n\x1b[1m{text}\x1b[0m\n") } else { format!("\n{text}\n") };
        // Nothing fails that writes to a text.
        let _ = match &self.nginx {
            Some((program, version)) => write!(out, "NGINX {version}, {}", program.display()),
            None => write!(out, "NGINX's program was not found"),
        };
        let _ = match self.process {
            Some(id) => writeln!(out, ", runs as process {id}"),
            None => writeln!(out, ", does not run"),
        };
        let _ = writeln!(out, "{} ({})", self.file.display(), count(self.files, "file"));
        out.push_str(&head(if self.counts.is_some() { "Works" } else { "Does not work yet" }));
        match self.counts {
            Some([servers, upstreams, sockets]) => {
                let _ = writeln!(
                    out,
                    "  {}, {}, {}: Balanza serves this configuration",
                    count(servers, "server"),
                    count(upstreams, "upstream"),
                    count(sockets, "address")
                );
            }
            None => out.push_str("  Balanza cannot serve this configuration until what is missing is changed\n"),
        }
        if !self.modules.is_empty() {
            let _ = writeln!(
                out,
                "  load_module has no effect ({}): directives that Balanza lacks are listed as missing",
                self.modules.join(", ")
            );
        }
        let problems = |title: &str, problems: &[Problem], out: &mut String| {
            if problems.is_empty() {
                return;
            }
            out.push_str(&head(title));
            for Problem { message, place, hint } in problems {
                let place = place.as_ref().map(|place| format!("{place}: ")).unwrap_or_default();
                let _ = writeln!(out, "  {place}{message}");
                if let Some(hint) = hint {
                    let _ = writeln!(out, "      {hint}");
                }
            }
        };
        problems("Missing, has to be changed", &self.errors, &mut out);
        problems("Warnings: no response is wrong without a change", &self.warnings, &mut out);
        out.push_str(&head("Differs on purpose (docs/nginx-differences.md)"));
        for Difference { what, nginx, balanza } in &self.differences {
            let _ = writeln!(out, "  {what}\n      NGINX: {nginx}; Balanza: {}", without_links(balanza));
        }
        let steps = |title: &str, steps: &[Step], out: &mut String| {
            if steps.is_empty() {
                return;
            }
            out.push_str(&head(title));
            for Step { what, command } in steps {
                let _ = writeln!(out, "  # {what}\n  {command}");
            }
        };
        let over = match self.plan.gap {
            None => "Go over, without a refused connection".to_string(),
            Some(why) => format!("Go over; connections are refused for up to a second: {why}"),
        };
        steps(&over, &self.plan.over, &mut out);
        steps("Back, while NGINX's master process waits", &self.plan.undo, &mut out);
        steps("Stay", &self.plan.finish, &mut out);
        steps("Back later", &self.plan.back, &mut out);
        out
    }

    /// For programs.
    pub fn json(&self) -> Value {
        let problems = |problems: &[Problem]| -> Value {
            let each = problems.iter().map(|it| json!({ "message": it.message, "place": it.place, "hint": it.hint }));
            each.collect()
        };
        let steps = |steps: &[Step]| -> Value {
            steps.iter().map(|step| json!({ "what": step.what, "command": step.command })).collect()
        };
        json!({
            "nginx": self.nginx.as_ref().map(|(program, version)| json!({ "program": program, "version": version })),
            "process": self.process, "file": self.file, "files": self.files, "modules": self.modules,
            "errors": problems(&self.errors), "warnings": problems(&self.warnings),
            "differences": self.differences.iter()
                .map(|it| json!({ "what": it.what, "nginx": it.nginx, "balanza": it.balanza })).collect::<Vec<_>>(),
            "gap": self.plan.gap, "over": steps(&self.plan.over), "undo": steps(&self.plan.undo),
            "finish": steps(&self.plan.finish), "back": steps(&self.plan.back),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_their_nouns() {
        assert_eq!(count(1, "file") + &count(0, "server") + &count(2, "address"), "1 file0 servers2 addresses");
    }

    #[test]
    fn links_become_files() {
        assert_eq!(
            without_links("refused, see [Strict](design/strict.md), and [b](c.md)"),
            "refused, see docs/design/strict.md, and docs/c.md"
        );
        assert_eq!(without_links("`$a[1]` (b)"), "`$a[1]` (b)");
    }
}
