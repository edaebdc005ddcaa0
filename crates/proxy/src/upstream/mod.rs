//! Everything between a request and the servers: choosing, connecting, sending, retrying, relaying.

pub mod answer;
pub mod attempt;
pub mod external;
pub mod failure;
pub mod feedback;
pub mod forward;
pub mod group;
pub mod lease;
pub mod membership;
pub mod plan;
pub mod pool;
pub mod probe;
pub mod relay;
pub mod reply;
pub mod request;
pub mod search;
pub mod sticky;
pub mod target;
pub mod tunnel;

use balanza_net::clock::Nanos;
use balanza_net::transport::Transport;

/// A connection to a server.
pub struct ServerConnection {
    /// The socket.
    pub socket: Transport,
    /// Requests it has carried, the current one included.
    pub requests: u64,
    /// When it was opened.
    pub opened: Nanos,
}
