//! What requests are accepted, and as what; what is refused, and why.

use balanza_http1::{Body, Header, Limits, Method, Parsed, RequestError, RequestHead, Version};

fn parse(buf: impl AsRef<[u8]>) -> Result<RequestHead, RequestError> {
    parse_with(buf, &Limits::default())
}

fn parse_with(buf: impl AsRef<[u8]>, limits: &Limits) -> Result<RequestHead, RequestError> {
    let mut head = RequestHead::default();
    match head.parse(buf.as_ref(), limits)? {
        Parsed::Complete(len) => assert_eq!(len, buf.as_ref().len()),
        Parsed::Incomplete => panic!("incomplete: {}", buf.as_ref().escape_ascii()),
    }
    Ok(head)
}

/// A GET with these fields, given with their line ends.
fn with_fields(fields: &str) -> String {
    format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n")
}

fn status(buf: impl AsRef<[u8]>) -> u16 {
    let buf = buf.as_ref();
    match parse(buf) {
        Ok(head) => panic!("accepted: {} as {head:?}", buf.escape_ascii()),
        Err(error) => error.status,
    }
}

#[test]
fn a_browser_request() {
    let buf = b"GET /img/a.png?v=2&w=%20 HTTP/1.1\r\nHost: Shop.example:8080\r\nUser-Agent:  Mozilla/5.0 (X11)\t\r\n\
        Accept:*/*\r\nX-Custom: \r\nConnection: keep-alive\r\n\r\n";
    let head = parse(buf).unwrap();
    assert_eq!((head.method, head.version), (Method::Get, Version::Http11));
    assert_eq!(head.line.of(buf), b"GET /img/a.png?v=2&w=%20 HTTP/1.1");
    assert_eq!(head.method_name.of(buf), b"GET");
    assert_eq!(head.target.of(buf), b"/img/a.png?v=2&w=%20");
    assert_eq!(head.origin, head.target);
    assert_eq!(head.path.of(buf), b"/img/a.png");
    assert_eq!(head.query.unwrap().of(buf), b"v=2&w=%20");
    assert!(head.plain_path && !head.escaped_path);
    assert_eq!((head.host.unwrap().of(buf), head.port, head.host_capitals), (&b"Shop.example"[..], Some(8080), true));
    assert_eq!(head.find(Header::UserAgent).unwrap().value.of(buf), b"Mozilla/5.0 (X11)");
    assert_eq!(head.find(Header::Accept).unwrap().value.of(buf), b"*/*");
    assert!(head.find(Header::Cookie).is_none());
    let custom = head.fields[3];
    assert_eq!((custom.header, custom.name.of(buf), custom.value.of(buf)), (Header::Other, &b"X-Custom"[..], &b""[..]));
    let has = [Header::Host, Header::UserAgent, Header::Accept, Header::Other, Header::Connection];
    assert_eq!(head.has, has.iter().fold(0, |set, h| set | h.bit()));
    assert_eq!((head.body, head.keep_alive, head.expect_continue), (Body::None, true, false));
    assert!(head.connection_names.is_empty() && head.upgrade.is_none() && head.authority.is_none());
}

#[test]
fn one_struct_serves_many_requests() {
    let mut head = RequestHead::default();
    let first = b"POST http://x/a?b HTTP/1.1\r\nHost: y\r\nContent-Length: 3\r\nConnection: close, x-a, upgrade\r\n\
        Upgrade: websocket\r\nExpect: 100-continue\r\n\r\n";
    head.parse(first, &Limits::default()).unwrap();
    let second = b"GET / HTTP/1.0\r\n\r\n";
    head.parse(second, &Limits::default()).unwrap();
    let fresh = parse(second).unwrap();
    assert_eq!(format!("{head:?}"), format!("{fresh:?}"));
}

