//! A balancing method that is chosen while the program runs. It is read in an upstream that is like the one that gets it, so
//! that whatever is wrong is said as for a configuration.

use std::fmt::Write as _;

use balanza_balancing::registry::Host;

use super::list::trial;
use crate::diagnostics::Diagnostic;
use crate::lexer::{Lexer, Token};
use crate::model::{Balance, Upstream, UpstreamServer, membership};
use crate::source::Bundle;
use crate::upstream::METHODS;

/// Reads a method, written as in a configuration: `least_conn`, `hash $uri consistent`, `balance peak_ewma`; an algorithm may
/// also stand without `balance`. It must suit the upstream with these servers.
///
/// # Errors
/// What is wrong.
pub fn read_method(
    text: &str,
    protocol: membership::Protocol,
    upstream: &Upstream,
    servers: &[UpstreamServer],
) -> Result<Balance, String> {
    let text = text.trim().trim_end_matches(';').trim_end();
    let name = directive(text)?;
    let balance = if METHODS.contains(&name.as_str()) { "" } else { "balance " };
    let inside = format!("upstream trial {{ zone trial 64k;\n{balance}{text}\n;\n{} }}", like(upstream, servers));
    let balance = trial(&Bundle::default(), protocol, "/method", &inside, said)?.balance.clone();
    match balance.spec.entry().host {
        Host::Program => Err(format!("\"{}\" starts a program, which only the configuration may name", name)),
        _ => Ok(balance),
    }
}

/// A problem with its hint.
fn said(problem: Diagnostic) -> String {
    match problem.hint {
        Some(hint) => format!("{} ({hint})", problem.message),
        None => problem.message,
    }
}

/// The name of the one directive of a text.
fn directive(text: &str) -> Result<String, String> {
    if text.is_empty() {
        return Err("a method is needed".to_owned());
    }
    let text = format!("{text}\n;");
    let mut errors = Vec::new();
    let mut lexer = Lexer::new(text.as_bytes(), 0, false);
    let first = lexer.next(&mut errors);
    let second = lexer.next(&mut errors);
    if let Some(error) = errors.into_iter().next() {
        return Err(error.message);
    }
    match (first, second) {
        (Token::Directive(words), Token::End(_)) if !words.is_empty() => Ok(words[0].text()),
        _ => Err("one directive is needed, which chooses the method".to_owned()),
    }
}

/// What a method may depend on in an upstream.
fn like(upstream: &Upstream, servers: &[UpstreamServer]) -> String {
    let mut text = String::new();
    if let Some(age) = upstream.reports.iter().map(|report| report.max_age()).max() {
        let _ = writeln!(text, "load_report agent port=1 interval={}ms stale=1;", age.as_millis().max(1));
    }
    for group in &upstream.groups {
        let _ = writeln!(text, "priority {} max_conns={};", group.priority, group.max_conns);
    }
    if upstream.sticky.is_some() {
        text.push_str("sticky cookie session;\n");
    }
    for server in servers {
        let UpstreamServer { weight, max_conns, soft_max_conns, priority, .. } = server;
        let _ = write!(text, "server 127.0.0.1:1 weight={weight} max_conns={max_conns}");
        if *soft_max_conns > 0 {
            let _ = write!(text, " soft_max_conns={soft_max_conns}");
        }
        match server.backup {
            true => text.push_str(" backup;\n"),
            false => drop(writeln!(text, " priority={priority};")),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contexts::load;
    use crate::load::Options;
    use crate::model::membership::Protocol;

    fn upstream(inside: &str) -> (Upstream, Vec<UpstreamServer>) {
        let mut files = Bundle::default();
        files.add_file("/a", format!("events {{ }} http {{ upstream app {{ zone app 64k; {inside} }} }}"));
        let (config, problems) = load(&files, &Options::new("/", "/a"));
        let mut config = config.unwrap_or_else(|| panic!("{problems:?}"));
        let upstream = std::sync::Arc::into_inner(config.http.upstreams.remove(0)).unwrap();
        let servers = upstream.servers.clone();
        (upstream, servers)
    }

    fn read(text: &str, inside: &str) -> Result<String, String> {
        let (upstream, servers) = upstream(inside);
        read_method(text, Protocol::Http, &upstream, &servers).map(|balance| format!("{:?}", balance.spec))
    }

    #[test]
    fn methods_are_read_as_in_a_configuration() {
        let servers = "server 127.0.0.1:1; server 127.0.0.2:1 weight=2;";
        let good = |text: &str| read(text, servers).unwrap();
        assert_eq!(good("least_conn"), "least_conn");
        assert_eq!(good(" least_conn ; "), "least_conn");
        assert!(good("two_choices choices=3").contains("choices=3"));
        assert_eq!(good("round_robin"), good("balance round_robin"));
        assert!(good("hash $remote_addr consistent").contains("consistent=on"));
        let bad = |text: &str| read(text, servers).unwrap_err();
        assert_eq!(bad(""), "a method is needed");
        assert!(
            bad("two_choices choices=1").contains("invalid value \"1\" of \"choices\""),
            "{}",
            bad("two_choices choices=1")
        );
        assert!(bad("lest_conn").contains("least_conn"), "{}", bad("lest_conn"));
        assert!(bad("hash $no_such_variable").contains("no_such_variable"));
        assert!(bad("external program=/bin/sh").contains("only the configuration"));
        for several in ["least_conn; server 127.0.0.3:1", "least_conn {", "}", "least_conn; } } include /etc/passwd"] {
            assert!(read(several, servers).is_err(), "{several}");
        }
        for other in ["server 127.0.0.3:1", "include /etc/passwd", "sticky cookie x", "zone a 1m"] {
            assert!(read(other, servers).is_err(), "{other}");
        }
    }

    #[test]
    fn a_method_must_suit_its_upstream() {
        let first = "server 127.0.0.1:1; server 127.0.0.2:1;";
        assert!(read("balance first", first).unwrap_err().contains("max_conns"));
        assert!(read("balance first", "server 127.0.0.1:1 max_conns=2; server 127.0.0.2:1;").is_ok());
        assert!(read("balance least_load", first).unwrap_err().contains("load_report"));
        let reports = "load_report header X-Load stale_after=7s; server 127.0.0.1:1; server 127.0.0.2:1;";
        assert!(read("balance least_load", reports).unwrap().contains("stale=7s"));
        assert!(read("hash $uri", "server 127.0.0.1:1; server 127.0.0.2:1 backup;").unwrap_err().contains("backup"));
    }
}
