//! Systems under test: what each can do, its configuration, its process.
//!
//! Every system gets the same task in its own words: one address, the same servers with the same weights, one worker,
//! the same limits and time-outs, no access log. Where a system knows nothing like an algorithm, it says why.

mod caddy;
mod configuration;
mod haproxy;
mod method;
mod nginx;
mod programs;
mod running;
mod supports;

use std::net::SocketAddr;

use crate::plan::{Algorithm, System};

pub use configuration::{Configuration, configuration};
pub use method::Method;
pub use programs::{Program, Programs};
pub use running::{PortTaken, Running, is_port_taken, start};
pub use supports::{reports, supports};

/// A server as a balancer has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backend {
    /// What the report calls it.
    pub name: String,
    /// Where it listens.
    pub address: SocketAddr,
    /// Its weight; 1 unless the algorithm says otherwise.
    pub weight: u32,
}

/// One system's task.
#[derive(Clone, Debug)]
pub struct Setup<'a> {
    /// Who balances.
    pub system: &'a System,
    /// By which rule.
    pub algorithm: &'a Algorithm,
    /// Between whom: see [`backends`].
    pub servers: &'a [Backend],
    /// The port on 127.0.0.1 on which it listens.
    pub port: u16,
    /// Whether connections to the servers are used again.
    pub keep_alive: bool,
    /// Worker processes (NGINX), threads (Balanza, HAProxy) or processors (Caddy).
    pub workers: u16,
}

/// The servers of an algorithm among those of a farm, with their weights. Errors: a name that the farm does not have, or
/// weights that are not one for each server.
pub fn backends(algorithm: &Algorithm, farm: &[(String, SocketAddr)]) -> Result<Vec<Backend>, String> {
    let Algorithm { name, weights, servers, .. } = algorithm;
    if let Some(unknown) = servers.iter().find(|server| !farm.iter().any(|(known, _)| known == *server)) {
        return Err(format!("algorithm \"{name}\": the farm has no server \"{unknown}\""));
    }
    let chosen = |server: &str| servers.is_empty() || servers.iter().any(|one| one == server);
    let count = farm.iter().filter(|(server, _)| chosen(server)).count();
    // Weights are those of the farm; of the chosen servers if there are just so many.
    let of_farm = weights.len() == farm.len();
    if !(weights.is_empty() || of_farm || weights.len() == count) {
        let (given, needed) = (weights.len(), farm.len());
        return Err(format!("algorithm \"{name}\": there are {given} weights for {needed} servers"));
    }
    let mut of_chosen = weights.iter();
    let all = farm.iter().enumerate().filter(|(_, (server, _))| chosen(server)).map(|(i, (server, address))| {
        let weight = if of_farm { weights.get(i) } else { of_chosen.next() };
        Backend { name: server.clone(), address: *address, weight: weight.copied().unwrap_or(1) }
    });
    Ok(all.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backends_are_the_algorithm_s_servers_with_their_weights() {
        let farm: Vec<(String, SocketAddr)> =
            (1..=3).map(|i| (format!("s{i}"), SocketAddr::from(([127, 0, 0, 1], 80 + i)))).collect();
        let backends = |weights: &[u32], servers: &[&str]| {
            let servers = servers.iter().map(|server| (*server).to_owned()).collect();
            let algorithm = Algorithm { weights: weights.to_vec(), servers, ..algorithm("round_robin") };
            let backends = super::backends(&algorithm, &farm)?;
            Ok::<Vec<(u16, u32)>, String>(backends.iter().map(|b| (b.address.port(), b.weight)).collect())
        };
        assert_eq!(backends(&[], &[]), Ok(vec![(81, 1), (82, 1), (83, 1)]));
        assert_eq!(backends(&[3, 2, 1], &[]), Ok(vec![(81, 3), (82, 2), (83, 1)]));
        assert_eq!(backends(&[3, 2, 1], &["s2"]), Ok(vec![(82, 2)]));
        assert_eq!(backends(&[5, 7], &["s1", "s3"]), Ok(vec![(81, 5), (83, 7)]));
        assert_eq!(backends(&[5], &[]), Err("algorithm \"a\": there are 1 weights for 3 servers".into()));
        assert_eq!(backends(&[], &["s4"]), Err("algorithm \"a\": the farm has no server \"s4\"".into()));
    }

    pub(super) fn algorithm(balance: &str) -> Algorithm {
        Algorithm {
            name: "a".into(),
            balance: balance.into(),
            weights: Vec::new(),
            servers: Vec::new(),
            reaches: None,
            control: false,
            systems: Vec::new(),
        }
    }
}