#[test]
fn bodies() {
    for (fields, body) in [
        ("", Body::None),
        ("Content-Length: 0\r\n", Body::Length(0)),
        ("content-length:42\r\n", Body::Length(42)),
        ("Content-Length: 0042\r\n", Body::Length(42)),
        ("Content-Length: 9223372036854775807\r\n", Body::Length(i64::MAX as u64)),
        ("Transfer-Encoding: chunked\r\n", Body::Chunked),
        ("TRANSFER-ENCODING:\tCHUNKED \r\n", Body::Chunked),
    ] {
        assert_eq!(parse(with_fields(fields)).unwrap().body, body, "{fields:?}");
    }
}

#[test]
fn ambiguous_framing_is_refused() {
    for fields in [
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 0\r\n",
        "Content-Length: 5\r\nContent-Length: 6\r\n",
        "Content-Length: 5\r\nContent-Length: 5\r\n",
        "Content-Length: 5, 5\r\n",
        "Content-Length: 5,6\r\n",
        "Content-Length: \r\n",
        "Content-Length: +5\r\n",
        "Content-Length: -5\r\n",
        "Content-Length: 0x5\r\n",
        "Content-Length: 5 5\r\n",
        "Content-Length: 5;\r\n",
        "Content-Length: 5.0\r\n",
        "Content-Length: 1e1\r\n",
        "Content-Length: \"5\"\r\n",
        "Content-Length: ٣\r\n",
        "Content-Length: 9223372036854775808\r\n",
        "Content-Length: 18446744073709551616\r\n",
        "Content-Length: 184467440737095516160000000000000005\r\n",
        "Transfer-Encoding: identity\r\n",
        "Transfer-Encoding: gzip\r\n",
        "Transfer-Encoding: gzip, chunked\r\n",
        "Transfer-Encoding: chunked, gzip\r\n",
        "Transfer-Encoding: chunked, chunked\r\n",
        "Transfer-Encoding: chunked,\r\n",
        "Transfer-Encoding: ,chunked\r\n",
        "Transfer-Encoding: chunked;q=1\r\n",
        "Transfer-Encoding: \"chunked\"\r\n",
        "Transfer-Encoding: xchunked\r\n",
        "Transfer-Encoding: chunkedx\r\n",
        "Transfer-Encoding: chun ked\r\n",
        "Transfer-Encoding: \x0bchunked\r\n",
        "Transfer-Encoding: chunked\x0c\r\n",
        "Transfer-Encoding: \u{a0}chunked\r\n",
        "Transfer-Encoding:\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
        "Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding : chunked\r\n",
        "Transfer-Encoding\t: chunked\r\n",
        " Transfer-Encoding: chunked\r\n",
        "X: a\r\n Transfer-Encoding: chunked\r\n",
        "Transfer-Encoding:\r\n chunked\r\n",
        "Transfer-Encoding\r\n: chunked\r\n",
        "Transfer-Encoding@: chunked\r\n",
        "\u{a0}Content-Length: 5\r\n",
        "Content-Length.: 5\r\n",
        "Content-Length\x00: 5\r\n",
        "Content-Length\x0b: 5\r\n",
    ] {
        assert_eq!(status(with_fields(fields)), 400, "{fields:?}");
    }
    assert_eq!(status("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"), 400);
}

#[test]
fn malformed_lines_are_refused() {
    for fields in [
        "X : a\r\n",
        "X\t: a\r\n",
        " X: a\r\n",
        "\tX: a\r\n",
        "X: a\r\n b\r\n",
        "X: a\r\n\tb\r\n",
        "X: a\r\n \r\n",
        ": a\r\n",
        "X\r\n",
        "X a\r\n",
        "X: a\0b\r\n",
        "X: a\x01\r\n",
        "X: a\x7f\r\n",
        "X: a\rb\r\n",
        "X: a\r\r\n",
        "X: \r a\r\n",
        "X\r: a\r\n",
        "X\0: a\r\n",
        "X\x1f: a\r\n",
        "X Y: a\r\n",
        "\r: a\r\n",
        "X: a\x0b\r\n",
        "X: a\u{1b}[0m\r\n",
    ] {
        assert_eq!(status(with_fields(fields)), 400, "{fields:?}");
    }
}

