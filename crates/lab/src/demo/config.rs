//! The nginx.conf of the demo's balancer.

use std::fmt::{self, Display, Write};
use std::net::SocketAddr;
use std::str::FromStr;

/// A balancing algorithm in nginx.conf's words, without the semicolon: `least_conn`, `hash $request_uri consistent`.
/// Round robin has no directive there; here it is `round_robin`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Algorithm(Option<String>);

impl FromStr for Algorithm {
    type Err = String;

    /// Takes any directive of one line: whether it exists, the balancer says best, with the place in the file.
    fn from_str(text: &str) -> Result<Self, String> {
        let directive = text.trim().trim_end_matches(';').trim_end();
        if directive.is_empty() {
            return Err("an algorithm is missing, as in least_conn".into());
        }
        if directive.contains(['{', '}', ';', '#', '\n', '\r']) {
            return Err("one directive of nginx.conf is meant, as in 'hash $request_uri consistent'".into());
        }
        Ok(Self((directive != "round_robin").then(|| directive.to_owned())))
    }
}

impl Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_deref().unwrap_or("round_robin"))
    }
}

/// The whole file. Paths in it are relative to the prefix (`-p`), and laid out as NGINX lays them out.
pub(super) fn text(port: u16, algorithm: &Algorithm, servers: &[SocketAddr]) -> String {
    let mut upstream = String::new();
    if let Algorithm(Some(directive)) = algorithm {
        upstream += &format!("        {directive};\n");
    }
    for server in servers {
        // Writing to a string cannot fail.
        let _ = writeln!(upstream, "        server {server};");
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
    use super::*;

    fn parsed(text: &str) -> Algorithm {
        text.parse().unwrap()
    }

    #[test]
    fn the_file() {
        let servers = [SocketAddr::from(([127, 0, 0, 1], 8081)), SocketAddr::from(([127, 0, 0, 1], 8082))];
        insta::assert_snapshot!(text(8080, &parsed("hash $request_uri consistent"), &servers));
        let plain = text(8080, &parsed("round_robin"), &servers);
        assert!(plain.contains("zone servers 64k;\n        server 127.0.0.1:8081;\n"), "{plain}");
    }

    #[test]
    fn algorithms() {
        assert_eq!(parsed("round_robin"), parsed(" round_robin; "));
        assert_eq!(parsed("least_conn;"), Algorithm(Some("least_conn".into())));
        for text in ["", ";", "least_conn; server 1.2.3.4", "ip_hash }", "random # two", "a\nb"] {
            assert!(text.parse::<Algorithm>().is_err(), "{text}");
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
            std::fs::write(&file, text(8080, &parsed(algorithm), &[([127, 0, 0, 1], 8081).into()])).unwrap();
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
