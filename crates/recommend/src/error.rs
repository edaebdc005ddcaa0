//! What goes wrong.

use crate::format::Lacking;

/// Why there is no recommendation.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read.
    #[error("{file}: {error}")]
    File {
        /// Its name.
        file: String,
        /// What the system says.
        error: std::io::Error,
    },
    /// The log's format lacks something, or is not known.
    #[error("{0}")]
    Format(Lacking),
    /// There are no lines.
    #[error("the log is empty")]
    Empty,
    /// Most lines are of another format.
    #[error(
        "{strange} of {lines} lines are of another format: give the right log_format with -c nginx.conf or --format"
    )]
    Strange {
        /// Lines of another format.
        strange: u64,
        /// All lines.
        lines: u64,
    },
    /// No line is of a server.
    #[error(
        "no line of the log names a server: $upstream_addr is \"-\" everywhere, or names servers that are not wanted"
    )]
    NoServers,
    /// No line has a request that can be sent again.
    #[error("no line of the log has a request that can be sent: a method, and a path that begins with /")]
    NoRequests,
    /// There are too few requests.
    #[error("{requests} requests are too few to say anything: at least {least} are needed")]
    Few {
        /// That are there.
        requests: u64,
        /// That are needed.
        least: u64,
    },
    /// The simulator refuses.
    #[error(transparent)]
    Simulator(#[from] balanza_simulator::Error),
}
