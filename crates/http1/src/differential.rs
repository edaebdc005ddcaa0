//! The two tokenisers, word by word and line by line, must read every head alike; and what they and `httparse` accept, all
//! three must read alike.

use proptest::prelude::*;

use crate::{Field, Limits, Method, Parsed, RequestHead, ResponseHead, lines};

type Fields = Vec<(Vec<u8>, Vec<u8>, crate::Header)>;

fn fields(buf: &[u8], fields: &[Field]) -> Fields {
    fields.iter().map(|f| (f.name.of(buf).to_vec(), f.value.of(buf).to_vec(), f.header)).collect()
}

fn request(buf: &[u8], head: &RequestHead) -> impl PartialEq + std::fmt::Debug + use<> {
    (
        (head.method, head.version, head.body, head.keep_alive, head.expect_continue, head.has, head.port),
        (head.line, head.method_name, head.target, head.origin, head.path, head.query, head.authority, head.plain_path),
        (head.host, head.upgrade.map(|u| u.of(buf).to_vec()), head.connection_names.clone(), fields(buf, &head.fields)),
    )
}

fn response(buf: &[u8], head: &ResponseHead) -> impl PartialEq + std::fmt::Debug + use<> {
    (
        (head.status, head.version, head.body, head.content_length, head.keep_alive, head.has, head.reason),
        (head.upgrade.map(|u| u.of(buf).to_vec()), head.connection_names.clone(), fields(buf, &head.fields)),
    )
}

fn check_request(buf: &[u8], limits: &Limits) {
    let mut whole = RequestHead::default();
    let first = whole.parse(buf, limits);
    let mut by_lines = RequestHead::default();
    let second = match lines::skip_empty(buf) {
        Ok(Some(start)) => by_lines.parse_lines(buf, start, limits),
        Ok(None) => Ok(Parsed::Incomplete),
        Err(_) => return assert!(first.is_err()),
    };
    match (first, second) {
        (Ok(first), Ok(second)) => {
            assert_eq!(first, second, "{}", buf.escape_ascii());
            if first != Parsed::Incomplete {
                assert_eq!(request(buf, &whole), request(buf, &by_lines), "{}", buf.escape_ascii());
            }
        }
        // What is wrong with the meaning is only told once the head is complete on one way, at once on the other.
        (Ok(Parsed::Incomplete), Err(_)) | (Err(_), Err(_)) => {}
        (first, second) => panic!("{first:?} but {second:?}: {}", buf.escape_ascii()),
    }
}

fn check_response(buf: &[u8]) {
    let mut whole = ResponseHead::default();
    let first = whole.parse(buf, Method::Get, 4096);
    let mut by_lines = ResponseHead::default();
    let second = by_lines.parse_lines(buf, 4096);
    match (first, second) {
        (Ok(first), Ok(second)) => {
            assert_eq!(first, second, "{}", buf.escape_ascii());
            if first != Parsed::Incomplete {
                by_lines.finish(Method::Get).unwrap();
                assert_eq!(response(buf, &whole), response(buf, &by_lines), "{}", buf.escape_ascii());
            }
        }
        (Ok(Parsed::Incomplete), Err(_)) | (Err(_), Err(_)) => {}
        (Err(_), Ok(Parsed::Complete(_))) => assert!(by_lines.finish(Method::Get).is_err()),
        (first, second) => panic!("{first:?} but {second:?}: {}", buf.escape_ascii()),
    }
}

