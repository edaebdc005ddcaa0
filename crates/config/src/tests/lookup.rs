//! Locations, server names and wildcards against the rules said plainly.

use std::sync::Arc;

use proptest::prelude::*;

use super::config;
use crate::model::LocationTree;
use crate::model::{Config, Location, Matcher};
use crate::names::{NameKind, Wildcards, classify};
use crate::regex::{Captures, Regex};

/// NGINX's search, said plainly: a walk over all locations of a level.
fn plain<'a>(level: &'a LocationTree, uri: &[u8]) -> Option<(&'a Arc<Location>, bool)> {
    let mut longest: Option<(&Arc<Location>, usize, bool)> = None;
    for location in level.iter() {
        match &location.matcher {
            Matcher::Exact(name) if **name == *uri => return Some((location, true)),
            Matcher::Prefix { prefix, no_regex }
                if uri.starts_with(prefix) && longest.is_none_or(|(_, length, _)| prefix.len() > length) =>
            {
                longest = Some((location, prefix.len(), *no_regex));
            }
            _ => {}
        }
    }
    if let Some((location, _, no_regex)) = longest {
        let inner = plain(&location.nested, uri);
        if let Some((inner, true)) = inner {
            return Some((inner, true));
        }
        let found = inner.map_or(location, |(inner, _)| inner);
        if no_regex {
            return Some((found, false));
        }
        return Some(by_regex(level, uri).map_or((found, false), |location| (location, true)));
    }
    by_regex(level, uri).map(|location| (location, true))
}

fn by_regex<'a>(level: &'a LocationTree, uri: &[u8]) -> Option<&'a Arc<Location>> {
    let mut regexes: Vec<&Arc<Location>> =
        level.iter().filter(|location| matches!(location.matcher, Matcher::Regex(_))).collect();
    // `iter` keeps regular expressions in the order of the configuration.
    regexes.retain(|location| matches!(&location.matcher, Matcher::Regex(regex) if regex.find(uri, &mut Captures::new()) == Ok(true)));
    let location = *regexes.first()?;
    Some(plain(&location.nested, uri).map_or(location, |(inner, _)| inner))
}

/// Random levels of locations over a small alphabet, so that names meet.
fn level(prefix: String, depth: u32) -> BoxedStrategy<String> {
    let one = ("[ab/]{0,3}", 0u8..8).prop_flat_map(move |(tail, kind)| {
        let name = format!("{prefix}{tail}");
        let modifier = match kind {
            0 => "= ",
            1 => "^~ ",
            2 => "~ ",
            _ => "",
        };
        let inner = if depth == 0 || kind == 0 { Just(String::new()).boxed() } else { level(name.clone(), depth - 1) };
        inner.prop_map(move |inner| format!("location {modifier}\"{name}\" {{ {inner} }}\n"))
    });
    proptest::collection::vec(one, 0..5).prop_map(|all| all.concat()).boxed()
}

/// The first location of each name: NGINX refuses duplicates.
fn loaded(text: &str) -> Option<Config> {
    let mut files = crate::Bundle::default();
    files.add_file("/n.conf", format!("events {{ }} http {{ server {{ listen 8080; {text} }} }}"));
    crate::load(&files, &crate::Options::new("/", "/n.conf")).0
}

