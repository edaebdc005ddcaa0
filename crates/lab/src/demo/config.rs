//! The nginx.conf of the demo's balancer.

use std::fmt::Write;
use std::net::SocketAddr;
use std::path::Path;

use super::algorithm::Algorithm;

/// The whole file. Paths in it are relative to the prefix (`-p`), which is `directory`, and laid out as NGINX lays them out.
pub(super) fn text(port: u16, algorithm: &Algorithm, servers: &[SocketAddr], directory: &Path) -> String {
    let mut upstream = String::new();
    // Writing to a string cannot fail.
    for directive in algorithm.directives(directory) {
        let _ = writeln!(upstream, "        {directive};");
    }
    let parameters = algorithm.parameters();
    for server in servers {
        let _ = writeln!(upstream, "        server {server}{parameters};");
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
        listen 127.0.0.1:{port};

        location / {{
            proxy_pass http://servers;
            proxy_set_header Host $host;
            proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
        }}
    }}
}}
"
    )
}

#[cfg(test)]
mod tests {
    use balanza_balancing::registry;
    use balanza_config::{Bundle, Options, load};

    use super::*;

    fn of(algorithm: &str) -> String {
        let servers = [SocketAddr::from(([127, 0, 0, 1], 8081)), SocketAddr::from(([127, 0, 0, 1], 8082))];
        text(8080, &algorithm.parse().unwrap(), &servers, Path::new("/demo"))
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

    /// NGINX itself reads the file with every algorithm that the help names and that this NGINX has.
    #[test]
    fn nginx_accepts_it() {
        for algorithm in
            ["round_robin", "least_conn", "ip_hash", "hash $request_uri consistent", "random", "random two least_conn"]
        {
            let directory = tempfile::tempdir().unwrap();
            std::fs::create_dir(directory.path().join("logs")).unwrap();
            let file = directory.path().join("nginx.conf");
            std::fs::write(&file, of(algorithm)).unwrap();
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
}
