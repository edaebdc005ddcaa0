//! docs/directives.md says what the table says. `BALANZA_UPDATE_DOCS=1 cargo test` writes it.

use std::collections::BTreeSet;
use std::path::Path;

use balanza_config::{Bundle, Context, Options, State, directives, directives_markdown, load};

#[test]
fn directives_are_documented() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/directives.md");
    let wanted = directives_markdown();
    if std::env::var_os("BALANZA_UPDATE_DOCS").is_some() {
        std::fs::write(&file, &wanted).unwrap();
    }
    let found = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(found == wanted, "docs/directives.md is not current: run BALANZA_UPDATE_DOCS=1 cargo test");
}

/// What only Balanza has is explained nowhere else.
#[test]
fn own_directives_are_explained() {
    let text = directives_markdown();
    for directive in directives().iter().filter(|directive| directive.module == "balanza") {
        assert!(text.contains(&format!("### `{} ", directive.name)), "{} is not explained", directive.name);
    }
}

/// The words that the table may use for contexts.
const CONTEXTS: [&str; 15] = [
    "main",
    "events",
    "http",
    "server",
    "location",
    "upstream",
    "server-if",
    "location-if",
    "limit_except",
    "mail",
    "mail-server",
    "stream",
    "stream-server",
    "stream-upstream",
    "any",
];

#[test]
fn table_is_well_formed() {
    let lines = include_str!("../data/directives.txt").lines();
    let rows = lines.filter(|line| !line.starts_with('#') && !line.starts_with('[')).count();
    assert_eq!(directives().len(), rows, "a line of the table is not understood");
    let mut seen = BTreeSet::new();
    for directive in directives() {
        for context in &directive.contexts {
            assert!(CONTEXTS.contains(context), "{}: unknown context {context}", directive.name);
            assert!(seen.insert((directive.name, *context)), "{} is twice in {context}", directive.name);
        }
        assert!(directive.arguments.0 <= directive.arguments.1, "{}", directive.name);
    }
}

/// A value that a directive accepts, without its name.
fn example(name: &str, context: Context) -> &'static str {
    match (name, context) {
        ("server", Context::Upstream | Context::StreamUpstream) => "127.0.0.1:1",
        ("proxy_pass", Context::StreamServer) => "127.0.0.1:9000",
        ("log_format", Context::Stream) => "f $status",
        ("hash", Context::StreamUpstream) => "$remote_addr",
        ("least_time", Context::StreamUpstream) => "connect",
        ("stream", _) => "",
        ("keepalive_timeout", Context::Upstream) => "60s",
        ("error_log", _) => "stderr",
        ("listen", _) => "8080",
        ("proxy_pass", _) => "http://127.0.0.1:9000",
        ("return", _) => "204",
        ("set", _) => "$a b",
        ("map", _) => "$uri $m",
        ("allow" | "deny", _) => "all",
        ("access_log", _) => "off",
        ("log_format", _) => "f $uri",
        ("error_page", _) => "404 /404.html",
        ("add_header" | "add_trailer" | "proxy_set_header", _) => "X-A b",
        ("add_header_inherit" | "add_trailer_inherit", _) => "merge",
        ("proxy_redirect" | "proxy_bind" | "if_modified_since" | "proxy_next_upstream" | "pid", _) => "off",
        ("proxy_http_version", _) => "1.1",
        ("proxy_buffers" | "large_client_header_buffers", _) => "4 8k",
        ("hash", _) => "$uri",
        ("random", _) => "two",
        ("least_time", _) => "header",
        ("zone", _) => "z 64k",
        ("balance", _) => "least_conn",
        ("load_report", _) => "agent port=8081",
        ("priority", _) => "0 max_conns=5",
        ("sticky", _) => "route $arg_route",
        ("two_choices", _) => "choices=3",
        ("least_conn" | "ip_hash" | "internal" | "types" | "http" | "server" | "events", _) => "",
        ("upstream", _) => "u",
        ("location", _) => "/",
        ("include", _) => "/nothing*",
        ("server_tokens" | "daemon" | "master_process", _) => "off",
        ("proxy_method" | "user" | "root" | "alias" | "index" | "server_name" | "default_type", _) => "x",
        ("worker_watchdog", _) => "10s restart",
        ("proxy_set_body" | "proxy_hide_header" | "proxy_pass_header", _) => "x",
        ("proxy_busy_buffers_size", _) => "8k",
        ("proxy_max_temp_file_size", _) => "0",
        _ => "1",
    }
}

/// Every directive that the table calls supported is read by the context that it may stand in.
#[test]
fn supported_directives_are_read() {
    for directive in directives().iter().filter(|directive| directive.state == State::Supported) {
        for context in [
            Context::Main,
            Context::Events,
            Context::Http,
            Context::Server,
            Context::Location,
            Context::Upstream,
            Context::Stream,
            Context::StreamServer,
            Context::StreamUpstream,
        ] {
            if !directive.allowed_in(context) || (directive.name == "events" && context == Context::Main) {
                continue;
            }
            let value = if directive.flag { "on" } else { example(directive.name, context) };
            let block = match (directive.block, directive.name) {
                (true, "upstream") => "{ server 127.0.0.1:1; }",
                (true, "server") if context == Context::Stream => "{ listen 1; proxy_pass 127.0.0.1:2; }",
                (true, _) => "{ }",
                (false, _) => ";",
            };
            let it = format!("{} {value} {block}", directive.name);
            let text = match context {
                Context::Main => format!("events {{ }} {it}"),
                Context::Events => format!("events {{ {it} }}"),
                Context::Http => format!("events {{ }} http {{ {it} }}"),
                Context::Server => format!("events {{ }} http {{ server {{ {it} }} }}"),
                Context::Location => format!("events {{ }} http {{ server {{ location / {{ {it} }} }} }}"),
                Context::Upstream => format!("events {{ }} http {{ upstream u {{ server 127.0.0.2; {it} }} }}"),
                Context::Stream => format!("events {{ }} stream {{ {it} }}"),
                Context::StreamServer => {
                    let others = [("listen", "listen 1;"), ("proxy_pass", "proxy_pass 127.0.0.1:2;")];
                    let others = others.iter().filter(|(name, _)| *name != directive.name).map(|(_, text)| *text);
                    let others: String = others.collect();
                    format!("events {{ }} stream {{ server {{ {others} {it} }} }}")
                }
                Context::StreamUpstream => {
                    format!("events {{ }} stream {{ upstream u {{ server 127.0.0.2:1; {it} }} }}")
                }
            };
            let mut files = Bundle::default();
            files.add_file("/n.conf", text.clone());
            files.add_glob("/nothing*", Vec::new());
            let (config, problems) = load(&files, &Options::new("/", "/n.conf"));
            assert!(config.is_some() && problems.is_empty(), "{text}: {problems:?}");
        }
    }
}
