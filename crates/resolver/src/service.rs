//! Where the servers of a name are: its addresses, or those of the servers of its service.

use std::net::SocketAddr;

use tokio::time::Instant;

use crate::resolver::{Failure, Resolver};

/// A server of a name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Servers of a greater number are backups (SRV's priority, counted from the least).
    pub is_backup: bool,
    /// Its address.
    pub address: SocketAddr,
    /// Its weight, if a service gives one.
    pub weight: Option<u16>,
    /// The server's own name, if a service gives one.
    pub host: Option<String>,
}

impl Resolver {
    /// The servers of a host at this port, and when they have to be asked for again.
    ///
    /// # Errors
    /// It has none, or they cannot be had.
    pub async fn places(&self, host: &str, port: u16) -> Result<(Vec<Place>, Instant), Failure> {
        let addresses = self.addresses(host).await?;
        let place = |ip| Place { is_backup: false, address: SocketAddr::new(ip, port), weight: None, host: None };
        Ok((addresses.list.iter().copied().map(place).collect(), addresses.until))
    }

    /// The servers of a service. Those of the least priority come first, all others are backups. A server without
    /// addresses is left out while others have some.
    ///
    /// # Errors
    /// There are none, or they cannot be had.
    pub async fn places_of_service(&self, service: &str, host: &str) -> Result<(Vec<Place>, Instant), Failure> {
        let name = service_name(service, host);
        let (mut targets, mut until) = self.service(&name).await?;
        targets.sort();
        let first = targets.first().map_or(0, |target| target.priority);
        let mut places = Vec::new();
        let mut failure = Failure::NotFound;
        for target in targets {
            // RFC 2782: the root as a target means that the service is not there.
            if target.host.is_empty() {
                continue;
            }
            match self.addresses(&target.host).await {
                Ok(addresses) => {
                    until = until.min(addresses.until);
                    places.extend(addresses.list.iter().map(|ip| Place {
                        is_backup: target.priority != first,
                        address: SocketAddr::new(*ip, target.port),
                        weight: Some(target.weight),
                        host: Some(target.host.clone()),
                    }));
                }
                Err(trouble) => failure = trouble,
            }
        }
        if places.is_empty() { Err(failure) } else { Ok((places, until)) }
    }
}

/// The name of a service: `http` is `_http._tcp`; a service with dots or an underscore is taken as it is.
fn service_name(service: &str, host: &str) -> String {
    if service.contains('.') {
        format!("{service}.{host}")
    } else {
        format!("_{}._tcp.{host}", service.trim_start_matches('_'))
    }
}

#[cfg(test)]
mod tests {
    use super::service_name;

    #[test]
    fn names_of_services() {
        assert_eq!(service_name("http", "example.com"), "_http._tcp.example.com");
        assert_eq!(service_name("_http._tcp", "example.com"), "_http._tcp.example.com");
        assert_eq!(service_name("server1.backend", "example.com"), "server1.backend.example.com");
    }
}
