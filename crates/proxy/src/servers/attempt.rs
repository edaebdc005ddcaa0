//! The record of an attempt to reach a server.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use balanza_balancing::Choice;
use balanza_net::clock::Nanos;

use super::group::Members;
use super::shadows::Choices;

/// What one attempt to reach a server came to; `$upstream_*` list them all.
#[derive(Default, Clone)]
pub struct Attempt {
    /// The server's address as text; the upstream's name when there was no server to try.
    pub address: Option<Rc<str>>,
    /// An internal redirect came before this attempt (": " instead of ", ").
    pub after_redirect: bool,
    /// Status of the response, or the one that stands for the failure; 0 for none.
    pub status: u16,
    /// When the attempt began.
    pub started: Nanos,
    /// Time in the upstream's queue, if it waited there.
    pub queue_time: Option<Nanos>,
    /// Time to the established connection.
    pub connect_time: Option<Nanos>,
    /// Time to the response's head.
    pub header_time: Option<Nanos>,
    /// Time to the response's last byte.
    pub response_time: Option<Nanos>,
    /// Bytes of the response's body.
    pub response_length: u64,
    /// Bytes received.
    pub bytes_received: u64,
    /// Bytes sent.
    pub bytes_sent: u64,
    /// What variables ask of the choice, if they do.
    pub explained: Option<Box<Explained>>,
    /// The arm of the experiment that it counts for.
    pub arm: Option<Arc<str>>,
    /// What shadows would have chosen, if there are any.
    pub shadows: Option<Box<Shadowed>>,
}

/// What is asked of a choice.
#[derive(Debug, Clone, Default)]
pub struct Explained {
    /// `$upstream_pick_reason`.
    pub reason: Option<Box<str>>,
    /// `$upstream_choice_probability`.
    pub probability: Option<f64>,
    /// `$upstream_last_server_name`.
    pub name: Option<Box<str>>,
}

/// What shadows would have chosen.
#[derive(Clone)]
pub struct Shadowed {
    /// Of these servers.
    pub members: Rc<Members>,
    /// Each of them.
    pub choices: Choices,
}

impl Attempt {
    /// Why this server was chosen.
    pub fn reason(&self) -> Option<&str> {
        self.explained.as_ref()?.reason.as_deref()
    }

    /// How likely the choice was.
    pub fn probability(&self) -> Option<f64> {
        self.explained.as_ref()?.probability
    }

    /// The name of its server.
    pub fn server_name(&self) -> Option<&str> {
        self.explained.as_ref()?.name.as_deref()
    }

    /// The address of its server without the port; none where there was no server.
    pub fn server_address(&self) -> Option<&str> {
        let address = self.address.as_deref()?;
        if address.starts_with("unix:") {
            return Some(address);
        }
        let (host, _) = address.rsplit_once(':').filter(|_| address.parse::<SocketAddr>().is_ok())?;
        Some(host.trim_matches(['[', ']']))
    }

    /// The server that the shadow of this name would have chosen; `none` if it would have found no server.
    pub fn shadow(&self, name: &str) -> Option<&[u8]> {
        let Shadowed { members, choices } = self.shadows.as_deref()?;
        let at = members.shared.shadows.iter().position(|beside| beside.name == name)?;
        match choices.get(at)? {
            Choice::Server(member) => members.addresses.get(member.0 as usize).map(|address| address.as_bytes()),
            Choice::NoServer => Some(b"none"),
            Choice::NotAsked => None,
        }
    }

    /// The last of a request's or session's attempts: the current one.
    pub fn current(attempts: &mut Vec<Attempt>) -> &mut Attempt {
        if attempts.is_empty() {
            attempts.push(Attempt::default());
        }
        let last = attempts.len() - 1;
        &mut attempts[last]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_without_their_ports() {
        let of = |address: &str| {
            let attempt = Attempt { address: Some(address.into()), ..Attempt::default() };
            attempt.server_address().map(str::to_owned)
        };
        assert_eq!(of("127.0.0.1:80").as_deref(), Some("127.0.0.1"));
        assert_eq!(of("[::1]:8080").as_deref(), Some("::1"));
        assert_eq!(of("unix:/run/app.sock").as_deref(), Some("unix:/run/app.sock"));
        assert_eq!(of("name-of-an-upstream"), None);
        assert_eq!(Attempt::default().server_address(), None);
    }
}
