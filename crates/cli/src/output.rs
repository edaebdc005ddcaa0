//! Standard output and standard error.

use std::io::{self, IsTerminal as _, Write};
use std::process::ExitCode;

/// Prints a text. The reader may stop early, as in `balanza algorithms | head`.
pub fn print(text: &str) -> anyhow::Result<()> {
    match io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
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
