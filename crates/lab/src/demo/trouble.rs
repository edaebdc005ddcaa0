//! What the balancer's error log says while the demo runs, in one line.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Bytes read at a time; a log that grows faster is caught up with later.
const PIECE: u64 = 64 * 1024;

/// Levels worth showing, the worst first.
const LEVELS: [&str; 4] = ["emerg", "alert", "crit", "error"];

/// Follows an error log.
pub(super) struct Troubles {
    log: File,
    /// The beginning of a line whose end has not been written yet.
    rest: Vec<u8>,
    /// By level.
    counts: [u64; LEVELS.len()],
    last: String,
}

impl Troubles {
    /// Follows the log in this file from its beginning.
    ///
    /// # Errors
    /// It cannot be opened.
    pub(super) fn follow(path: &Path) -> io::Result<Self> {
        Ok(Self { log: File::open(path)?, rest: Vec::new(), counts: [0; LEVELS.len()], last: String::new() })
    }

    /// Reads what was written since the last time. Returns how often which level was written and the last message;
    /// none while there is no trouble.
    pub(super) fn summary(&mut self) -> Option<String> {
        // A log that cannot be read shows nothing; the demo goes on.
        let _ = (&self.log).take(PIECE).read_to_end(&mut self.rest);
        while let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.rest.drain(..=end).collect();
            self.hear(&String::from_utf8_lossy(&line));
        }
        let counted = self.counts.iter().zip(LEVELS).filter(|(count, _)| **count > 0);
        let counted: Vec<String> = counted.map(|(count, level)| format!("{count} {level}")).collect();
        (!counted.is_empty()).then(|| format!("balancer's log: {}; last: {}", counted.join(", "), self.last))
    }

    /// A line is `date time [level] process#thread: message, client: ...`.
    fn hear(&mut self, line: &str) {
        let level = LEVELS.iter().position(|level| line.contains(&format!(" [{level}] ")));
        let Some((level, (_, message))) = level.zip(line.split_once(": ")) else { return };
        self.counts[level] += 1;
        message.split(", client: ").next().unwrap_or_default().trim_end().clone_into(&mut self.last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn troubles_are_counted_and_the_last_is_quoted() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let mut troubles = Troubles::follow(file.path()).unwrap();
        writeln!(file, "2026/01/02 03:04:05 [notice] 1#1: start worker processes").unwrap();
        assert_eq!(troubles.summary(), None);
        write!(file, "2026/01/02 03:04:05 [alert] 1#2: 24 worker_connections are not enough\n2026/01/02 03:0").unwrap();
        let first = "balancer's log: 1 alert; last: 24 worker_connections are not enough";
        assert_eq!(troubles.summary().as_deref(), Some(first));
        writeln!(file, "4:06 [error] 1#2: *7 upstream timed out, client: 127.0.0.1, server: ").unwrap();
        let both = "balancer's log: 1 alert, 1 error; last: *7 upstream timed out";
        assert_eq!(troubles.summary().as_deref(), Some(both));
    }
}
