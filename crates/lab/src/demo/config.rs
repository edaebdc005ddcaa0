//! The nginx.conf of the demo's balancer.

use std::fmt::Write;
use std::net::SocketAddr;
use std::path::Path;

use balanza_balancing::registry;

use super::algorithm::Algorithm;

/// Field of the answers in which Balanza says why it chose the server.
pub(super) const REASON_FIELD: &str = "x-reason";

/// How long an attempt waits for a server that is silent.
pub(super) const READ_TIMEOUT: &str = "5s";

/// The certificate's file in the balancer's directory, and the key's.
pub(super) const CERTIFICATE: &str = "cert.pem";
pub(super) const KEY: &str = "cert.key";

/// What a balancer's file has beside the algorithm.
#[derive(Clone, Copy, Debug)]
pub(super) struct Features {
    /// Answers say why their server was chosen, and there are the API and the dashboard: NGINX has none of them.
    pub(super) is_own: bool,
    /// HTTPS and HTTP/2 in the place of plain HTTP.
    pub(super) tls: bool,
}

/// The whole file. Paths in it are relative to the prefix (`-p`), which is `directory`, and laid out as NGINX lays them out.
pub(super) fn text(
    port: u16,
    algorithm: &Algorithm,
    servers: &[SocketAddr],
    directory: &Path,
    Features { is_own, tls }: Features,
) -> String {
    let (parameters, tls) = match (tls, is_own) {
        (false, _) => ("", String::new()),
        (true, true) => (" ssl", format!("        http2 on;\n{}", certificate())),
        // NGINX has the directive `http2` since 1.25.1.
        (true, false) => (" ssl http2", certificate()),
    };
    let reason = if is_own {
        format!("            add_header {REASON_FIELD} $upstream_pick_reason always;\n")
    } else {
        String::new()
    };
    let own = if is_own {
        "
        location /api {
            api write=on;
        }

        location /dashboard {
            dashboard;
        }
"
    } else {
        ""
    };
    let mut upstream = String::new();
    // Writing to a string cannot fail.
    for directive in algorithm.directives(directory) {
        let _ = writeln!(upstream, "        {directive};");
    }
    let of_servers = algorithm.parameters();
    for server in servers {
        let _ = writeln!(upstream, "        server {server}{of_servers};");
    }
    format!(
        "worker_processes 1;
pid logs/balancer.pid;
error_log logs/error.log notice;

events {{
    worker_connections 4096;
}}

http {{
    access_log off;

    upstream servers {{
        zone servers 64k;
{upstream}    }}

    server {{
        listen 127.0.0.1:{port}{parameters};
{tls}
        location / {{
            proxy_pass http://servers;
            proxy_set_header Host $host;
            proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
            proxy_connect_timeout 2s;
            proxy_read_timeout {READ_TIMEOUT};
{reason}        }}
{own}    }}
}}
"
    )
}

fn certificate() -> String {
    format!("        ssl_certificate {CERTIFICATE};\n        ssl_certificate_key {KEY};\n")
}

/// How a file of this form chooses servers: the directive of its `upstream` block, as a user would name the algorithm.
pub(super) fn algorithm_in(text: &str) -> Option<Algorithm> {
    let block = text.split_once("upstream ")?.1.split_once('{')?.1.split_once('}')?.0;
    let mut directives = block.split(';').map(str::trim).filter(|directive| !directive.is_empty());
    let chooses = |directive: &&str| {
        let name = directive.split_ascii_whitespace().next().unwrap_or_default();
        !["zone", "server", "keepalive", "load_report"].contains(&name)
    };
    let directive = directives.find(chooses).unwrap_or(registry::entries()[0].name);
    directive.strip_prefix("balance ").unwrap_or(directive).parse().ok()
}

#[cfg(test)]
mod tests {
    use balanza_config::{Bundle, Options, load};

    use super::*;

    fn of(algorithm: &str) -> String {
        with(algorithm, Features { is_own: true, tls: false })
    }

    fn with(algorithm: &str, features: Features) -> String {
        let servers = [SocketAddr::from(([127, 0, 0, 1], 8081)), SocketAddr::from(([127, 0, 0, 1], 8082))];
        text(8080, &algorithm.parse().unwrap(), &servers, Path::new("/demo"), features)
    }

    /// What the balancer says of the file; nothing when it accepts it.
    fn complaints(text: &str) -> String {
        let mut files = Bundle::default();
        files.add_file("/demo/nginx.conf", text);
        load(&files, &Options::new("/demo", "/demo/nginx.conf")).1.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_file() {
        insta::assert_snapshot!(of("hash $request_uri consistent"));
        let plain = of("round_robin");
        assert!(plain.contains("zone servers 64k;\n        server 127.0.0.1:8081;\n"), "{plain}");
        let tls = with("round_robin", Features { is_own: true, tls: true });
        let lines = "listen 127.0.0.1:8080 ssl;
        http2 on;
        ssl_certificate cert.pem;
        ssl_certificate_key cert.key;

        location / {";
        assert!(tls.contains(lines), "{tls}");
    }

    #[test]
    fn every_algorithm_of_the_registry_loads_by_its_name() {
        for entry in registry::entries() {
            for name in entry.aliases.iter().chain([&entry.name]) {
                for form in [(*name).to_owned(), format!("balance {name}")] {
                    let text = of(&form);
                    assert_eq!(complaints(&text), "", "{form}:\n{text}");
                }
            }
        }
    }

    #[test]
    fn the_algorithm_is_read_from_the_file() {
        for algorithm in ["round_robin", "least_conn", "hash $request_uri consistent", "random two least_conn"] {
            assert_eq!(algorithm_in(&of(algorithm)).unwrap().to_string(), algorithm);
        }
        assert_eq!(algorithm_in(&of("least_load")).unwrap().to_string(), "least_load");
        let edited = of("round_robin").replace("zone servers 64k;", "zone servers 64k; ip_hash; keepalive 8;");
        assert_eq!(algorithm_in(&edited).unwrap().to_string(), "ip_hash");
        assert_eq!(algorithm_in("events {}"), None);
    }

    /// NGINX itself reads the file with every algorithm that the help names and that this NGINX has.
    #[test]
    fn nginx_accepts_it() {
        for algorithm in
            ["round_robin", "least_conn", "ip_hash", "hash $request_uri consistent", "random", "random two least_conn"]
        {
            accepted_by_nginx(algorithm, false);
        }
        accepted_by_nginx("least_conn", true);
    }

    fn accepted_by_nginx(algorithm: &str, tls: bool) {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("logs")).unwrap();
        let file = directory.path().join("nginx.conf");
        std::fs::write(&file, with(algorithm, Features { is_own: false, tls })).unwrap();
        let made = crate::certificate::SelfSigned::new(&["127.0.0.1".into()]).unwrap();
        std::fs::write(directory.path().join(CERTIFICATE), made.certificate).unwrap();
        std::fs::write(directory.path().join(KEY), made.key).unwrap();
        let tested = std::process::Command::new("/usr/sbin/nginx")
            .args(["-t", "-q", "-p"])
            .arg(directory.path())
            .arg("-c")
            .arg(&file)
            .output()
            .unwrap();
        assert!(tested.status.success(), "{algorithm}: {}", String::from_utf8_lossy(&tested.stderr));
    }
}
