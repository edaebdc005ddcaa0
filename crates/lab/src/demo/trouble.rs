//! What the balancer's error log says while the demo runs.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::net::SocketAddr;
use std::path::Path;

/// Bytes read at a time; a log that grows faster is caught up with later.
const PIECE: u64 = 64 * 1024;
/// Pieces that are read in a row.
const PIECES: usize = 64;
/// A log that is longer, and has been read, is emptied, so that hours of trouble do not fill the disk.
const LOG_MAX: u64 = 16 << 20;

/// Levels worth showing, the worst first.
const LEVELS: [&str; 4] = ["emerg", "alert", "crit", "error"];

/// Something that happened to the balancer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// It begins to load its configuration again.
    Reloading,
    /// A message of the level `emerg`: what it was told to do it does not do.
    Refused(String),
}

/// Follows an error log.
pub(super) struct Troubles {
    log: File,
    /// The beginning of a line whose end has not been written yet.
    rest: Vec<u8>,
    /// By level.
    counts: [u64; LEVELS.len()],
    last: String,
    servers: Vec<SocketAddr>,
    /// Failed attempts, by server.
    failures: Vec<u64>,
}

impl Troubles {
    /// Follows the log in this file from its beginning. Failed attempts at these servers are counted.
    ///
    /// # Errors
    /// It cannot be opened.
    pub(super) fn follow(path: &Path, servers: &[SocketAddr]) -> io::Result<Self> {
        // Balanza and NGINX append, so that the log may be emptied while they write.
        let log = File::options().read(true).write(true).open(path)?;
        let (rest, last, failures) = (Vec::new(), String::new(), vec![0; servers.len()]);
        Ok(Self { log, rest, counts: [0; LEVELS.len()], last, servers: servers.to_vec(), failures })
    }

    /// Reads what was written since the last time and returns what happened.
    pub(super) fn read(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        // A log that cannot be read shows nothing; the demo goes on.
        let all_read = (0..PIECES).any(|_| {
            let read = (&self.log).take(PIECE).read_to_end(&mut self.rest).unwrap_or(0);
            let complete = self.rest.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
            let lines: Vec<u8> = self.rest.drain(..complete).collect();
            for line in lines.split(|byte| *byte == b'\n') {
                events.extend(self.hear(&String::from_utf8_lossy(line)));
            }
            read == 0
        });
        let position = self.log.stream_position().unwrap_or(0);
        let length = self.log.metadata().map_or(0, |metadata| metadata.len());
        // What is written faster than it is read is lost, and not the disk.
        if (all_read && position > LOG_MAX) || length > position + LOG_MAX {
            let _ = self.log.set_len(0).and_then(|()| self.log.rewind());
            self.rest.clear();
        }
        events
    }

    /// How often which level was written, and the last message; none while there is no trouble.
    pub(super) fn summary(&self) -> Option<String> {
        let counted = self.counts.iter().zip(LEVELS).filter(|(count, _)| **count > 0);
        let counted: Vec<String> = counted.map(|(count, level)| format!("{count} {level}")).collect();
        (!counted.is_empty()).then(|| format!("error log: {}; last: {}", counted.join(", "), self.last))
    }

    /// Attempts at each server that failed.
    pub(super) fn failures(&self) -> &[u64] {
        &self.failures
    }

    /// A line is `date time [level] process#thread: message, client: ..., upstream: "http://address/path", ...`.
    fn hear(&mut self, line: &str) -> Option<Event> {
        if line.contains(" [notice] ") && line.ends_with(": reconfiguring") {
            return Some(Event::Reloading);
        }
        let level = LEVELS.iter().position(|level| line.contains(&format!(" [{level}] ")));
        let (level, (_, message)) = level.zip(line.split_once(": "))?;
        self.counts[level] += 1;
        message.split(", client: ").next().unwrap_or_default().trim_end().clone_into(&mut self.last);
        let address = message.split_once(", upstream: \"http://").and_then(|(_, rest)| rest.split(['/', '"']).next());
        if let Some(address) = address
            && let Some(server) = self.servers.iter().position(|server| server.to_string() == address)
        {
            self.failures[server] += 1;
        }
        (LEVELS[level] == "emerg").then(|| Event::Refused(self.last.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn troubles_are_counted_and_the_last_is_quoted() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let servers = [SocketAddr::from(([127, 0, 0, 1], 8081)), SocketAddr::from(([127, 0, 0, 1], 8082))];
        let mut troubles = Troubles::follow(file.path(), &servers).unwrap();
        writeln!(file, "2026/01/02 03:04:05 [notice] 1#1: start worker processes").unwrap();
        assert_eq!((troubles.read(), troubles.summary()), (vec![], None));
        write!(file, "2026/01/02 03:04:05 [alert] 1#2: 24 worker_connections are not enough\n2026/01/02 03:0").unwrap();
        assert_eq!(troubles.read(), []);
        let first = "error log: 1 alert; last: 24 worker_connections are not enough";
        assert_eq!(troubles.summary().as_deref(), Some(first));
        writeln!(
            file,
            "4:06 [error] 1#2: *7 upstream timed out, client: 127.0.0.1, server: , request: \"GET / HTTP/1.1\", \
             upstream: \"http://127.0.0.1:8082/\", host: \"x\""
        )
        .unwrap();
        troubles.read();
        let both = "error log: 1 alert, 1 error; last: *7 upstream timed out";
        assert_eq!(troubles.summary().as_deref(), Some(both));
        assert_eq!(troubles.failures(), [0, 1]);
    }

    #[test]
    fn reloads_and_refusals_are_events() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let mut troubles = Troubles::follow(file.path(), &[]).unwrap();
        writeln!(file, "2026/01/02 03:04:05 [notice] 1#1: signal 1 (SIGHUP) received from 2, reconfiguring").unwrap();
        writeln!(file, "2026/01/02 03:04:05 [notice] 1#1: reconfiguring").unwrap();
        writeln!(file, "2026/01/02 03:04:05 [emerg] 1#1: unknown directive \"lest_conn\" in /x/nginx.conf:13").unwrap();
        let refused = "unknown directive \"lest_conn\" in /x/nginx.conf:13";
        assert_eq!(troubles.read(), [Event::Reloading, Event::Refused(refused.into())]);
    }

    #[test]
    fn a_long_log_is_emptied_once_it_has_been_read() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut log = File::options().append(true).open(file.path()).unwrap();
        let mut troubles = Troubles::follow(file.path(), &[]).unwrap();
        let line = "2026/01/02 03:04:05 [error] 1#2: *7 upstream timed out\n";
        let lines = LOG_MAX / line.len() as u64 + 2;
        log.write_all(line.repeat(lines as usize).as_bytes()).unwrap();
        while log.metadata().unwrap().len() > 0 {
            troubles.read();
        }
        writeln!(log, "2026/01/02 03:04:06 [alert] 1#2: after that").unwrap();
        troubles.read();
        let summary = format!("error log: 1 alert, {lines} error; last: after that");
        assert_eq!(troubles.summary(), Some(summary));
        assert!(log.metadata().unwrap().len() < 100);
    }
}
