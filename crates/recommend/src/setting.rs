//! What is in operation: the algorithm and what the balancer is told of each server.

use serde::Serialize;

/// A server as an `upstream` block has it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Server {
    /// As in the log: `10.0.0.1:8080`.
    pub address: String,
    /// As in nginx.conf.
    pub weight: u32,
    /// As in nginx.conf.
    pub max_conns: u32,
    /// As in nginx.conf.
    pub max_fails: u32,
    /// Seconds, as in nginx.conf.
    pub fail_timeout: f64,
    /// As in nginx.conf.
    pub backup: bool,
}

impl Server {
    /// NGINX's defaults.
    pub fn new(address: &str) -> Server {
        let address = address.to_string();
        Server { address, weight: 1, max_conns: 0, max_fails: 1, fail_timeout: 10.0, backup: false }
    }
}

/// The algorithm that was in operation when the log was written.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Current {
    /// As after `balance` in nginx.conf, without its key.
    pub algorithm: String,
    /// Whether it is a guess: no configuration says it.
    pub assumed: bool,
    /// The servers that the configuration names.
    pub servers: Vec<Server>,
}

impl Default for Current {
    /// NGINX's default.
    fn default() -> Current {
        Current { algorithm: "round_robin".into(), assumed: true, servers: Vec::new() }
    }
}

impl Current {
    /// What is said of a server; defaults if nothing is.
    pub fn of(&self, address: &str) -> Server {
        self.servers.iter().find(|server| server.address == address).cloned().unwrap_or_else(|| Server::new(address))
    }
}