proptest! {
    #![proptest_config(ProptestConfig { max_global_rejects: 100_000, ..ProptestConfig::default() })]
    #[test]
    fn locations_are_found_as_said(
        text in level("/".into(), 2),
        uris in proptest::collection::vec("/[ab/]{0,6}", 1..20),
    ) {
        let Some(config) = loaded(&text) else { return Err(TestCaseError::reject("duplicates")) };
        let locations = &config.http.listens[0].groups[0].default_server.locations;
        for uri in uris {
            let found = locations.find(uri.as_bytes(), &mut Captures::new()).unwrap();
            let wanted = plain(locations, uri.as_bytes()).map(|(location, _)| location);
            prop_assert_eq!(
                found.map(Arc::as_ptr), wanted.map(Arc::as_ptr),
                "{} in {}: {:?}, not {:?}", uri, text, found.map(|l| &l.name), wanted.map(|l| &l.name)
            );
        }
    }

    #[test]
    fn wildcards_are_found_as_said(
        names in proptest::collection::vec("(\\*\\.)?[ab](\\.[ab]){0,2}(\\.\\*)?", 0..8),
        host in "[ab](\\.[ab]){0,4}",
    ) {
        let mut wildcards = Wildcards::default();
        for name in &names {
            wildcards.insert(&classify(name.as_bytes()), name.clone());
        }
        let leading = names.iter().filter(|name| !name.ends_with('*') && name.strip_prefix('*').is_some_and(|s| host.ends_with(s)));
        let trailing = names.iter().filter(|name| !name.starts_with('*') && name.strip_suffix('*').is_some_and(|p| host.starts_with(p)));
        let wanted = leading.max_by_key(|name| name.len()).or_else(|| trailing.max_by_key(|name| name.len()));
        prop_assert_eq!(wildcards.find(host.as_bytes()), wanted);
    }
}

#[test]
fn locations() {
    let config = config(
        "events { } http { server { listen 8080;
            location = / { } location / { } location /documents/ { } location ^~ /images/ { }
            location ~* \\.(gif|jpg)$ { } location /a { location /a/b { } location ~ z$ { } }
            location ~ ^/n/(?<id>\\d+) { location /n { } location ~ x$ { } }
            location @fallback { } location /p/ { proxy_pass http://127.0.0.1; } } }"
            .replace("location /n { }", "")
            .as_str(),
    );
    let locations = &config.http.listens[0].groups[0].default_server.locations;
    let table = [
        ("/", "/"),
        ("/index.html", "/"),
        ("/documents/x.html", "/documents/"),
        ("/images/1.gif", "/images/"),
        ("/documents/1.JPG", "\\.(gif|jpg)$"),
        ("/a/b/c", "/a/b"),
        ("/a/b.gif", "\\.(gif|jpg)$"),
        ("/a/bz", "z$"),
        ("/ax", "/a"),
        ("/n/12", "^/n/(?<id>\\d+)"),
        ("/n/12x", "x$"),
        ("/p", "/p/"),
        ("/p/x", "/p/"),
        ("/px", "/"),
    ];
    for (uri, name) in table {
        let found = locations.find(uri.as_bytes(), &mut Captures::new()).unwrap().unwrap();
        assert_eq!(found.name, name, "{uri}");
        assert_eq!(found.redirects(uri.as_bytes()), uri == "/p", "{uri}");
    }
    assert!(matches!(locations.find(b"/", &mut Captures::new()).unwrap().unwrap().matcher, Matcher::Exact(_)));
    assert_eq!(locations.named(b"fallback").unwrap().name, "@fallback");
    assert_eq!(locations.named(b"@fallback").unwrap().name, "@fallback");
    assert!(locations.find(b"*", &mut Captures::new()).unwrap().is_none());
    let mut captures = Captures::new();
    let (_, regex) = locations.find_regex(b"/n/12", &mut captures).unwrap().unwrap();
    assert_eq!(captures.group(1), Some(&b"12"[..]));
    assert_eq!(regex.unwrap().named(), [(1, 0)]);
}

#[test]
fn server_names() {
    let config = config(
        "events { } http {
            server { listen 8080; server_name first; }
            server { listen 8080; server_name exact.org .example.org; }
            server { listen 8080; server_name *.a.example.org; }
            server { listen 8080; server_name mail.*; }
            server { listen 8080; server_name ~^(?<sub>\\w+)\\.net$; }
            server { listen 8080 default_server; server_name last; }
            server { listen 8080; }
        }",
    );
    let group = &config.http.listens[0].groups[0];
    assert_eq!(group.default_server.name, "last");
    let table = [
        ("first", Some("first")),
        ("exact.org", Some("exact.org")),
        ("example.org", Some("exact.org")),
        ("www.example.org", Some("exact.org")),
        ("x.a.example.org", Some("*.a.example.org")),
        ("a.example.org", Some("exact.org")),
        ("mail.example.org", Some("exact.org")),
        ("mail.com", Some("mail.*")),
        ("mail.co.uk", Some("mail.*")),
        ("sub.net", Some("~^(?<sub>\\w+)\\.net$")),
        ("", Some("")),
        ("nobody", None),
    ];
    for (host, name) in table {
        let found = group.names.find(host.as_bytes(), &mut Captures::new()).unwrap();
        assert_eq!(found.map(|(server, _)| server.name.as_str()), name, "{host}");
    }
}