#[test]
fn line_ends_may_differ_where_nothing_depends_on_them() {
    parse("GET / HTTP/1.1\nHost: a\n\n").unwrap();
    parse("GET / HTTP/1.0\n\n").unwrap();
    parse("GET / HTTP/1.0\r\n\r\n").unwrap();
    for mixed in [
        "GET / HTTP/1.1\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX: b\nY: c\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\nX: b\r\n\r\n",
    ] {
        parse(mixed).unwrap();
    }
    // The end, or a body, is there for one of two recipients only.
    for mixed in [
        "GET / HTTP/1.1\r\nHost: a\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\n\n",
        "GET / HTTP/1.1\nHost: a\nX: b\r\n\n",
        "POST / HTTP/1.1\r\nHost: a\nContent-Length: 5\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nX: b\nTransfer-Encoding: chunked\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nX: b\nY: c\r\n\r\n",
        "GET / HTTP/1.0\r\n\n",
        "GET / HTTP/1.0\n\r\n",
    ] {
        assert_eq!(status(mixed), 400, "{mixed:?}");
    }
}

#[test]
fn empty_lines_before_a_request() {
    parse("\r\nGET / HTTP/1.0\r\n\r\n").unwrap();
    parse("\n\r\nGET / HTTP/1.0\r\n\r\n").unwrap();
    let many = format!("{}GET / HTTP/1.0\r\n\r\n", "\r\n".repeat(5));
    assert_eq!(status(many), 400);
    assert_eq!(status("\rGET / HTTP/1.0\r\n\r\n"), 400);
    let mut head = RequestHead::default();
    for begun in ["", "\r", "\r\n", "\r\n\r"] {
        assert_eq!(head.parse(begun.as_bytes(), &Limits::default()), Ok(Parsed::Incomplete));
    }
}

#[test]
fn request_lines_that_are_refused() {
    for (line, expected) in [
        ("GET /", 400),
        ("GET", 400),
        ("GET ", 400),
        ("GET  / HTTP/1.1", 400),
        ("GET /  HTTP/1.1", 400),
        ("GET / HTTP/1.1 ", 400),
        (" GET / HTTP/1.1", 400),
        ("GET\t/ HTTP/1.1", 400),
        ("GET /\tHTTP/1.1", 400),
        ("GET / a HTTP/1.1", 400),
        ("get / HTTP/1.1", 400),
        ("G(T / HTTP/1.1", 400),
        ("GET1 / HTTP/1.1", 400),
        ("/ HTTP/1.1", 400),
        ("GET / http/1.1", 400),
        ("GET / HTTP/1", 400),
        ("GET / HTTP/1.", 400),
        ("GET / HTTP/11", 400),
        ("GET / HTTP/1.10", 400),
        ("GET / HTTP/01.1", 400),
        ("GET / HTTP/ 1.1", 400),
        ("GET / HTTP/0.9", 400),
        ("GET / XTTP/1.1", 400),
        ("GET / HTTP/2.0", 505),
        ("GET / HTTP/3.0", 505),
        ("GET / HTTP/9.9", 505),
        ("PRI * HTTP/2.0", 505),
        ("CONNECT / HTTP/1.1", 400),
        ("GET * HTTP/1.1", 400),
        ("OPTIONS ** HTTP/1.1", 400),
        ("GET a HTTP/1.1", 400),
        ("GET example.com/ HTTP/1.1", 400),
        ("GET ?a HTTP/1.1", 400),
        ("GET #a HTTP/1.1", 400),
        ("GET \\ HTTP/1.1", 400),
        ("GET //", 400),
        ("GET /\x01 HTTP/1.1", 400),
        ("GET /\x7f HTTP/1.1", 400),
        ("GET /\0 HTTP/1.1", 400),
        ("GET /\r HTTP/1.1", 400),
        ("GET http:/a HTTP/1.1", 400),
        ("GET http:// HTTP/1.1", 400),
        ("GET http:///a HTTP/1.1", 400),
        ("GET http://u@h/a HTTP/1.1", 400),
        ("GET http://h:x/a HTTP/1.1", 400),
        ("GET http://h#f HTTP/1.1", 400),
        ("GET ftp://h/a HTTP/1.1", 400),
        ("GET ://h/a HTTP/1.1", 400),
        ("GET javascript:alert(1) HTTP/1.1", 400),
    ] {
        assert_eq!(status(format!("{line}\r\nHost: a\r\n\r\n")), expected, "{line:?}");
    }
}

