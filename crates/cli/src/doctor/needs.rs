//! What a configuration asks of the machine.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use balanza_config::model::{Account, Config, ListenAddress, LogTarget, ServerAddress, WorkerMemory};

/// The numbers and files of a configuration that the machine has to provide.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Needs {
    /// `worker_processes`, if it is a number.
    pub threads: Option<usize>,
    /// `worker_connections`, for each thread.
    pub connections: usize,
    /// `worker_rlimit_nofile`.
    pub rlimit_nofile: Option<u64>,
    /// `worker_memory`.
    pub memory: WorkerMemory,
    /// The longest `backlog` of a `listen` for TCP.
    pub backlog: Option<i32>,
    /// Addresses to listen on.
    pub sockets: usize,
    /// Their ports.
    pub ports: BTreeSet<u16>,
    /// Servers that are reached by TCP/IP.
    pub servers: usize,
    /// Some of their connections are not kept for further requests.
    pub short_connections: bool,
    /// Files of logs.
    pub logs: BTreeSet<PathBuf>,
    /// Directories of temporary files.
    pub temporary: BTreeSet<PathBuf>,
    /// Files of `state`, which the worker writes.
    pub states: BTreeSet<PathBuf>,
    /// The account of the worker, if the start is root's.
    pub user: Account,
    /// The pid file.
    pub pid: Option<PathBuf>,
    /// Files of certificates, and when each ends in seconds since 1970.
    pub certificates: Vec<(PathBuf, i64)>,
}

impl Needs {
    /// Those of a configuration.
    pub fn of(config: &Config) -> Needs {
        let core = &config.core;
        let mut needs = Needs {
            threads: core.worker_processes,
            connections: core.worker_connections,
            rlimit_nofile: core.worker_rlimit_nofile,
            memory: core.worker_memory,
            user: core.user.clone(),
            pid: core.pid.clone(),
            logs: config.log_files().cloned().collect(),
            temporary: config.http.temp_directories.iter().cloned().collect(),
            certificates: config.certificates.iter().map(|it| (it.file.clone(), it.ends)).collect(),
            ..Needs::default()
        };
        needs.logs.extend(core.error_log.iter().filter_map(|log| match &log.target {
            LogTarget::File(path) => Some(path.clone()),
            LogTarget::Stderr | LogTarget::Syslog(_) => None,
        }));
        for (address, options, _) in config.sockets() {
            needs.sockets += 1;
            needs.ports.extend(address.inet().map(|address| address.port()));
            if !matches!(address, ListenAddress::Udp(_)) {
                needs.backlog = needs.backlog.max(Some(options.backlog));
            }
        }
        let of_http = config.http.upstreams.iter().map(|upstream| (upstream, upstream.keepalive.connections == 0));
        let of_stream = config.stream.upstreams.iter().map(|upstream| (upstream, true));
        for (upstream, is_short) in of_http.chain(of_stream) {
            let servers = upstream.servers.iter().filter(|server| matches!(server.address, ServerAddress::Inet(_)));
            let count = servers.count() + upstream.resolved.len();
            needs.servers += count;
            needs.short_connections |= is_short && count > 0;
            needs.states.extend(upstream.list.iter().filter(|list| list.is_state).map(|list| list.path.clone()));
        }
        needs
    }

    /// Connections that the worker process may hold.
    pub fn all_connections(&self, threads: usize) -> u64 {
        (self.connections as u64).saturating_mul(threads as u64)
    }

    /// Descriptors for them, for listening sockets and logs, and some for what a process has besides.
    pub fn descriptors(&self, threads: usize) -> u64 {
        let besides = self.sockets.saturating_mul(threads).saturating_add(self.logs.len() + 64);
        self.all_connections(threads).saturating_add(besides as u64)
    }

    /// The directories that are written to, each once.
    pub fn directories(&self) -> BTreeSet<&Path> {
        let logs = self.logs.iter().filter_map(|file| file.parent());
        logs.chain(self.temporary.iter().map(PathBuf::as_path)).collect()
    }
}

#[cfg(test)]
mod tests {
    use balanza_config::{Bundle, Options, load};

    use super::*;

    #[test]
    fn needs_are_those_of_the_configuration() {
        let text = "
            worker_processes 3; worker_rlimit_nofile 4096; error_log /var/log/e.log; user www-data adm;
            events { worker_connections 1000; }
            http {
                access_log /var/log/a.log;
                client_body_temp_path /var/tmp/bodies;
                upstream a { server 10.0.0.1:80; server unix:/run/a.sock; }
                server { listen 8080 backlog=2000; listen 8081; location / { proxy_pass http://a; } }
            }
            stream { server { listen 53 udp; proxy_pass 10.0.0.3:53; } }";
        let mut files = Bundle::default();
        files.add_file("/nginx.conf", text);
        let (config, problems) = load(&files, &Options::new("/", "/nginx.conf"));
        let needs = Needs::of(&config.unwrap_or_else(|| panic!("{problems:?}")));
        assert_eq!((needs.threads, needs.connections, needs.rlimit_nofile), (Some(3), 1000, Some(4096)));
        assert_eq!((needs.backlog, needs.sockets), (Some(2000), 3));
        assert_eq!(needs.ports, BTreeSet::from([53, 8080, 8081]));
        assert_eq!((needs.servers, needs.short_connections), (2, true));
        assert_eq!(needs.logs, ["/var/log/a.log", "/var/log/e.log"].map(PathBuf::from).into());
        assert_eq!(needs.directories(), ["/var/log", "/var/tmp/bodies"].map(Path::new).into());
        assert_eq!((needs.user.user.as_str(), needs.user.group.as_deref()), ("www-data", Some("adm")));
        assert_eq!(needs.descriptors(3), 3000 + 9 + 2 + 64);
    }
}
