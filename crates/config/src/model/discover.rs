//! `discover`: sources of an upstream's servers outside the configuration.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use balanza_tls::client::Context;

use super::upstream::UpstreamServer;

/// `discover SOURCE …`.
#[derive(Debug, Clone, PartialEq)]
pub struct Discover {
    /// Where the servers come from.
    pub source: Source,
    /// What the servers have in common unless the source says something else. The address is to be filled in.
    pub template: UpstreamServer,
}

/// What knows servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A service of Consul.
    Consul(Consul),
    /// Containers of Docker.
    Docker(Docker),
    /// Keys of etcd.
    Etcd(Etcd),
    /// A service of Kubernetes.
    Kubernetes(Kubernetes),
}

impl Source {
    /// A text that only sources with the same servers have in common.
    pub fn identity(&self) -> String {
        match self {
            Source::Consul(Consul { api, service, tags, datacenter }) => {
                format!("consul {api} {service:?} {tags:?} {datacenter:?}")
            }
            Source::Docker(Docker { api, label, value, network, port }) => {
                format!("docker {api} {label:?} {value:?} {network:?} {port:?}")
            }
            Source::Etcd(Etcd { api, prefix, .. }) => format!("etcd {api} {prefix:?}"),
            Source::Kubernetes(Kubernetes { api, namespace, service, port }) => {
                format!("kubernetes {api} {namespace:?} {service:?} {port:?}")
            }
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Consul(consul) => write!(f, "service \"{}\" of Consul at {}", consul.service, consul.api),
            Source::Docker(docker) => write!(f, "Docker at {}", docker.api),
            Source::Etcd(etcd) => write!(f, "etcd at {}", etcd.api),
            Source::Kubernetes(Kubernetes { api, namespace, service, .. }) => {
                write!(f, "service \"{namespace}/{service}\" of Kubernetes at {api}")
            }
        }
    }
}

/// `discover consul URL service=NAME`: each instance of the service that passes its checks is a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Consul {
    /// Where an agent answers.
    pub api: Api,
    /// `service=`.
    pub service: String,
    /// `tag=`: what instances must have, all of them.
    pub tags: Vec<String>,
    /// `datacenter=`; without it the agent's own.
    pub datacenter: Option<String>,
}

/// `discover docker [URL]`: each container with a label is a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Docker {
    /// Where the daemon answers.
    pub api: Api,
    /// `label=` (balanza.upstream): the label that containers must have.
    pub label: String,
    /// The label's value; that of `label=LABEL=VALUE`, or the upstream's name.
    pub value: String,
    /// `network=`: the network that they are reached in; without it they may have only one.
    pub network: Option<String>,
    /// `port=`: the port of containers that do not name one.
    pub port: Option<u16>,
}

/// `discover kubernetes [URL] service=NAMESPACE/NAME`: each endpoint of the service is a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kubernetes {
    /// The API server.
    pub api: Api,
    /// Where the service is.
    pub namespace: String,
    /// Its name.
    pub service: String,
    /// `port=`: the name or number of a port; without it there may be only one.
    pub port: Option<String>,
}

/// `discover etcd URL prefix=KEY`: each key below the prefix is a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Etcd {
    /// Where it answers.
    pub api: Api,
    /// `prefix=`: what the keys begin with.
    pub prefix: String,
    /// `user=` and `password_file=`.
    pub user: Option<(String, PathBuf)>,
}

/// The HTTP interface of a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Api {
    /// Where to connect to.
    pub place: Place,
    /// The Host field.
    pub authority: String,
    /// `https`.
    pub tls: Option<Tls>,
    /// `token_file=`: a file with a token that requests show. It is read for each request, since such files are renewed.
    pub token: Option<PathBuf>,
}

impl fmt::Display for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.place, &self.tls) {
            (Place::Unix(path), _) => write!(f, "unix:{}", path.display()),
            (Place::Host(..), None) => write!(f, "http://{}", self.authority),
            (Place::Host(..), Some(_)) => write!(f, "https://{}", self.authority),
        }
    }
}

/// Where an interface is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// A host's name or address, and a port.
    Host(String, u16),
    /// A Unix-domain socket.
    Unix(PathBuf),
}

/// How a source proves who it is.
#[derive(Debug, Clone)]
pub struct Tls {
    /// The certificates in `ca=`, as they are in the file.
    pub trusted: Vec<u8>,
    /// What a handshake takes.
    pub context: Arc<Context>,
}

impl PartialEq for Tls {
    fn eq(&self, other: &Tls) -> bool {
        self.trusted == other.trusted
    }
}

impl Eq for Tls {}
