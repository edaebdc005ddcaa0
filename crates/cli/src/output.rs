//! Standard output and standard error.

use std::io::{self, Write};

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
