//! Where the servers of a name are: its addresses, or those of the servers of its service.

use std::net::{IpAddr, SocketAddr};
use std::pin::pin;

use tokio::time::Instant;

use crate::message::Target;
use crate::resolver::{Failure, Resolver};

/// A server of a name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Its priority (SRV) is a greater number than the least of those that have addresses.
    pub is_backup: bool,
    /// Its address.
    pub address: SocketAddr,
    /// Its weight, if a service gives one.
    pub weight: Option<u16>,
    /// The server's own name, if a service gives one.
    pub host: Option<String>,
}

/// The servers of a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Places {
    /// Where they are.
    pub list: Vec<Place>,
    /// When they have to be asked for again.
    pub until: Instant,
    /// Why some of them could not be asked for. The list has what was known of these before.
    pub incomplete: Option<Failure>,
    /// Servers of a service that have no addresses.
    pub absent: Vec<String>,
}

impl Places {
    fn new(until: Instant) -> Places {
        Places { list: Vec::new(), until, incomplete: None, absent: Vec::new() }
    }
}

impl Resolver {
    /// The servers of a host at this port. If one kind of addresses cannot be asked for, those of that kind are taken from
    /// `known`, the last answer. Of those who ask for places only so many do so at a time, the others wait.
    ///
    /// # Errors
    /// It has none, or they cannot be had.
    pub async fn places(&self, host: &str, port: u16, known: &[Place]) -> Result<Places, Failure> {
        let place = |ip| Place { is_backup: false, address: SocketAddr::new(ip, port), weight: None, host: None };
        let mut places = Places::new(Instant::now());
        let known: Vec<IpAddr> = known.iter().map(|known| known.address.ip()).collect();
        let until = self.in_turn(pin!(self.add_places(&mut places, host, &known, place))).await?;
        Ok(Places { until, ..places })
    }

    /// The servers of a service. Those of the least priority come first, all others are backups. A server without
    /// addresses is left out while others have some, and its priority does not count. Addresses that cannot be asked for are
    /// taken from `known`, the last answer, with the port and the weight of this one.
    ///
    /// # Errors
    /// There are none, or they cannot be had.
    pub async fn places_of_service(&self, service: &str, host: &str, known: &[Place]) -> Result<Places, Failure> {
        self.in_turn(pin!(self.ask_for_service(service, host, known))).await
    }

    async fn ask_for_service(&self, service: &str, host: &str, known: &[Place]) -> Result<Places, Failure> {
        let (mut targets, until) = self.service(&service_name(service, host)).await?;
        targets.sort();
        let mut first = None;
        let mut places = Places::new(until);
        // RFC 2782: the root as a target means that the service is not there.
        for target in targets.iter().filter(|target| !target.host.is_empty()) {
            let is_backup = first.is_some_and(|first| target.priority != first);
            let place = |ip| place_of(target, is_backup, ip);
            let known = known.iter().filter(|known| known.host.as_ref() == Some(&target.host));
            let known: Vec<IpAddr> = known.map(|known| known.address.ip()).collect();
            match self.add_places(&mut places, &target.host, &known, place).await {
                Ok(until) => places.until = places.until.min(until),
                Err(Failure::NotFound | Failure::Invalid) => {
                    if !places.absent.contains(&target.host) {
                        places.absent.push(target.host.clone());
                    }
                }
                Err(failure) => {
                    places.list.extend(known.into_iter().map(place));
                    places.incomplete = Some(failure);
                }
            }
            if !places.list.is_empty() {
                first.get_or_insert(target.priority);
            }
        }
        if places.list.is_empty() { Err(places.incomplete.unwrap_or(Failure::NotFound)) } else { Ok(places) }
    }

    /// Adds the addresses of a host, and of those known before the kind that cannot be asked for. Returns until when they
    /// hold.
    async fn add_places(
        &self,
        places: &mut Places,
        host: &str,
        known: &[IpAddr],
        place: impl Fn(IpAddr) -> Place,
    ) -> Result<Instant, Failure> {
        let addresses = self.addresses(host).await?;
        places.list.extend(addresses.list.iter().copied().map(&place));
        if let Some((kind, failure)) = addresses.missing {
            places.list.extend(known.iter().copied().filter(|ip| kind.has(*ip)).map(place));
            places.incomplete = Some(failure);
        }
        Ok(addresses.until)
    }
}

fn place_of(target: &Target, is_backup: bool, ip: IpAddr) -> Place {
    let address = SocketAddr::new(ip, target.port);
    Place { is_backup, address, weight: Some(target.weight), host: Some(target.host.clone()) }
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