#[test]
fn methods_and_versions_that_are_accepted() {
    for (line, method, version) in [
        ("HEAD / HTTP/1.0", Method::Head, Version::Http10),
        ("POST / HTTP/1.1", Method::Post, Version::Http11),
        ("PUT / HTTP/1.1", Method::Put, Version::Http11),
        ("DELETE / HTTP/1.1", Method::Delete, Version::Http11),
        ("PATCH / HTTP/1.1", Method::Patch, Version::Http11),
        ("LOCK / HTTP/1.1", Method::Lock, Version::Http11),
        ("OPTIONS * HTTP/1.1", Method::Options, Version::Http11),
        ("M-SEARCH / HTTP/1.1", Method::Other, Version::Http11),
        ("A_B / HTTP/1.1", Method::Other, Version::Http11),
        ("GET / HTTP/1.2", Method::Get, Version::Http11),
        ("GET / HTTP/1.9", Method::Get, Version::Http11),
    ] {
        let head = parse(format!("{line}\r\nHost: a\r\n\r\n")).unwrap();
        assert_eq!((head.method, head.version), (method, version), "{line}");
    }
    for (method, idempotent) in [
        (Method::Get, true),
        (Method::Head, true),
        (Method::Put, true),
        (Method::Delete, true),
        (Method::Options, true),
        (Method::Other, true),
        (Method::Post, false),
        (Method::Lock, false),
        (Method::Patch, false),
    ] {
        assert_eq!(method.is_idempotent(), idempotent, "{method:?}");
    }
}

#[test]
fn targets() {
    // Target, path, query, origin, whether the path is plain, whether it has escapes.
    for (target, path, query, origin, plain, escaped) in [
        ("/", "/", None, "/", true, false),
        ("/a/b.c", "/a/b.c", None, "/a/b.c", true, false),
        ("/?", "/", Some(""), "/?", true, false),
        ("/a?b=c?d", "/a", Some("b=c?d"), "/a?b=c?d", true, false),
        ("/a?b#c", "/a", Some("b"), "/a?b#c", true, false),
        ("/a#b?c", "/a", None, "/a#b?c", true, false),
        ("/a?x=//..%2f", "/a", Some("x=//..%2f"), "/a?x=//..%2f", true, false),
        ("/%41", "/%41", None, "/%41", false, true),
        ("/.a", "/.a", None, "/.a", false, false),
        ("/a/../b", "/a/../b", None, "/a/../b", false, false),
        ("//a", "//a", None, "//a", false, false),
        ("/a.b", "/a.b", None, "/a.b", true, false),
        ("/a|\"<>\\^`{}", "/a|\"<>\\^`{}", None, "/a|\"<>\\^`{}", true, false),
        ("http://h", "/", None, "", true, false),
        ("http://h/", "/", None, "/", true, false),
        ("HTTP://h:80/a?b", "/a", Some("b"), "/a?b", true, false),
        ("https://h?b#c", "/", Some("b"), "?b#c", true, false),
        ("http://h//x", "//x", None, "//x", false, false),
    ] {
        let buf = format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n");
        let head = parse(&buf).unwrap();
        let of = |span: balanza_http1::Span| std::str::from_utf8(span.of(buf.as_bytes())).unwrap().to_owned();
        assert_eq!(of(head.target), target);
        assert_eq!((of(head.path).as_str(), head.query.map(of).as_deref()), (path, query), "{target}");
        assert_eq!((of(head.origin).as_str(), head.empty_path), (origin, !origin.starts_with('/')), "{target}");
        assert_eq!((head.plain_path, head.escaped_path), (plain, escaped), "{target}");
        assert_eq!(head.authority.is_some(), !target.starts_with('/'));
    }
    // Bytes that are no UTF-8 are left to the server, as in NGINX.
    let head = parse(b"GET /caf\xe9 HTTP/1.0\r\n\r\n").unwrap();
    assert_eq!(head.path.len(), 5);
}

