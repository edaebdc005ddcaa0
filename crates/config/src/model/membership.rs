//! Changes of an upstream's servers while it runs: what they are, and how they go together with a new configuration.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use super::discover::Discover;
use super::upstream::{ServerAddress, UpstreamServer};

/// A server of an upstream, whatever its parameters are: its address, and which of those with that address.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ServerKey {
    /// The address.
    pub address: ServerAddress,
    /// Counts the servers of one address from 0.
    pub nth: usize,
}

/// The keys of a list of servers, in its order.
pub fn keys(servers: &[UpstreamServer]) -> Vec<ServerKey> {
    let mut seen: HashMap<&ServerAddress, usize> = HashMap::new();
    let key = |server: &'_ UpstreamServer, nth: usize| ServerKey { address: server.address.clone(), nth };
    servers
        .iter()
        .map(|server| {
            let count = seen.entry(&server.address).or_insert(0);
            *count += 1;
            key(server, *count - 1)
        })
        .collect()
}

/// Where an upstream is: one of `http` and one of `stream` may have the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Protocol {
    /// `http`.
    Http,
    /// `stream`.
    Stream,
}

/// A change of an upstream's servers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Change {
    /// Adds a server, behind the others.
    Add(UpstreamServer),
    /// Replaces a server's parameters. The address stays.
    Set(ServerKey, UpstreamServer),
    /// Removes a server. Requests that it is serving end as usual.
    Remove(ServerKey),
    /// Sets or removes the deadline of a server that drains.
    Drain(ServerKey, Option<SystemTime>),
    /// Balances by another method than the configuration's, or by that again.
    Method(Option<Method>),
    /// Goes on in an arm of an experiment, or ends the experiment.
    Arm(Option<Arm>),
}

/// An arm of an experiment while it runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arm {
    /// Its name.
    pub name: String,
    /// Its method, as a configuration has it; none for the upstream's own.
    pub method: Option<String>,
    /// The configuration's method when the experiment began; another one there ends it.
    pub instead_of: String,
}

/// A method that was chosen at run time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Method {
    /// As a configuration has it.
    pub text: String,
    /// The configuration's method when it was chosen; another one there ends it.
    pub instead_of: String,
}

/// Why a change is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangeError {
    /// There is no such upstream.
    NoUpstream(String),
    /// There is no such server.
    NoServer(ServerAddress),
    /// A server's address cannot be changed: remove it and add another.
    OtherAddress,
    /// The algorithm refuses the servers.
    Refused(String),
}

impl fmt::Display for ChangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ChangeError::NoUpstream(name) => write!(f, "no upstream \"{name}\""),
            ChangeError::NoServer(address) => write!(f, "no server {address}"),
            ChangeError::OtherAddress => f.write_str("the address of a server cannot be changed"),
            ChangeError::Refused(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for ChangeError {}

/// The servers of an upstream that was changed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Changed {
    /// Those that the configuration named when they were changed.
    configured: Vec<UpstreamServer>,
    /// Those in use.
    current: Vec<UpstreamServer>,
    /// When servers that drain are set down.
    #[serde(default)]
    drains: Vec<(ServerKey, SystemTime)>,
    /// The method in the place of the configuration's.
    #[serde(default)]
    method: Option<Method>,
    /// The arm of the experiment that runs. A process that begins with one ends the experiment.
    #[serde(default)]
    arm: Option<Arm>,
    /// What the upstream's sources have, for a process that begins while they are lost.
    #[serde(default)]
    found: Vec<Found>,
}

/// The servers that a source of `discover` has told of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Found {
    /// Which source: [`Source::identity`](super::discover::Source::identity).
    pub source: String,
    /// Its servers.
    pub servers: Vec<UpstreamServer>,
}

impl Changed {
    /// Nothing was changed yet.
    pub fn new(configured: &[UpstreamServer]) -> Changed {
        Changed {
            configured: configured.to_vec(),
            current: configured.to_vec(),
            drains: Vec::new(),
            method: None,
            arm: None,
            found: Vec::new(),
        }
    }

    /// The servers in use.
    pub fn servers(&self) -> &[UpstreamServer] {
        &self.current
    }

    /// When servers that drain are set down.
    pub fn drains(&self) -> &[(ServerKey, SystemTime)] {
        &self.drains
    }

    /// The method in the place of the configuration's.
    pub fn method(&self) -> Option<&Method> {
        self.method.as_ref()
    }

