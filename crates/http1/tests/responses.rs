//! What responses are accepted, and as what; what is refused.

use balanza_http1::{Body, Header, Method, Parsed, ResponseError, ResponseHead, Version};

const MAX: usize = 4096;

fn parse_for(method: Method, buf: impl AsRef<[u8]>) -> Result<ResponseHead, ResponseError> {
    let mut head = ResponseHead::default();
    match head.parse(buf.as_ref(), method, MAX)? {
        Parsed::Complete(len) => assert_eq!(len, buf.as_ref().len()),
        Parsed::Incomplete => panic!("incomplete: {}", buf.as_ref().escape_ascii()),
    }
    Ok(head)
}

fn parse(buf: impl AsRef<[u8]>) -> Result<ResponseHead, ResponseError> {
    parse_for(Method::Get, buf)
}

#[test]
fn a_response() {
    let buf = b"HTTP/1.1 404 Not Found\r\nServer: x\r\nContent-Length: 9\r\nX_Own: 1\r\n\r\n";
    let head = parse(buf).unwrap();
    assert_eq!((head.status, head.reason.of(buf), head.version), (404, &b"Not Found"[..], Version::Http11));
    assert_eq!((head.body, head.content_length, head.keep_alive), (Body::Length(9), Some(9), true));
    assert_eq!(head.find(Header::Server).unwrap().value.of(buf), b"x");
    assert_eq!(head.fields.len(), 3);
}

#[test]
fn status_lines() {
    for (line, status, reason, version) in [
        (&b"HTTP/1.1 200 OK"[..], 200, &b"OK"[..], Version::Http11),
        (b"HTTP/1.0 200 OK", 200, b"OK", Version::Http10),
        (b"HTTP/1.1 200", 200, b"", Version::Http11),
        (b"HTTP/1.1 200 ", 200, b"", Version::Http11),
        (b"HTTP/1.1 599 a b", 599, b"a b", Version::Http11),
        (b"HTTP/1.1 404 Introuvabl\xe9", 404, b"Introuvabl\xe9", Version::Http11),
        (b"HTTP/1.7 200 OK", 200, b"OK", Version::Http11),
    ] {
        for fields in [&b""[..], b"A: b\r\n"] {
            let buf = [line, b"\r\n", fields, b"\r\n"].concat();
            let head = parse(&buf).unwrap();
            assert_eq!((head.status, head.reason.of(&buf), head.version), (status, reason, version));
        }
    }
    for line in [
        "HTTP/2.0 200 OK",
        "HTTP/0.9 200 OK",
        "HTTP/1 200 OK",
        "HTTP/1.1 20 OK",
        "HTTP/1.1 2000 OK",
        "HTTP/1.1  200 OK",
        "HTTP/1.1 200OK",
        "HTTP/1.1 099 OK",
        "HTTP/1.1 000 OK",
        "HTTP/1.1 600 OK",
        "HTTP/1.1 999 OK",
        "HTTP/1.1 2x0 OK",
        "HTTP/1.1 -20 OK",
        "http/1.1 200 OK",
        "ICY 200 OK",
        "HTTP/1.1",
        "HTTP/1.1 ",
        "HTTP/1.1 200 O\0K",
        "HTTP/1.1 200 O\rK",
        "HTTP/1.1\t200 OK",
        " HTTP/1.1 200 OK",
        "<html>",
        "HTTP/1.1 200\tOK",
        "\r\nHTTP/1.1 200 OK",
        "\nHTTP/1.1 200 OK",
    ] {
        assert!(parse(format!("{line}\r\nA: b\r\n\r\n")).is_err(), "{line:?}");
    }
}

#[test]
fn bodies() {
    let chunked = "Transfer-Encoding: chunked\r\n";
    let five = "Content-Length: 5\r\n";
    for (method, start, fields, body, length, keep_alive) in [
        (Method::Get, "HTTP/1.1 200 OK", five, Body::Length(5), Some(5), true),
        (Method::Get, "HTTP/1.1 200 OK", chunked, Body::Chunked, None, true),
        (Method::Get, "HTTP/1.1 200 OK", "", Body::UntilClose, None, false),
        (Method::Get, "HTTP/1.0 200 OK", five, Body::Length(5), Some(5), false),
        (
            Method::Get,
            "HTTP/1.0 200 OK",
            "Content-Length: 5\r\nConnection: keep-alive\r\n",
            Body::Length(5),
            Some(5),
            true,
        ),
        (Method::Get, "HTTP/1.0 200 OK", "Connection: keep-alive\r\n", Body::UntilClose, None, false),
        (Method::Get, "HTTP/1.1 200 OK", "Content-Length: 5\r\nConnection: close\r\n", Body::Length(5), Some(5), false),
        (Method::Head, "HTTP/1.1 200 OK", five, Body::None, Some(5), true),
        (Method::Head, "HTTP/1.1 200 OK", chunked, Body::None, None, true),
        (Method::Head, "HTTP/1.1 200 OK", "", Body::None, None, true),
        (Method::Get, "HTTP/1.1 304 Not Modified", five, Body::None, Some(5), true),
        (Method::Get, "HTTP/1.1 204 No Content", "", Body::None, None, true),
        (Method::Get, "HTTP/1.1 204 No Content", five, Body::None, Some(5), true),
        (Method::Get, "HTTP/1.1 204 No Content", chunked, Body::None, None, true),
        (Method::Get, "HTTP/1.1 100 Continue", "", Body::None, None, true),
        (Method::Get, "HTTP/1.1 103 Early Hints", "Link: <a>\r\n", Body::None, None, true),
        (Method::Get, "HTTP/1.1 205 Reset Content", "", Body::UntilClose, None, false),
        (Method::Post, "HTTP/1.1 500 No", "Content-Length: 0\r\n", Body::Length(0), Some(0), true),
    ] {
        let head = parse_for(method, format!("{start}\r\n{fields}\r\n")).unwrap();
        assert_eq!((head.body, head.content_length, head.keep_alive), (body, length, keep_alive), "{start} {fields:?}");
        assert_eq!(head.is_interim(), head.status < 200);
    }
}