#[test]
fn the_target_wins_over_host() {
    let buf = b"GET http://Real.example:81/ HTTP/1.1\r\nHost: other.example:82\r\n\r\n";
    let head = parse(buf).unwrap();
    assert_eq!((head.host.unwrap().of(buf), head.port), (&b"Real.example"[..], Some(81)));
    assert_eq!(head.authority.unwrap().of(buf), b"Real.example:81");
    assert_eq!(status("GET http://real.example/ HTTP/1.1\r\nHost: a b\r\n\r\n"), 400);
    assert_eq!(status("GET http://real.example/ HTTP/1.1\r\n\r\n"), 400);
}

#[test]
fn hosts() {
    assert_eq!(status("GET / HTTP/1.1\r\n\r\n"), 400);
    assert!(parse("GET / HTTP/1.0\r\n\r\n").unwrap().host.is_none());
    for host in [
        "a\r\nHost: a",
        "a\r\nhost: b",
        "",
        " ",
        "a b",
        "a,b c",
        "u@a",
        "a/b",
        "a:b",
        "a:99999",
        "[::1",
        "a..b",
        "a\u{e9}",
        "a\\b",
    ] {
        assert_eq!(status(format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n")), 400, "{host:?}");
        assert_eq!(status(format!("GET / HTTP/1.0\r\nHost: {host}\r\n\r\n")), 400, "{host:?}");
    }
    let buf = b"GET / HTTP/1.1\r\nHost: [::1]:8080\r\n\r\n";
    assert_eq!(parse(buf).unwrap().host.unwrap().of(buf), b"[::1]");
}

#[test]
fn fields_that_may_come_once() {
    for name in [
        "If-Modified-Since",
        "If-Unmodified-Since",
        "If-Match",
        "If-None-Match",
        "If-Range",
        "Content-Range",
        "Expect",
        "Authorization",
        "Upgrade",
    ] {
        parse(with_fields(&format!("{name}: a\r\n"))).unwrap();
        assert_eq!(status(with_fields(&format!("{name}: a\r\n{}: a\r\n", name.to_uppercase()))), 400, "{name}");
    }
    for name in ["Cookie", "Accept", "X-Forwarded-For", "User-Agent", "Referer", "X-Own"] {
        assert_eq!(parse(with_fields(&format!("{name}: a\r\n{name}: b\r\n"))).unwrap().fields.len(), 3);
    }
}

#[test]
fn connection_options() {
    for (start, fields, keep_alive) in [
        ("GET / HTTP/1.1", "", true),
        ("GET / HTTP/1.1", "Connection: close\r\n", false),
        ("GET / HTTP/1.1", "Connection: CLOSE\r\n", false),
        ("GET / HTTP/1.1", "Connection: keep-alive\r\n", true),
        ("GET / HTTP/1.1", "Connection: keep-alive, close\r\n", false),
        ("GET / HTTP/1.1", "Connection: close\r\nConnection: keep-alive\r\n", false),
        ("GET / HTTP/1.1", "Connection: not-close\r\n", true),
        ("GET / HTTP/1.0", "", false),
        ("GET / HTTP/1.0", "Connection: Keep-Alive\r\n", true),
        ("GET / HTTP/1.0", "Connection: x , keep-alive\r\n", true),
        ("GET / HTTP/1.0", "Connection: keep-alive\r\nConnection: close\r\n", false),
    ] {
        let head = parse(format!("{start}\r\nHost: a\r\n{fields}\r\n")).unwrap();
        assert_eq!(head.keep_alive, keep_alive, "{start} {fields:?}");
    }
    let buf = with_fields("Connection: close, X-One ,, upgrade\r\nConnection: x-two\r\n");
    let head = parse(&buf).unwrap();
    let names: Vec<&[u8]> = head.connection_names.iter().map(|n| n.of(buf.as_bytes())).collect();
    assert_eq!(names, [&b"X-One"[..], b"upgrade", b"x-two"]);
}

#[test]
fn upgrades_and_expectations() {
    for (start, fields, upgrade, expects) in [
        ("GET / HTTP/1.1", "Connection: Upgrade\r\nUpgrade: websocket\r\n", Some("websocket"), false),
        ("GET / HTTP/1.1", "Upgrade: h2c\r\nConnection: HTTP2-Settings, upgrade\r\n", Some("h2c"), false),
        ("GET / HTTP/1.1", "Upgrade: websocket\r\n", None, false),
        ("GET / HTTP/1.1", "Connection: upgrade\r\n", None, false),
        ("GET / HTTP/1.0", "Connection: Upgrade\r\nUpgrade: websocket\r\n", None, false),
        ("POST / HTTP/1.1", "Expect: 100-Continue\r\nContent-Length: 1\r\n", None, true),
        ("POST / HTTP/1.0", "Expect: 100-continue\r\nContent-Length: 1\r\n", None, false),
        ("POST / HTTP/1.1", "Expect: something\r\nContent-Length: 1\r\n", None, false),
    ] {
        let buf = format!("{start}\r\nHost: a\r\n{fields}\r\n");
        let head = parse(&buf).unwrap();
        assert_eq!(head.upgrade.map(|u| u.of(buf.as_bytes())), upgrade.map(str::as_bytes), "{fields:?}");
        assert_eq!(head.expect_continue, expects, "{fields:?}");
    }
}

#[test]
fn invalid_names() {
    let defaults = Limits::default();
    let underscores = Limits { underscores: true, ..defaults };
    let all = Limits { ignore_invalid: false, ..defaults };
    // Whether a field of this name is kept: by default, with underscores_in_headers, without ignore_invalid_headers.
    for (name, kept) in [
        ("X-1", [Some(true); 3]),
        ("X_1", [Some(false), Some(true), Some(true)]),
        ("_", [Some(false), Some(true), Some(true)]),
        ("X.1", [Some(false), Some(false), Some(true)]),
        ("X!#$%&'*+^`|~", [Some(false), Some(false), Some(true)]),
        ("X@1", [Some(false), Some(false), None]),
        ("X/1", [Some(false), Some(false), None]),
        ("X\u{e9}", [Some(false), Some(false), None]),
        ("Transfer_Encoding", [Some(false), Some(true), Some(true)]),
        ("Content_Length", [Some(false), Some(true), Some(true)]),
        ("X 1", [None; 3]),
        ("Content-Length@", [None; 3]),
        ("Transfer-Encoding.", [None; 3]),
    ] {
        for (limits, kept) in [defaults, underscores, all].iter().zip(kept) {
            let parsed = parse_with(with_fields(&format!("{name}: 1\r\n")), limits);
            match kept {
                Some(kept) => {
                    let head = parsed.unwrap();
                    assert_eq!(head.fields.len() == 2, kept, "{name}");
                    assert_eq!(head.body, Body::None);
                }
                None => assert_eq!(parsed.unwrap_err().status, 400, "{name}"),
            }
        }
    }
}

#[test]
fn limits() {
    let limits = Limits { line: 32, field: 32, head: 100, fields: 3, ..Limits::default() };
    // Exactly at each limit, and one past it.
    let line = |n: usize| format!("GET /{} HTTP/1.0\r\n\r\n", "a".repeat(n - 16));
    parse_with(line(32), &limits).unwrap();
    assert_eq!(parse_with(line(33), &limits).unwrap_err().status, 414);
    let field = |n: usize| format!("GET / HTTP/1.0\r\nX: {}\r\n\r\n", "a".repeat(n - 5));
    parse_with(field(32), &limits).unwrap();
    assert_eq!(parse_with(field(33), &limits).unwrap_err().status, RequestError::TOO_LARGE);
    let head = |n: usize| {
        let x = |n: usize| format!("X: {}\r\n", "a".repeat(n - 5));
        format!("GET / HTTP/1.0\r\n{}{}{}\r\n", x(32), x(32), x(n - 82))
    };
    assert_eq!(parse_with(head(100), &limits).unwrap().fields.len(), 3);
    assert_eq!(parse_with(head(101), &limits).unwrap_err().status, RequestError::TOO_LARGE);
    let many = |n: usize| format!("GET / HTTP/1.0\r\n{}\r\n", "X: a\r\n".repeat(n));
    parse_with(many(3), &limits).unwrap();
    assert_eq!(parse_with(many(4), &limits).unwrap_err().status, RequestError::TOO_LARGE);
    // More than the fast way takes.
    assert_eq!(parse(many(1000)).unwrap().fields.len(), 1000);
    assert_eq!(status(many(1001)), RequestError::TOO_LARGE);
}

#[test]
fn limits_hold_before_the_head_is_complete() {
    let limits = Limits { line: 32, field: 32, head: 100, fields: 9, ..Limits::default() };
    let status = |buf: &str| RequestHead::default().parse(buf.as_bytes(), &limits).map_err(|e| e.status);
    assert_eq!(status(&format!("GET /{}", "a".repeat(27))), Ok(Parsed::Incomplete));
    assert_eq!(status(&format!("GET /{}", "a".repeat(28))), Err(414));
    assert_eq!(status(&format!("GET / HTTP/1.0\r\nX: {}", "a".repeat(29))), Ok(Parsed::Incomplete));
    assert_eq!(status(&format!("GET / HTTP/1.0\r\nX: {}", "a".repeat(30))), Err(494));
    assert_eq!(status(&format!("GET / HTTP/1.0\r\n{}", "X: a\r\n".repeat(14))), Err(494));
    assert_eq!(status(&format!("GET / HTTP/1.0\r\n{}", "X: a\r\n".repeat(9))), Ok(Parsed::Incomplete));
}

#[test]
fn garbage_is_refused_at_once() {
    let mut head = RequestHead::default();
    // A TLS handshake, other protocols, a bare CR, without any line end to wait for.
    for buf in [
        &b"\x16\x03\x01\x02\x00\x01"[..],
        b"\x00",
        b"\xff\xfe",
        b"GET /\x00",
        b"GET / HTTP/1.1\r\nX\x01",
        b"GET / HTTP/1.1\r\nHost: a\rb",
    ] {
        assert_eq!(head.parse(buf, &Limits::default()).unwrap_err().status, 400, "{}", buf.escape_ascii());
    }
}

#[test]
fn pipelined_requests() {
    let both = b"GET /1 HTTP/1.1\r\nHost: a\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\n";
    let mut head = RequestHead::default();
    let Parsed::Complete(first) = head.parse(both, &Limits::default()).unwrap() else { panic!() };
    assert_eq!(head.path.of(both), b"/1");
    let rest = &both[first..];
    assert_eq!(head.parse(rest, &Limits::default()), Ok(Parsed::Complete(rest.len())));
    assert_eq!(head.path.of(rest), b"/2");
}

#[test]
fn reasons_name_the_fault() {
    for (fields, reason) in [
        ("X: a\r\n b\r\n", "folded line"),
        ("X : a\r\n", "white space in a field name"),
        ("X\r\n", "line without a colon"),
        (": a\r\n", "empty field name"),
        ("X: a\rb\r\n", "bare CR"),
        ("X: a\0b\r\n", "NUL byte"),
        ("X: a\x01b\r\n", "control byte"),
        ("Content-Length: 1\nY: b\r\n", "lines end in both CRLF and LF"),
        ("Content-Length@: 5\r\n", "framing field with an invalid name"),
        ("Transfer-Encoding: x\r\n", "unknown Transfer-Encoding"),
        ("Host: b\r\n", "duplicate header line"),
    ] {
        assert_eq!(parse(with_fields(fields)).unwrap_err().to_string(), reason);
    }
}