    /// Goes back to the configuration's method.
    pub fn end_method(&mut self) {
        self.method = None;
    }

    /// The arm of the experiment that runs.
    pub fn arm(&self) -> Option<&Arm> {
        self.arm.as_ref()
    }

    /// Ends the experiment, if one runs.
    pub fn end_arm(&mut self) -> Option<Arm> {
        self.arm.take()
    }

    /// The text of the method in use; none for that of the configuration.
    pub fn method_in_use(&self) -> Option<&str> {
        let of_arm = self.arm.as_ref().and_then(|arm| arm.method.as_deref());
        of_arm.or(self.method.as_ref().map(|method| method.text.as_str()))
    }

    /// What the upstream's sources have.
    pub fn found(&self) -> &[Found] {
        &self.found
    }

    /// Sources have told of their servers.
    pub fn set_found(&mut self, found: Vec<Found>) {
        self.found = found;
    }

    /// Goes on with another configuration's sources.
    pub fn keep_found(&mut self, sources: &[Discover]) {
        self.found.retain(|found| sources.iter().any(|discover| discover.source.identity() == found.source));
    }

    /// Makes a change.
    ///
    /// # Errors
    /// There is no such server, or the change would give it another address.
    pub fn change(&mut self, change: Change) -> Result<(), ChangeError> {
        let find = |servers: &[UpstreamServer], key: ServerKey| {
            let found = keys(servers).iter().position(|known| *known == key);
            found.ok_or(ChangeError::NoServer(key.address))
        };
        match change {
            Change::Add(server) => self.current.push(server),
            Change::Set(key, server) if key.address != server.address => return Err(ChangeError::OtherAddress),
            Change::Set(key, server) => {
                let place = find(&self.current, key)?;
                self.current[place] = server;
            }
            Change::Remove(key) => {
                let place = find(&self.current, key)?;
                self.current.remove(place);
            }
            Change::Drain(key, deadline) => {
                find(&self.current, key.clone())?;
                self.drains.retain(|(known, _)| *known != key);
                self.drains.extend(deadline.map(|deadline| (key, deadline)));
            }
            Change::Method(method) => self.method = method,
            Change::Arm(arm) => self.arm = arm,
        }
        self.keep_drains();
        Ok(())
    }

    /// A server that does not drain any more has no deadline.
    fn keep_drains(&mut self) {
        if !self.drains.is_empty() {
            let draining: Vec<ServerKey> = keys(&self.current)
                .into_iter()
                .zip(&self.current)
                .filter(|(_, server)| server.draining)
                .map(|(key, _)| key)
                .collect();
            self.drains.retain(|(key, _)| draining.contains(key));
        }
    }

    /// Goes on with another configuration: what it changes holds, and what was changed at run time stays changed. A server
    /// that was removed stays removed while the configuration names it; one that was added stays; parameters that were set
    /// stay set.
    pub fn reconfigure(&mut self, configured: &[UpstreamServer]) {
        let by_key = |servers: &[UpstreamServer]| -> BTreeMap<ServerKey, UpstreamServer> {
            keys(servers).into_iter().zip(servers.iter().cloned()).collect()
        };
        let (before, current) = (by_key(&self.configured), by_key(&self.current));
        let now = by_key(configured);
        let mut servers = Vec::with_capacity(configured.len());
        for (key, server) in keys(configured).into_iter().zip(configured) {
            match (before.get(&key), current.get(&key)) {
                (Some(was), Some(is)) if is != was => servers.push(is.clone()),
                (Some(_), None) => {}
                // An added server that the configuration has taken over.
                (None, Some(is)) => servers.push(is.clone()),
                (Some(_), Some(_)) | (None, None) => servers.push(server.clone()),
            }
        }
        let added = keys(&self.current).into_iter().zip(&self.current);
        let added = added.filter(|(key, _)| !before.contains_key(key) && !now.contains_key(key));
        servers.extend(added.map(|(_, server)| server.clone()));
        self.configured = configured.to_vec();
        self.current = servers;
        self.keep_drains();
    }

    /// Uses these servers.
    pub fn replace(&mut self, servers: Vec<UpstreamServer>) {
        self.current = servers;
        self.keep_drains();
    }