#[test]
fn upgrades() {
    for (start, fields, upgrade) in [
        ("HTTP/1.1 101 S", "Upgrade: websocket\r\nConnection: Upgrade\r\n", Some("websocket")),
        ("HTTP/1.1 101 S", "Upgrade: websocket\r\n", None),
        ("HTTP/1.1 101 S", "", None),
        ("HTTP/1.0 101 S", "Upgrade: websocket\r\nConnection: Upgrade\r\n", None),
    ] {
        let buf = format!("{start}\r\n{fields}\r\n");
        let head = parse(&buf).unwrap();
        assert_eq!(head.upgrade.map(|u| u.of(buf.as_bytes())), upgrade.map(str::as_bytes));
        assert!(!head.is_interim());
    }
}

#[test]
fn what_is_refused() {
    for fields in [
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        "Content-Length: 5\r\nContent-Length: 5\r\n",
        "Content-Length: 5\r\nContent-Length: 6\r\n",
        "Content-Length: 5, 5\r\n",
        "Content-Length: -1\r\n",
        "Content-Length:\r\n",
        "Content-Length: 18446744073709551617\r\n",
        "Transfer-Encoding: gzip, chunked\r\n",
        "Transfer-Encoding: identity\r\n",
        "Transfer-Encoding: chunked, identity\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding : chunked\r\n",
        "Transfer-Encoding:\r\n chunked\r\n",
        "A : b\r\n",
        "A: b\r\n c\r\n",
        " A: b\r\n",
        "A\r\n",
        ": b\r\n",
        "A: b\0\r\n",
        "A: b\rc\r\n",
        "A@: b\r\n",
        "A\u{e9}: b\r\n",
        "Upgrade: a\r\nUpgrade: b\r\n",
        "HTTP/1.1 200 OK\r\n",
        "A: b\nC: d\r\n",
    ] {
        // For every kind of answer: the head must be sound even where it delimits nothing.
        for start in
            ["HTTP/1.1 200 OK", "HTTP/1.1 304 Not Modified", "HTTP/1.1 204 No Content", "HTTP/1.1 100 Continue"]
        {
            assert!(parse(format!("{start}\r\n{fields}\r\n")).is_err(), "{start} {fields:?}");
        }
        assert!(parse_for(Method::Head, format!("HTTP/1.1 200 OK\r\n{fields}\r\n")).is_err(), "{fields:?}");
    }
    assert!(parse("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").is_err());
    for mixed in ["HTTP/1.1 200 OK\nA: b\r\n\r\n", "HTTP/1.1 200 OK\r\nA: b\n\r\n", "HTTP/1.1 200 OK\r\nA: b\r\n\n"] {
        assert!(parse(mixed).is_err(), "{mixed:?}");
    }
    parse("HTTP/1.1 200 OK\nA: b\n\n").unwrap();
}

#[test]
fn sizes() {
    let of = |n: usize| format!("HTTP/1.1 200 OK\r\nA: {}\r\n\r\n", "b".repeat(n - 24));
    parse(of(MAX)).unwrap();
    assert_eq!(parse(of(MAX + 1)).unwrap_err().reason, "too big header");
    let mut head = ResponseHead::default();
    let begun = of(MAX + 9);
    assert_eq!(head.parse(&begun.as_bytes()[..MAX], Method::Get, MAX), Ok(Parsed::Incomplete));
    assert!(head.parse(&begun.as_bytes()[..MAX + 1], Method::Get, MAX).is_err());
    let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "A: b\r\n".repeat(200));
    assert_eq!(parse(many).unwrap().fields.len(), 200);
}

#[test]
fn the_body_stays_in_the_buffer() {
    let buf = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    let mut head = ResponseHead::default();
    let Ok(Parsed::Complete(first)) = head.parse(buf, Method::Post, MAX) else { panic!() };
    assert!(head.is_interim());
    let Ok(Parsed::Complete(second)) = head.parse(&buf[first..], Method::Post, MAX) else { panic!() };
    assert!(!head.is_interim());
    assert_eq!(&buf[first + second..], b"ok");
}
