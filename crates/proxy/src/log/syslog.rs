//! Log lines to a syslog server. Each thread has sockets of its own, which are made when the first line is sent.

use std::cell::RefCell;
use std::io;

use balanza_config::model::{Level, Syslog, SyslogServer};
use balanza_net::clock;
use balanza_net::datagram::Datagrams;

use super::complain;
use crate::dates;

/// Servers that a thread remembers; a configuration rarely has more than one.
const MOST_SERVERS: usize = 32;

#[derive(Default)]
struct Senders {
    open: Vec<(SyslogServer, Datagrams)>,
    /// One datagram.
    text: Vec<u8>,
    /// The minute in which a failure was last told of.
    complained: u64,
}

thread_local! {
    static SENDERS: RefCell<Senders> = RefCell::default();
}

/// Sends a line of an access log. A server that is away loses lines, never requests; that is told of once a minute.
pub fn send(syslog: &Syslog, line: &[u8]) {
    with_time(|senders, time| {
        syslog.datagram(syslog.severity, time, line, &mut senders.text);
        senders.send(&syslog.server);
    });
}

/// Sends a line of an error log.
pub fn send_error(syslog: &Syslog, level: Level, line: &[u8]) {
    with_time(|senders, time| {
        syslog.error_datagram(level, time, line, &mut senders.text);
        senders.send(&syslog.server);
    });
}

fn with_time(use_them: impl FnOnce(&mut Senders, &str)) {
    SENDERS.with_borrow_mut(|senders| dates::with_syslog_time(|time| use_them(senders, time)));
}

impl Senders {
    fn send(&mut self, server: &SyslogServer) {
        let sent = match self.open.iter().position(|(open, _)| open == server) {
            Some(at) => match self.open[at].1.send(&self.text) {
                Err(error) if is_full(&error) => Err(error),
                // Its server may have been restarted: a socket in the file system is another one then.
                Err(_) => {
                    self.open.swap_remove(at);
                    self.connect_and_send(server)
                }
                sent => sent,
            },
            None => self.connect_and_send(server),
        };
        if let Err(error) = sent {
            let minute = clock::wall().as_secs() / 60;
            if std::mem::replace(&mut self.complained, minute) != minute {
                let name = match server {
                    SyslogServer::Inet(address) => address.to_string(),
                    SyslogServer::Unix(path) => format!("unix:{}", path.display()),
                };
                complain(Level::Alert, format_args!("send() to syslog \"{name}\" failed: {error}"));
            }
        }
    }

    fn connect_and_send(&mut self, server: &SyslogServer) -> io::Result<()> {
        let socket = match server {
            SyslogServer::Inet(address) => Datagrams::to_address(*address),
            SyslogServer::Unix(path) => Datagrams::to_path(path),
        }?;
        socket.send(&self.text)?;
        if self.open.len() >= MOST_SERVERS {
            self.open.clear();
        }
        self.open.push((server.clone(), socket));
        Ok(())
    }
}

fn is_full(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixDatagram;

    #[test]
    fn a_server_that_is_restarted_gets_lines_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let server = SyslogServer::Unix(path.clone());
        let syslog = Syslog { server, facility: 1, severity: Level::Info, tag: "t".into(), hostname: None };
        let received = |socket: &UnixDatagram| {
            let mut text = [0; 99];
            let length = socket.recv(&mut text).unwrap();
            String::from_utf8_lossy(&text[..length]).rsplit_once(": ").unwrap().1.to_string()
        };
        send(&syslog, b"lost\n");
        let first = UnixDatagram::bind(&path).unwrap();
        send(&syslog, b"one\n");
        assert_eq!(received(&first), "one");
        drop(first);
        send(&syslog, b"lost too\n");
        std::fs::remove_file(&path).unwrap();
        let second = UnixDatagram::bind(&path).unwrap();
        send(&syslog, b"two\n");
        assert_eq!(received(&second), "two");
    }
}