    /// Whether everything is as the configuration has it.
    pub fn is_as_configured(&self) -> bool {
        self.configured == self.current
            && self.drains.is_empty()
            && self.method.is_none()
            && self.arm.is_none()
            && self.found.is_empty()
    }
}

/// What was changed at run time, by upstream.
pub type Changes = BTreeMap<(Protocol, String), Changed>;

/// Keeps what was changed of an upstream, unless everything is as the configuration has it.
pub fn keep(changes: &mut Changes, upstream: (Protocol, String), changed: Changed) {
    match changed.is_as_configured() {
        true => changes.remove(&upstream),
        false => changes.insert(upstream, changed),
    };
}

/// Called with all changes after each of them, from any thread.
pub type Notify = Box<dyn Fn(&Changes) + Send>;

#[cfg(test)]
mod tests {
    use super::super::discover::{Api, Etcd, Place, Source};
    use super::*;

    fn server(host: u8) -> UpstreamServer {
        let address = format!("10.0.0.{host}:80");
        UpstreamServer::new(address.clone(), ServerAddress::Inet(address.parse().unwrap()))
    }

    fn weighted(host: u8, weight: u32) -> UpstreamServer {
        UpstreamServer { weight, ..server(host) }
    }

    fn key(host: u8, nth: usize) -> ServerKey {
        ServerKey { address: server(host).address, nth }
    }

    fn shown(changed: &Changed) -> Vec<(String, u32)> {
        changed.servers().iter().map(|server| (server.name.clone(), server.weight)).collect()
    }

    #[test]
    fn changes_are_made_or_refused() {
        let mut changed = Changed::new(&[server(1), server(1), server(2)]);
        changed.change(Change::Add(weighted(3, 4))).unwrap();
        changed.change(Change::Set(key(1, 1), weighted(1, 7))).unwrap();
        changed.change(Change::Remove(key(2, 0))).unwrap();
        let expected = [("10.0.0.1:80", 1), ("10.0.0.1:80", 7), ("10.0.0.3:80", 4)];
        assert_eq!(shown(&changed), expected.map(|(name, weight)| (name.to_owned(), weight)));
        let before = changed.clone();
        assert_eq!(changed.change(Change::Remove(key(2, 0))), Err(ChangeError::NoServer(server(2).address)));
        assert_eq!(changed.change(Change::Set(key(1, 2), server(1))), Err(ChangeError::NoServer(server(1).address)));
        assert_eq!(changed.change(Change::Set(key(1, 0), server(2))), Err(ChangeError::OtherAddress));
        assert_eq!(changed, before);
        assert!(!changed.is_as_configured());
    }

    #[test]
    fn a_new_configuration_and_changes_go_together() {
        let mut changed = Changed::new(&[server(1), server(2), server(3), server(4)]);
        changed.change(Change::Remove(key(1, 0))).unwrap();
        changed.change(Change::Set(key(2, 0), weighted(2, 9))).unwrap();
        changed.change(Change::Add(server(8))).unwrap();
        changed.change(Change::Add(weighted(9, 2))).unwrap();
        // The configuration changes 3, drops 4, names 9 itself and has a new one.
        changed.reconfigure(&[server(1), server(2), weighted(3, 5), server(6), server(9)]);
        let expected =
            [("10.0.0.2:80", 9), ("10.0.0.3:80", 5), ("10.0.0.6:80", 1), ("10.0.0.9:80", 2), ("10.0.0.8:80", 1)];
        assert_eq!(shown(&changed), expected.map(|(name, weight)| (name.to_owned(), weight)));
        // The same once more changes nothing.
        let before = changed.clone();
        changed.reconfigure(&before.configured);
        assert_eq!(changed, before);
        // A server that the configuration forgets and names again is as configured.
        changed.reconfigure(&[server(2)]);
        changed.reconfigure(&[server(1), server(2)]);
        assert_eq!(shown(&changed)[0], ("10.0.0.1:80".to_owned(), 1));
    }

