//! `syslog:` of `error_log` and `access_log`.

use std::net::SocketAddr;
use std::path::PathBuf;

use super::Level;

/// Where messages go, and what stands in front of them.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Syslog {
    /// `server=`.
    pub server: SyslogServer,
    /// `facility=`, as a number.
    pub facility: u8,
    /// `severity=` of lines of an access log.
    pub severity: Level,
    /// `tag=`.
    pub tag: String,
    /// This host; `None` for `nohostname`.
    pub hostname: Option<String>,
}

/// A server that takes datagrams.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SyslogServer {
    /// UDP.
    Inet(SocketAddr),
    /// A socket of the file system: absolute path.
    Unix(PathBuf),
}

/// The longest line of an error log that is sent.
const LONGEST_ERROR: usize = 2048;

impl Syslog {
    /// The facilities, by number.
    pub const FACILITIES: [&str; 24] = [
        "kern", "user", "mail", "daemon", "auth", "intern", "lpr", "news", "uucp", "clock", "authpriv", "ftp", "ntp",
        "audit", "alert", "cron", "local0", "local1", "local2", "local3", "local4", "local5", "local6", "local7",
    ];

    /// The datagram of a line, with a time such as "Jan  2 03:04:05".
    pub fn datagram(&self, severity: Level, time: &str, line: &[u8], out: &mut Vec<u8>) {
        let priority = usize::from(self.facility) * 8 + severity as usize;
        out.clear();
        out.extend_from_slice(format!("<{priority}>{time} ").as_bytes());
        if let Some(hostname) = &self.hostname {
            out.extend_from_slice(hostname.as_bytes());
            out.push(b' ');
        }
        out.extend_from_slice(self.tag.as_bytes());
        out.extend_from_slice(b": ");
        out.extend_from_slice(line.strip_suffix(b"\n").unwrap_or(line));
    }

    /// The same for a line of an error log, which is cut as NGINX cuts it.
    pub fn error_datagram(&self, severity: Level, time: &str, line: &[u8], out: &mut Vec<u8>) {
        self.datagram(severity, time, &line[..line.len().min(LONGEST_ERROR)], out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_have_the_form_of_nginx() {
        let server = SyslogServer::Unix("/dev/log".into());
        let mut syslog =
            Syslog { server, facility: 23, severity: Level::Info, tag: "nginx".into(), hostname: Some("h".into()) };
        let text = |syslog: &Syslog, severity| {
            let mut out = b"old".to_vec();
            syslog.datagram(severity, "Jan  2 03:04:05", b"a b\n", &mut out);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(text(&syslog, Level::Info), "<190>Jan  2 03:04:05 h nginx: a b");
        syslog.hostname = None;
        syslog.facility = 0;
        assert_eq!(text(&syslog, Level::Emerg), "<0>Jan  2 03:04:05 nginx: a b");
    }
}
