//! What configurations mean: defaults, inheritance, sockets, upstreams.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use balanza_config::model::*;
use balanza_config::regex::Captures;
use balanza_config::template::{Part, Template, Variable};
use balanza_config::{Bundle, Options, Recorder, load};

mod core;
mod files;
mod settings;
mod sockets;
mod streams;
mod traces;
mod upstreams;
mod zones;

fn bundle(text: &str) -> Bundle {
    let mut files = Bundle::default();
    files.add_file("/etc/balanza/n.conf", text);
    files.add_host(
        "two.example",
        vec!["10.0.0.1".parse().unwrap(), "::1".parse().unwrap(), "10.0.0.2".parse().unwrap()],
    );
    files.add_host("localhost", vec!["127.0.0.1".parse().unwrap(), "::1".parse().unwrap()]);
    files
}

fn options() -> Options {
    Options::new("/srv", "/etc/balanza/n.conf")
}

fn config(text: &str) -> Config {
    let (config, problems) = load(&bundle(text), &options());
    config.unwrap_or_else(|| panic!("{text}: {problems:?}"))
}

fn http(text: &str) -> Http {
    config(&format!("events {{ }} http {{ {text} }}")).http
}

fn server(text: &str) -> Arc<Server> {
    http(&format!("server {{ listen 8080; {text} }}")).listens[0].groups[0].default_server.clone()
}

/// The location that serves a URI.
fn location(text: &str, uri: &str) -> Arc<Location> {
    let server = server(text);
    server.locations.find(uri.as_bytes(), &mut Captures::new()).unwrap().unwrap_or(&server.root).clone()
}

fn literal(text: &str) -> Template {
    Template::literal(text.as_bytes())
}
