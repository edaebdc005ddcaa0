//! The record of an attempt to reach a server.

use std::rc::Rc;

use balanza_net::clock::Nanos;

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
    /// Why this server was chosen, if it is logged.
    pub reason: Option<Box<str>>,
}

impl Attempt {
    /// The last of a request's or session's attempts: the current one.
    pub fn current(attempts: &mut Vec<Attempt>) -> &mut Attempt {
        if attempts.is_empty() {
            attempts.push(Attempt::default());
        }
        let last = attempts.len() - 1;
        &mut attempts[last]
    }
}