/// A field as `httparse` tells it.
fn told(fields: &[httparse::Header<'_>]) -> Vec<(Vec<u8>, Vec<u8>)> {
    fields.iter().map(|f| (f.name.as_bytes().to_vec(), f.value.to_vec())).collect()
}

/// A field as we tell it.
fn ours(buf: &[u8], fields: &[Field]) -> Vec<(Vec<u8>, Vec<u8>)> {
    fields.iter().map(|f| (f.name.of(buf).to_vec(), f.value.of(buf).to_vec())).collect()
}

fn check_request_with_httparse(buf: &[u8]) {
    let mut slots = [httparse::EMPTY_HEADER; 100];
    let mut other = httparse::Request::new(&mut slots);
    let Ok(httparse::Status::Complete(len)) = other.parse(buf) else { return };
    let mut head = RequestHead::default();
    // No field is dropped.
    match head.parse(buf, &Limits { ignore_invalid: false, ..Limits::default() }) {
        Ok(parsed) => assert_eq!(parsed, Parsed::Complete(len), "{}", buf.escape_ascii()),
        Err(_) => return,
    }
    assert_eq!(head.method_name.of(buf), other.method.unwrap().as_bytes());
    assert_eq!(head.target.of(buf), other.path.unwrap().as_bytes());
    assert_eq!(head.version as u8, other.version.unwrap());
    assert_eq!(ours(buf, &head.fields), told(other.headers), "{}", buf.escape_ascii());
}

fn check_response_with_httparse(buf: &[u8]) {
    let mut slots = [httparse::EMPTY_HEADER; 100];
    let mut other = httparse::Response::new(&mut slots);
    let Ok(httparse::Status::Complete(len)) = other.parse(buf) else { return };
    let mut head = ResponseHead::default();
    match head.parse(buf, Method::Get, 4096) {
        Ok(parsed) => assert_eq!(parsed, Parsed::Complete(len), "{}", buf.escape_ascii()),
        Err(_) => return,
    }
    assert_eq!((head.status, head.version as u8), (other.code.unwrap(), other.version.unwrap()));
    assert_eq!(ours(buf, &head.fields), told(other.headers), "{}", buf.escape_ascii());
}

/// The fast way must not be given up for heads as browsers and servers send them, wherever the buffer ends.
#[test]
fn usual_heads_are_read_the_fast_way() {
    for head in [
        &b"GET / HTTP/1.0\r\nConnection: Keep-Alive\r\nHost: 127.0.0.1:8080\r\nUser-Agent: x\r\nAccept: */*\r\n\r\n"[..],
        b"GET /a?b=%20 HTTP/1.1\r\nHost: a\r\n\r\n",
        b"POST /a HTTP/1.1\r\nHost: a\r\nX-Much-Longer-Than-Three-Words: 1\r\nIf-Modified-Since: x\r\nA:\r\nB: \tc\t \r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nX: caf\xc3\xa9 \xff.\r\n\r\n",
    ] {
        for body in [&b""[..], b"x", b"0123456789abcdef"] {
            let buf = [head, body].concat();
            assert_eq!(RequestHead::default().parse_fast(&buf, 0, &Limits::default()), Some(head.len()));
        }
    }
    for head in [
        &b"HTTP/1.1 200 OK\r\nServer: nginx\r\nContent-Length: 12\r\nLast-Modified: x\r\nETag: \"1\"\r\n\r\n"[..],
        b"HTTP/1.0 404\r\n\r\n",
        b"HTTP/1.1 101 \r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
    ] {
        for body in [&b""[..], b"x", b"0123456789abcdef"] {
            let buf = [head, body].concat();
            assert_eq!(ResponseHead::default().parse_fast(&buf), Some(head.len()));
        }
    }
}

/// Heads that are nearly right: pieces that matter, in any order.
fn request_like() -> impl Strategy<Value = Vec<u8>> {
    let start = prop::sample::select(vec![
        "GET / HTTP/1.1\r\n",
        "GET /a/%2e?x#y HTTP/1.1\r\n",
        "POST http://h:80/p HTTP/1.0\r\n",
        "\r\nGET / HTTP/1.1\n",
        "OPTIONS * HTTP/1.1\r\n",
        "GET /\u{e9} HTTP/1.1\r\n",
        "GET / HTTP/1.2\r\n",
        "get / HTTP/1.1\r\n",
        "GET  / HTTP/1.1\r\n",
    ]);
    (start, prop::collection::vec(piece(), 0..12)).prop_map(|(start, pieces)| {
        let mut head = start.as_bytes().to_vec();
        head.extend(pieces.concat());
        head
    })
}

fn response_like() -> impl Strategy<Value = Vec<u8>> {
    let start = prop::sample::select(vec![
        &b"HTTP/1.1 200 OK\r\n"[..],
        b"HTTP/1.0 404\r\n",
        b"HTTP/1.1 304 \r\n",
        b"HTTP/1.1 200 caf\xe9\r\n",
        b"HTTP/1.1 101 S\n",
        b"HTTP/1.3 200 OK\r\n",
        b"HTTP/1.1 2000 OK\r\n",
        b"\r\nHTTP/1.1 200 OK\r\n",
        b"HTTP/1.1  200 OK\r\n",
    ]);
    (start, prop::collection::vec(piece(), 0..12)).prop_map(|(start, pieces)| [start, &pieces.concat()].concat())
}

fn piece() -> impl Strategy<Value = Vec<u8>> {
    let fixed: Vec<&[u8]> = vec![
        b"\r\n",
        b"\r\n\r\n",
        b"\n",
        b"Host: a\r\n",
        b"Host:b:1\n",
        b"Content-Length: 5\r\n",
        b"Content-Length:  12\t\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"Connection: close, X-Y\r\n",
        b"Connection: upgrade\r\n",
        b"Upgrade: websocket\r\n",
        b"X_Y: 1\r\n",
        b"X.Y: 1\r\n",
        b"X@Y: 1\r\n",
        b"X Y: 1\r\n",
        b": 1\r\n",
        b" folded\r\n",
        b"no colon\r\n",
        b"Empty:\r\n",
        b"Blank: \t \r\n",
        b"X: a\x00b\r\n",
        b"X: a\rb\r\n",
        b"X: \xff\xfe\r\n",
        b"\r",
        b"Expect: 100-continue\r\n",
    ];
    prop_oneof![
        4 => prop::sample::select(fixed).prop_map(<[u8]>::to_vec),
        1 => prop::collection::vec(any::<u8>(), 0..4),
        2 => "[A-Za-z_.-]{1,9}: ?[ -~]{0,20}\r\n".prop_map(String::into_bytes),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, ..ProptestConfig::default() })]

    #[test]
    fn requests(head in request_like(), underscores: bool, ignore_invalid: bool) {
        let limits = Limits { underscores, ignore_invalid, ..Limits::default() };
        check_request(&head, &limits);
        check_request(&[&head[..], b"Host: z\r\n\r\n"].concat(), &limits);
        check_request_with_httparse(&[&head[..], b"Host: z\r\n\r\n"].concat());
        check_request(&head, &Limits { line: 20, field: 24, head: 90, fields: 4, ..limits });
    }

    #[test]
    fn responses(head in response_like()) {
        check_response(&head);
        check_response(&[&head[..], b"\r\n"].concat());
        check_response_with_httparse(&[&head[..], b"\r\n"].concat());
    }

    #[test]
    fn anything(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
        check_request(&bytes, &Limits::default());
        check_response(&bytes);
    }
}
