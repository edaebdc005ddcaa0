//! The rewrite module in a server and a location: no panic, a configuration exactly if there is no error, and every `if` of
//! a location has a configuration of its own.
#![no_main]

use balanza_config::model::{Location, RewriteOp};
use balanza_config::{Bundle, Options, Severity, load};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    // What stands before the first NUL is the server's, the rest the location's.
    let (server, location) = match bytes.iter().position(|byte| *byte == 0) {
        Some(at) => (&bytes[..at], &bytes[at + 1..]),
        None => (&b""[..], bytes),
    };
    let text =
        [&b"events { } http { server { listen 80; "[..], server, b"\nlocation / { ", location, b"\n} } }"].concat();
    let mut files = Bundle::default();
    files.add_file("/n.conf", text);
    let (config, problems) = load(&files, &Options::new("/", "/n.conf"));
    let failed = problems.iter().any(|problem| problem.severity == Severity::Error);
    assert_eq!(config.is_some(), !failed);
    for problem in &problems {
        assert!(!problem.to_string().is_empty());
    }
    for group in config.iter().flat_map(|config| &config.http.listens).flat_map(|listen| &listen.groups) {
        holds(&group.default_server.rewrite, false);
        group.default_server.locations.iter().for_each(|location| visit(location));
    }
});

fn visit(location: &Location) {
    holds(&location.rewrite, true);
    location.nested.iter().for_each(|location| visit(location));
}

/// An `if` of a server changes no configuration, and none stands in another.
fn holds(ops: &[RewriteOp], in_location: bool) {
    for op in ops {
        if let RewriteOp::If(one) = op {
            assert_eq!(one.location.is_some(), in_location);
            assert!(!one.ops.iter().any(|op| matches!(op, RewriteOp::If(_))));
            assert!(one.location.iter().all(|location| location.rewrite.is_empty()));
        }
    }
}
