//! `-v` and `-V`, with the lines that tools look for in NGINX's.

use std::fmt::Write;

use balanza_config::model::DIALECT_VERSION;
use balanza_config::{State, directives};

use crate::installation::Installation;

/// Modules of `http` that NGINX has unless it is configured `--without` them, in the order of its documentation.
const STANDARD: [&str; 32] = [
    "charset",
    "gzip",
    "ssi",
    "userid",
    "access",
    "auth_basic",
    "mirror",
    "autoindex",
    "geo",
    "map",
    "split_clients",
    "referer",
    "rewrite",
    "proxy",
    "fastcgi",
    "uwsgi",
    "scgi",
    "grpc",
    "tunnel",
    "memcached",
    "limit_conn",
    "limit_req",
    "empty_gif",
    "browser",
    "upstream_hash",
    "upstream_ip_hash",
    "upstream_least_conn",
    "upstream_least_time",
    "upstream_random",
    "upstream_keepalive",
    "upstream_zone",
    "upstream_sticky",
];

/// Modules of `http` that NGINX has only if it is configured `--with` them.
const OPTIONAL: [&str; 20] = [
    "ssl",
    "v2",
    "v3",
    "realip",
    "addition",
    "xslt",
    "image_filter",
    "geoip",
    "sub",
    "dav",
    "flv",
    "mp4",
    "gunzip",
    "gzip_static",
    "auth_request",
    "random_index",
    "secure_link",
    "degradation",
    "slice",
    "stub_status",
];

/// The same of `stream`.
const STREAM_STANDARD: [&str; 13] = [
    "limit_conn",
    "access",
    "geo",
    "map",
    "split_clients",
    "return",
    "pass",
    "set",
    "upstream_hash",
    "upstream_least_conn",
    "upstream_least_time",
    "upstream_random",
    "upstream_zone",
];
const STREAM_OPTIONAL: [&str; 4] = ["ssl", "realip", "geoip", "ssl_preread"];

/// Our own version, and that of the NGINX whose language this is.
pub fn version() -> String {
    format!("balanza version: balanza/{}\nnginx version: nginx/{DIALECT_VERSION}\n", env!("CARGO_PKG_VERSION"))
}

/// The library of TLS, and what NGINX says of its own.
pub const TLS: &str = "built with rustls 0.23.46 and aws-lc-rs 1.19.0\nTLS SNI support enabled\n";

/// The modules whose directives exist here, as NGINX's `configure` would have been told of them, and the paths.
pub fn configure_arguments(paths: &Installation) -> String {
    let mut line = String::from("configure arguments:");
    for (option, path) in [
        ("prefix", &paths.prefix),
        ("conf-path", &paths.file),
        ("error-log-path", &paths.error_log),
        ("http-log-path", &paths.access_log),
        ("pid-path", &paths.pid),
    ] {
        let _ = write!(line, " --{option}={}", path.display());
    }
    line.push_str(" --user=nobody");
    modules(&mut line, "http", &OPTIONAL, &STANDARD);
    if !directives().iter().any(|directive| directive.name == "proxy_cache" && directive.state == State::Supported) {
        line.push_str(" --without-http-cache");
    }
    if exists("stream", "core") {
        line.push_str(" --with-stream");
        modules(&mut line, "stream", &STREAM_OPTIONAL, &STREAM_STANDARD);
    }
    line.push('\n');
    line
}

/// The options for what is there of `optional` and missing of `standard`.
fn modules(line: &mut String, protocol: &str, optional: &[&str], standard: &[&str]) {
    for module in optional.iter().filter(|module| exists(protocol, module)) {
        let _ = write!(line, " --with-{protocol}_{module}_module");
    }
    for module in standard.iter().filter(|module| !exists(protocol, module)) {
        let _ = write!(line, " --without-{protocol}_{module}_module");
    }
}

/// Whether any directive of a module does here what it does in NGINX.
fn exists(protocol: &str, module: &str) -> bool {
    let name = format!("ngx_{protocol}_{module}_module");
    directives().iter().any(|directive| directive.module == name && directive.state == State::Supported)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_module_is_in_the_table_of_directives() {
        let all =
            [("http", &STANDARD[..]), ("http", &OPTIONAL), ("stream", &STREAM_STANDARD), ("stream", &STREAM_OPTIONAL)];
        for (protocol, module) in all.into_iter().flat_map(|(protocol, list)| list.iter().map(move |it| (protocol, it)))
        {
            // NGINX's own table names one module otherwise than its configure option.
            let module = if *module == "image_filter" { "image" } else { module };
            let name = format!("ngx_{protocol}_{module}_module");
            assert!(directives().iter().any(|directive| directive.module == name), "{name}");
        }
    }

    #[test]
    fn the_library_of_tls_is_the_one_that_is_built_in() {
        let lock = include_str!("../../../Cargo.lock");
        for name in ["rustls", "aws-lc-rs"] {
            let (_, rest) = lock.split_once(&format!("name = \"{name}\"\nversion = \"")).unwrap();
            let version = rest.split('"').next().unwrap();
            assert!(TLS.contains(&format!("{name} {version}")), "{name} {version}");
        }
    }

    #[test]
    fn present_modules_are_those_that_a_proxy_needs() {
        for module in
            ["proxy", "map", "access", "ssl", "v2", "upstream_hash", "upstream_keepalive", "upstream_least_time"]
        {
            assert!(exists("http", module), "{module}");
        }
        for module in ["fastcgi", "uwsgi", "v3"] {
            assert!(!exists("http", module), "{module}");
        }
        for (module, there) in
            [("core", true), ("upstream_random", true), ("ssl", true), ("ssl_preread", true), ("geoip", false)]
        {
            assert_eq!(exists("stream", module), there, "{module}");
        }
    }
}