    #[test]
    fn a_deadline_ends_with_the_drain() {
        let draining = |host| UpstreamServer { draining: true, ..server(host) };
        let deadline = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(9);
        let mut changed = Changed::new(&[server(1), server(2), draining(3)]);
        for host in [1, 2] {
            changed.change(Change::Set(key(host, 0), draining(host))).unwrap();
        }
        for host in [1, 2, 3] {
            changed.change(Change::Drain(key(host, 0), Some(deadline))).unwrap();
        }
        assert!(changed.change(Change::Drain(key(4, 0), Some(deadline))).is_err());
        changed.change(Change::Set(key(1, 0), server(1))).unwrap();
        changed.change(Change::Drain(key(3, 0), Some(deadline))).unwrap();
        assert_eq!(changed.drains(), [(key(2, 0), deadline), (key(3, 0), deadline)]);
        // A reload keeps it; a server that leaves takes it along.
        changed.reconfigure(&[server(1), server(2)]);
        assert_eq!(changed.drains(), [(key(2, 0), deadline)]);
        changed.change(Change::Drain(key(2, 0), None)).unwrap();
        assert!(changed.drains().is_empty() && changed.servers()[1].draining);
    }

    #[test]
    fn a_method_holds_until_it_is_taken_back() {
        let mut changed = Changed::new(&[server(1)]);
        let method = Method { text: "least_conn".into(), instead_of: "random two".into() };
        changed.change(Change::Method(Some(method.clone()))).unwrap();
        assert!(!changed.is_as_configured());
        changed.reconfigure(&[server(1)]);
        assert_eq!(changed.method(), Some(&method));
        changed.change(Change::Method(None)).unwrap();
        assert!(changed.method().is_none() && changed.is_as_configured());
    }

    #[test]
    fn an_arm_stands_in_front_of_the_method() {
        let mut changed = Changed::new(&[server(1)]);
        let arm = |method: Option<&str>| Arm {
            name: "a".into(),
            method: method.map(str::to_owned),
            instead_of: "least_conn".into(),
        };
        changed.change(Change::Arm(Some(arm(Some("random"))))).unwrap();
        assert_eq!((changed.method_in_use(), changed.is_as_configured()), (Some("random"), false));
        changed.change(Change::Arm(Some(arm(None)))).unwrap();
        assert_eq!(changed.method_in_use(), None);
        changed.change(Change::Method(Some(Method { text: "ip_hash".into(), instead_of: String::new() }))).unwrap();
        assert_eq!((changed.method_in_use(), changed.arm().is_some()), (Some("ip_hash"), true));
        changed.end_arm();
        changed.change(Change::Method(None)).unwrap();
        assert!(changed.is_as_configured());
    }

    #[test]
    fn what_sources_have_is_kept_while_the_configuration_has_them() {
        let of = |prefix: &str| {
            let api = Api { place: Place::Host("e".into(), 1), authority: "e:1".into(), tls: None, token: None };
            Discover { source: Source::Etcd(Etcd { api, prefix: prefix.into(), user: None }), template: server(0) }
        };
        let (one, other) = (of("/one"), of("/other"));
        let found = |discover: &Discover| Found { source: discover.source.identity(), servers: vec![server(1)] };
        let mut changed = Changed::new(&[server(5)]);
        changed.set_found(vec![found(&one), found(&other)]);
        assert!(!changed.is_as_configured(), "it is told to the supervisor");
        changed.keep_found(std::slice::from_ref(&other));
        assert_eq!(changed.found(), [found(&other)]);
        // Parameters of its servers are no other source.
        changed.keep_found(&[Discover { template: weighted(0, 7), ..of("/other") }]);
        assert_eq!(changed.found().len(), 1);
        changed.keep_found(&[]);
        assert!(changed.is_as_configured());
    }

    #[test]
    fn what_was_changed_can_be_stored() {
        let mut changes = Changes::new();
        let mut changed = Changed::new(&[server(1)]);
        changed.change(Change::Add(UpstreamServer { draining: true, ..server(2) })).unwrap();
        changed.change(Change::Drain(key(2, 0), Some(SystemTime::UNIX_EPOCH))).unwrap();
        changed.change(Change::Method(Some(Method { text: "random".into(), instead_of: String::new() }))).unwrap();
        changes.insert((Protocol::Http, "backend".into()), changed);
        let stored: Vec<((Protocol, String), Changed)> = changes.clone().into_iter().collect();
        let text = serde_json::to_string(&stored).unwrap();
        let read: Vec<((Protocol, String), Changed)> = serde_json::from_str(&text).unwrap();
        assert_eq!(read.into_iter().collect::<Changes>(), changes);
        // As an earlier version has written it.
        let earlier: Changed = serde_json::from_str(r#"{"configured":[],"current":[]}"#).unwrap();
        assert!(earlier.is_as_configured());
    }
}
