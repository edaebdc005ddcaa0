//! Failures that are shortages of this machine, and not failures of the server.

use std::fmt;
use std::io;

use rustix::io::Errno;

/// A failure on this side, before anything was sent to the server: another server would meet the same.
#[derive(Debug)]
pub enum Shortage {
    /// `worker_connections` are used up.
    Connections,
    /// This system call failed.
    System(&'static str, io::Error),
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Shortage::Connections => f.write_str("worker_connections are not enough"),
            Shortage::System(call, error) => write!(f, "{call}() failed {}", describe(error)),
        }
    }
}

/// Why no connection was begun.
#[derive(Debug)]
pub enum ConnectError {
    /// A failure on this side.
    Own(Shortage),
    /// What `connect` returned for this server.
    Server(io::Error),
}

impl From<io::Error> for ConnectError {
    fn from(error: io::Error) -> ConnectError {
        match is_everywhere(&error) {
            true => ConnectError::Own(Shortage::System("connect", error)),
            false => ConnectError::Server(error),
        }
    }
}

impl From<ConnectError> for io::Error {
    fn from(error: ConnectError) -> io::Error {
        match error {
            ConnectError::Own(Shortage::System(_, error)) | ConnectError::Server(error) => error,
            ConnectError::Own(Shortage::Connections) => io::Error::other(Shortage::Connections.to_string()),
        }
    }
}

/// Whether the error is a lack of descriptors or memory on this machine, which every other server would meet as well.
pub fn is_everywhere(error: &io::Error) -> bool {
    let lacking = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM, Errno::NOSPC];
    lacking.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

/// Whether the error is a shortage of this machine: of descriptors, of memory, or of local ports towards one server, in
/// which case another server may still be reached. A firewall's EPERM concerns one server and counts like a missing route.
pub fn is_own(error: &io::Error) -> bool {
    let ports = [Errno::ADDRNOTAVAIL, Errno::ADDRINUSE];
    is_everywhere(error) || ports.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

/// A system's error in NGINX's words: `(2: No such file or directory)`.
pub fn describe(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(code) => {
            let text = error.to_string();
            let text = text.split(" (os error").next().unwrap_or_default();
            format!("({code}: {text})")
        }
        None => format!("({error})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_ours_and_what_is_the_servers() {
        let of = |errno: Errno| io::Error::from(errno);
        for errno in [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM, Errno::NOSPC] {
            assert!(is_everywhere(&of(errno)) && is_own(&of(errno)), "{errno}");
            assert!(matches!(of(errno).into(), ConnectError::Own(_)), "{errno}");
        }
        for errno in [Errno::ADDRNOTAVAIL, Errno::ADDRINUSE] {
            assert!(!is_everywhere(&of(errno)) && is_own(&of(errno)), "{errno}");
            assert!(matches!(of(errno).into(), ConnectError::Server(_)), "{errno}");
        }
        for errno in
            [Errno::CONNREFUSED, Errno::CONNRESET, Errno::TIMEDOUT, Errno::NETUNREACH, Errno::PERM, Errno::AGAIN]
        {
            assert!(!is_own(&of(errno)), "{errno}");
        }
        assert!(!is_own(&io::ErrorKind::UnexpectedEof.into()));
    }
}
