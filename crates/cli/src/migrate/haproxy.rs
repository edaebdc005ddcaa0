//! A haproxy.cfg as nginx.conf, which Balanza's reader has tested.

use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use balanza_config::{FileSystem, Options, Secret, Severity, Source, load};
use serde_json::json;

use crate::output;

/// A disk on which one file has another text.
struct Instead {
    file: PathBuf,
    text: String,
}

impl Source for Instead {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        if path == self.file { Ok(self.text.clone().into_bytes()) } else { FileSystem.read(path) }
    }

    fn secret(&self, path: &Path) -> io::Result<Secret> {
        FileSystem.secret(path)
    }

    fn glob(&self, pattern: &Path) -> io::Result<Vec<PathBuf>> {
        FileSystem.glob(pattern)
    }

    fn resolve(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        FileSystem.resolve(host)
    }
}

/// Writes the result, and what is missing on standard error.
///
/// # Errors
/// The result cannot be written.
pub fn write(text: &str, file: &Path, output: Option<&Path>, as_json: bool) -> anyhow::Result<ExitCode> {
    let name = file.file_name().unwrap_or(file.as_os_str()).to_string_lossy();
    let migration = balanza_migrate::haproxy(text, &name);
    let instead = Instead { file: "/nginx.conf".into(), text: migration.text.clone() };
    let (_, problems) = load(&instead, &Options::new("/", "/nginx.conf").with_process());
    let errors: Vec<_> = problems.iter().filter(|problem| problem.severity == Severity::Error).collect();
    match output {
        Some(path) => {
            std::fs::write(path, &migration.text).map_err(|error| anyhow::anyhow!("{}: {error}", path.display()))?
        }
        None if as_json => {}
        None => output::print(&migration.text)?,
    }
    if as_json {
        let notes = migration.notes.iter().map(|note| json!({ "line": note.line, "text": note.text, "why": note.why }));
        let errors: Vec<_> = errors.iter().map(|error| error.render(false)).collect();
        let value = json!({ "text": migration.text, "notes": notes.collect::<Vec<_>>(), "errors": errors });
        output::print(&format!("{value:#}\n"))?;
    } else {
        for note in &migration.notes {
            output::say(&format!("{}:{}: {}\n    {}", file.display(), note.line, note.text, note.why));
        }
        for error in &errors {
            output::say(&error.render(false));
        }
        let what = if errors.is_empty() { "balanza -t accepts the result" } else { "balanza -t refuses the result" };
        output::say(&format!("{} lines are not carried over or differ; {what}", migration.notes.len()));
    }
    Ok(match (errors.is_empty(), migration.notes.is_empty()) {
        (false, _) => ExitCode::from(2),
        (true, false) => ExitCode::from(1),
        (true, true) => ExitCode::SUCCESS,
    })
}
