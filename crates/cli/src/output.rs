//! Standard output and standard error.

use std::io::{self, IsTerminal as _, Write};
use std::path::Path;
use std::process::ExitCode;

/// Prints a text. The reader may stop early, as in `balanza algorithms | head`.
pub fn print(text: &str) -> anyhow::Result<()> {
    match io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

/// A path as a word of a shell.
pub fn shell(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |char: char| char.is_ascii_alphanumeric() || "/._-+=:@,".contains(char);
    if !text.is_empty() && text.chars().all(plain) { text } else { format!("'{}'", text.replace('\'', "'\\''")) }
}

/// Prints a message on standard error. A closed standard error is not an error.
pub fn say(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Says what went wrong.
pub fn failure(error: &anyhow::Error) -> ExitCode {
    eprintln!("balanza: {error:#}");
    ExitCode::FAILURE
}

/// Whether standard output may have colours.
pub fn colour() -> bool {
    io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none()
}
