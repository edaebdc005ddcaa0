//! CONNECT: the authority form of the target.

use balanza_http1::{Body, Limits, Method, Parsed, RequestError, RequestHead};

fn parse(buf: impl AsRef<[u8]>) -> Result<RequestHead, RequestError> {
    let mut head = RequestHead::default();
    match head.parse(buf.as_ref(), &Limits::default())? {
        Parsed::Complete(len) => assert_eq!(len, buf.as_ref().len()),
        Parsed::Incomplete => panic!("incomplete: {}", buf.as_ref().escape_ascii()),
    }
    Ok(head)
}

fn status(buf: String) -> u16 {
    match parse(&buf) {
        Ok(head) => panic!("accepted: {buf:?} as {head:?}"),
        Err(error) => error.status,
    }
}

#[test]
fn connect_has_an_authority_and_nothing_else() {
    for (target, host, port) in [
        ("example.com:443", "example.com", 443),
        ("Example.com.:1", "Example.com", 1),
        ("a_b-c:65535", "a_b-c", 65535),
        ("127.0.0.1:8080", "127.0.0.1", 8080),
        ("[::1]:443", "[::1]", 443),
    ] {
        let bytes = format!("CONNECT {target} HTTP/1.1\r\nHost: other:1\r\n\r\n");
        let head = parse(bytes.clone()).unwrap();
        let of = |span: balanza_http1::Span| std::str::from_utf8(span.of(bytes.as_bytes())).unwrap();
        assert_eq!((head.method, head.host.map(of), head.port), (Method::Connect, Some(host), Some(port)), "{target}");
        assert_eq!((of(head.path), head.plain_path, head.query), ("/", true, None));
        assert_eq!((of(head.origin), head.empty_path, head.body), ("", true, Body::None));
    }
    for target in [
        "example.com",
        "example.com:",
        "example.com:0",
        "example.com:00",
        "example.com:65536",
        "example.com:4 43",
        "example.com:443/",
        "example.com:443?a",
        "example.com:443#a",
        "example.com:+443",
        "example.com:443:443",
        ":443",
        ".:443",
        "443",
        "*",
        "/",
        "/a:443",
        "http://example.com:443",
        "//example.com:443",
        "user@example.com:443",
        "a%20b:443",
        "a,b:443",
        "a..b:443",
        "::1:443",
        "[::1]",
        "[::1]443",
        "[::1:443",
        "[1.2.3.4]:443",
        "[fe80::1%25eth0]:443",
    ] {
        assert_eq!(status(format!("CONNECT {target} HTTP/1.1\r\nHost: a\r\n\r\n")), 400, "{target}");
    }
    let connect = |fields: &str| parse(format!("CONNECT a:1 HTTP/1.1\r\nHost: a\r\n{fields}\r\n")).map(|_| ());
    assert_eq!(connect("Content-Length: 0\r\n"), Ok(()));
    for fields in [
        "Content-Length: 1\r\n",
        "Transfer-Encoding: chunked\r\n",
        "Content-Length: 0\r\nTransfer-Encoding: chunked\r\n",
    ] {
        assert_eq!(connect(fields).map_err(|error| error.status), Err(400), "{fields}");
    }
    assert_eq!(status("CONNECT a:1 HTTP/1.1\r\n\r\n".to_owned()), 400);
}