#[test]
fn names_are_classified() {
    let table = [
        ("a.b", NameKind::Exact(b"a.b")),
        (".a.b", NameKind::Dot(b"a.b")),
        ("*.a.b", NameKind::Leading(b"a.b")),
        ("a.b.*", NameKind::Trailing(b"a.b")),
        ("", NameKind::Exact(b"")),
        ("a*b", NameKind::Invalid),
        ("*a.b", NameKind::Invalid),
        ("*.a.*", NameKind::Invalid),
        ("a..b", NameKind::Invalid),
        ("*.", NameKind::Invalid),
    ];
    for (name, kind) in table {
        assert_eq!(classify(name.as_bytes()), kind, "{name}");
    }
}

#[test]
fn captures_are_of_the_last_match() {
    let regex = Regex::new("^(a)(b)?(c)", false).unwrap();
    let mut captures = Captures::new();
    assert_eq!(regex.find(b"acd", &mut captures), Ok(true));
    assert_eq!((captures.group(0), captures.group(1)), (Some(&b"ac"[..]), Some(&b"a"[..])));
    assert_eq!((captures.group(2), captures.group(3)), (None, Some(&b"c"[..])));
    assert_eq!(regex.find(b"x", &mut captures), Ok(false));
    assert_eq!(captures.group(3), Some(&b"c"[..]), "no match leaves the groups as they are");
    assert_eq!((captures.len(), captures.group(9)), (4, None));
    captures.clear();
    assert!(captures.is_empty());
    assert_eq!(Regex::new("(", false).unwrap_err(), ("missing closing parenthesis".to_string(), 1));
}

/// A path that needs more than PCRE2's usual stack is decided all the same, by a larger one or without it.
#[test]
fn long_subjects_are_decided() {
    for (pattern, unit, end) in [("^/(\\w+/)*private$", "ab/", "private"), ("^/(?:a|b|[^/])*\\.php$", "ab", ".php")] {
        let regex = Regex::new(pattern, false).unwrap();
        for length in [500, 3_000, 20_000, 60_000] {
            let mut subject = format!("/{}", unit.repeat(length / unit.len()));
            let mut captures = Captures::new();
            assert_eq!(regex.find(subject.as_bytes(), &mut captures), Ok(false), "{pattern} {length}");
            subject += end;
            assert_eq!(regex.find(subject.as_bytes(), &mut captures), Ok(true), "{pattern} {length}");
            assert_eq!(captures.group(0), Some(subject.as_bytes()));
        }
    }
}

#[test]
fn what_cannot_be_decided_is_an_error() {
    let regex = Regex::new("^(?:a+)+$", false).unwrap();
    let error = regex.find(format!("{}b", "a".repeat(64)).as_bytes(), &mut Captures::new()).unwrap_err();
    let text = error.to_string();
    assert!(text.starts_with("pcre2_match() failed: -47 (match limit exceeded) on \"aaaa"), "{text}");
    assert!(text.ends_with("ab\" using \"^(?:a+)+$\""), "{text}");

    let regex = Regex::new("(*UTF8)/admin", false).unwrap();
    assert_eq!(regex.find("/caf\u{e9}/admin".as_bytes(), &mut Captures::new()), Ok(true));
    let error = regex.find(b"/\xff/admin", &mut Captures::new()).unwrap_err();
    assert!(error.to_string().ends_with(" on \"/\\xFF/admin\" using \"(*UTF8)/admin\""), "{error}");

    let long = regex.find(&[0xff; 1000], &mut Captures::new()).unwrap_err();
    assert!(long.to_string().len() < 1200, "{long}");
}
