//! Why an attempt to reach a server failed.

use std::io;

use balanza_balancing::Outcome;
use balanza_config::model::Level;
use balanza_net::shortage::{self, ConnectError, Shortage, describe};
use balanza_net::tls;
use balanza_tls::verification;

use crate::body::BodyError;

/// What was being done, for messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Doing {
    /// The connection is not established.
    Connecting,
    /// It is, and TLS is not.
    Handshaking,
    /// A part of the request is still to be sent.
    Sending,
    /// The response is awaited.
    Reading,
    /// Datagrams go both ways.
    Proxying,
}

impl Doing {
    /// As NGINX words it.
    pub fn text(self) -> &'static str {
        match self {
            Doing::Connecting => "connecting to upstream",
            Doing::Handshaking => "SSL handshaking to upstream",
            Doing::Sending => "sending request to upstream",
            Doing::Reading => "reading response header from upstream",
            Doing::Proxying => "proxying connection",
        }
    }
}

/// What went wrong.
#[derive(Debug)]
pub enum Cause {
    /// A shortage on this side; nothing was sent.
    Own(Shortage),
    /// The certificate that servers are shown cannot be loaded.
    Unprepared(String),
    /// The connection was refused or broke before it was established.
    Connect(io::Error),
    /// TLS could not be agreed on.
    Handshake(io::Error),
    /// It broke while the request was sent.
    Send(io::Error),
    /// It broke while the response was awaited.
    Receive(io::Error),
    /// The server closed the connection; true if a part of a head had come.
    Closed(bool),
    /// The server took too long.
    TimedOut,
    /// The response's head is malformed.
    Invalid(&'static str),
    /// The server says that it has not looked at the request (HTTP/2).
    Unprocessed,
    /// The server has given the request up with this error code (HTTP/2).
    Rejected(u32),
    /// The request cannot be said in the server's protocol.
    Unsendable(&'static str),
    /// The configuration does not let this server be asked (`proxy_allow_upstream`).
    Denied,
    /// The client has gone meanwhile.
    ClientGone,
    /// The client's body could not be read.
    Body(BodyError),
}

impl Cause {
    /// A failed connect, send or receive: shortages on this side are separated from failures of the server.
    pub fn of(call: &'static str, error: io::Error, kind: fn(io::Error) -> Cause) -> Cause {
        match shortage::is_everywhere(&error) {
            true => Cause::Own(Shortage::System(call, error)),
            false => kind(error),
        }
    }

    /// Whether the fault is on this side: the next server would meet it too.
    pub fn is_own(&self) -> bool {
        matches!(self, Cause::Own(_) | Cause::Unprepared(_) | Cause::Unsendable(_))
    }
}

impl From<ConnectError> for Cause {
    fn from(error: ConnectError) -> Cause {
        match error {
            ConnectError::Own(shortage) => Cause::Own(shortage),
            ConnectError::Server(error) => Cause::Connect(error),
        }
    }
}

/// A failed attempt.
#[derive(Debug)]
pub struct Failure {
    /// Why.
    pub cause: Cause,
    /// What was being done.
    pub doing: Doing,
    /// A part of the request had been sent.
    pub sent: bool,
}

impl Failure {
    /// Before anything was sent.
    pub fn connecting(cause: Cause) -> Failure {
        Failure { cause, doing: Doing::Connecting, sent: false }
    }

    /// A certificate cannot be loaded; `why` is for the error log.
    pub fn unprepared(why: String) -> Failure {
        Failure { cause: Cause::Unprepared(why), doing: Doing::Handshaking, sent: false }
    }

    /// How it counts for the server.
    pub fn outcome(&self) -> Outcome {
        match &self.cause {
            cause if cause.is_own() => Outcome::Neutral,
            Cause::Denied | Cause::ClientGone | Cause::Body(_) => Outcome::Neutral,
            Cause::Connect(error) | Cause::Send(error) | Cause::Receive(error) if shortage::is_own(error) => {
                Outcome::Neutral
            }
            _ => Outcome::Failure,
        }
    }

    /// The status that stands for it.
    pub fn status(&self) -> u16 {
        match &self.cause {
            cause if cause.is_own() => 500,
            Cause::TimedOut => 504,
            Cause::Denied => 403,
            _ => 502,
        }
    }

    /// The message about it; none where the client is the reason, which is reported elsewhere.
    pub fn message(&self) -> Option<(Level, String)> {
        let what = match &self.cause {
            Cause::Own(shortage) => return Some((Level::Alert, format!("{shortage} while {}", self.doing.text()))),
            Cause::Unprepared(why) => why.clone(),
            Cause::Connect(error) => format!("connect() failed {}", describe(error)),
            Cause::Handshake(error) => handshake_error(error),
            Cause::Send(error) => format!("send() failed {}", describe(error)),
            Cause::Receive(error) => format!("recv() failed {}", describe(error)),
            Cause::Closed(_) => "upstream prematurely closed connection".to_owned(),
            Cause::TimedOut => "upstream timed out (110: Connection timed out)".to_owned(),
            Cause::Invalid(reason) if reason.starts_with("upstream") => (*reason).to_owned(),
            Cause::Invalid(reason) => format!("upstream sent invalid header: {reason}"),
            Cause::Unprocessed => "upstream refused the request".to_owned(),
            Cause::Rejected(code) => format!("upstream rejected request with error {code}"),
            Cause::Unsendable(reason) => format!("the request cannot be sent by HTTP/2: {reason}"),
            Cause::Denied => "access to upstream denied".to_owned(),
            Cause::ClientGone | Cause::Body(_) => return None,
        };
        Some((Level::Error, format!("{what} while {}", self.doing.text())))
    }
}

/// Why a handshake with a server has failed, in NGINX's form.
fn handshake_error(error: &io::Error) -> String {
    let Some(failure) = tls::Failure::of(error) else {
        return match error.kind() {
            io::ErrorKind::UnexpectedEof => "peer closed connection in SSL handshake".into(),
            _ => describe(error),
        };
    };
    match verification::rejection(failure.error()) {
        Some(it) => format!("upstream SSL certificate verify error: ({}:{})", it.code, it.reason),
        None => format!("SSL_do_handshake() failed (SSL: {failure})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_ours_does_not_count_against_the_server() {
        let failure = |cause| Failure::connecting(cause);
        let refused = || io::Error::from(io::ErrorKind::ConnectionRefused);
        let ports = || io::Error::from(rustix::io::Errno::ADDRNOTAVAIL);
        assert_eq!(failure(Cause::Connect(refused())).outcome(), Outcome::Failure);
        assert_eq!(failure(Cause::Connect(ports())).outcome(), Outcome::Neutral);
        assert_eq!(failure(Cause::ClientGone).outcome(), Outcome::Neutral);
        assert_eq!(failure(Cause::TimedOut).outcome(), Outcome::Failure);
        assert_eq!((failure(Cause::TimedOut).status(), failure(Cause::Closed(true)).status()), (504, 502));
        assert_eq!(failure(Cause::ClientGone).message(), None);
        let (level, message) = failure(Cause::Invalid("bad status line")).message().unwrap();
        assert_eq!(level, Level::Error);
        assert_eq!(message, "upstream sent invalid header: bad status line while connecting to upstream");
    }
}
