//! Standard output and standard error.

use std::io::{self, Write};

/// Prints a text as it is. Whoever reads it may stop early, as in `balanza algorithms | head`.
pub fn print(text: &str) -> anyhow::Result<()> {
    match io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

/// Says something on standard error. If nobody hears it any more, the work goes on.
pub fn say(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}
