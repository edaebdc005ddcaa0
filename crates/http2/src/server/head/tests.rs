use super::*;

/// Builds a head from these fields and checks it.
fn head_of(fields: &[(&str, &str)], ends: bool) -> Result<Head, Fault> {
    let mut head = Head::new(1 << 20, false);
    for (name, value) in fields {
        let begin = head.text.len();
        head.text.extend_from_slice(name.as_bytes());
        let name_end = head.text.len();
        head.text.extend_from_slice(value.as_bytes());
        head.known.add(&mut head.text, begin, name_end);
    }
    head.finish(ends).map(|()| head)
}

/// A head with ordinary pseudo-fields and these fields.
fn head(method: &str, authority: Option<&str>, path: &str, fields: &[(&str, &str)]) -> Result<Head, Fault> {
    let mut all = vec![(":method", method), (":scheme", "https"), (":path", path)];
    all.extend(authority.map(|authority| (":authority", authority)));
    all.extend(fields);
    head_of(&all, false)
}

fn translated(head: &Head, ends: bool) -> Result<Request, RequestError> {
    let mut request = Request::default();
    translate(head, ends, &Limits::default(), || "key".to_owned(), &mut request).map(|()| request)
}

#[test]
fn a_head_reads_as_in_http_1() {
    let fields =
        [("cookie", "a=1"), ("te", "trailers"), ("cookie", "b=2"), ("content-length", "12"), ("x_y", "dropped")];
    let head = head("POST", Some("Shop.example:8443"), "/cart/%61?id=7", &fields).unwrap();
    let request = translated(&head, false).unwrap();
    assert_eq!(request.of(request.line), b"POST /cart/%61?id=7 HTTP/2.0");
    assert_eq!((request.of(request.path), request.plain_path), (&b"/cart/%61"[..], false));
    assert_eq!(request.query.map(|query| request.of(query)), Some(&b"id=7"[..]));
    assert_eq!(request.host.map(|host| request.of(host)), Some(&b"Shop.example"[..]));
    assert!(request.host_capitals);
    assert_eq!(request.find(Header::Host), Some(&b"Shop.example:8443"[..]));
    assert_eq!(request.find(Header::Cookie), Some(&b"a=1; b=2"[..]));
    assert_eq!((request.body, request.version), (Length::Known(12), Version::Http2));
    assert_eq!(request.fields.len(), 4);
}

#[test]
fn a_websocket_is_opened_as_in_http_1() {
    let extended = |protocol: &'static str, fields: &[(&str, &str)]| {
        let mut all = vec![(":protocol", protocol)];
        all.extend(fields);
        head("CONNECT", Some("a"), "/chat?x=1", &all).unwrap()
    };
    let fields = [("sec-websocket-version", "13"), ("sec-websocket-key", "not this one")];
    let request = translated(&extended("websocket", &fields), false).unwrap();
    assert_eq!(request.of(request.line), b"GET /chat?x=1 HTTP/2.0");
    assert_eq!((request.method, request.body), (Method::Get, Length::None));
    assert_eq!(request.find(Header::Upgrade), Some(&b"websocket"[..]));
    assert_eq!(request.find(Header::SecWebsocketKey), Some(&b"key"[..]));
    assert_eq!(request.fields.len(), 5, "Host, the version, and what opens it");
    let other = translated(&extended("connect-udp", &[]), false).map(|_| ()).map_err(|error| error.status);
    assert_eq!(other, Err(501));
}

#[test]
fn a_body_may_have_no_length() {
    let head = head("GET", Some("a"), "/", &[]).unwrap();
    assert_eq!(translated(&head, true).unwrap().body, Length::None);
    assert_eq!(translated(&head, false).unwrap().body, Length::Unknown);
}

#[test]
fn what_is_ambiguous_is_refused() {
    let status = |method: &str, authority: Option<&str>, path: &str, fields: &[(&str, &str)]| {
        translated(&head(method, authority, path, fields).unwrap(), true).map(|_| ()).map_err(|error| error.status)
    };
    let get = |fields: &[(&str, &str)]| status("GET", Some("a"), "/", fields);
    assert_eq!(get(&[("host", "A")]), Ok(()));
    assert_eq!(get(&[("host", "b")]), Err(400));
    assert_eq!(status("GET", None, "/", &[("host", "a")]), Ok(()));
    assert_eq!(status("GET", None, "/", &[]), Err(400));
    assert_eq!(status("GET", None, "/", &[("host", "a"), ("host", "a")]), Err(400));
    assert_eq!(status("GET", Some("u@a"), "/", &[]), Err(400));
    assert_eq!(get(&[("content-length", "1"), ("content-length", "1")]), Err(400));
    assert_eq!(get(&[("content-length_", "1")]), Err(400));
    assert_eq!(get(&[("if-range", "a"), ("if-range", "b")]), Err(400));
    assert_eq!(get(&[("x", " a")]), Err(400));
    assert_eq!(status("get", Some("a"), "/", &[]), Err(400));
    assert_eq!(status("GET", Some("a"), "*", &[]), Err(400));
    assert_eq!(status("OPTIONS", Some("a"), "*", &[]), Ok(()));
    let connect = head_of(&[(":method", "CONNECT"), (":authority", "a:1")], false).unwrap();
    assert_eq!(translated(&connect, true).map(|_| ()).map_err(|error| error.status), Err(405));
    let long = "x".repeat(8192);
    assert_eq!(status("GET", Some("a"), &format!("/{long}"), &[]), Err(414));
    assert_eq!(get(&[("x", &long)]), Err(494));
    let half = "x".repeat(4000);
    let many: Vec<_> = (0..10).map(|_| ("x", half.as_str())).collect();
    assert_eq!(get(&many), Err(494));
}

#[test]
fn what_the_standard_forbids_is_no_request() {
    let usual = [(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "a")];
    let is_malformed = |fields: &[(&str, &str)]| head_of(fields, true).err() == Some(Fault::Malformed);
    assert!(!is_malformed(&usual));
    let with = |more: (&'static str, &'static str)| [&usual[..], &[more]].concat();
    for wrong in [
        ("connection", "close"),
        ("keep-alive", "1"),
        ("proxy-connection", "close"),
        ("transfer-encoding", "chunked"),
        ("upgrade", "websocket"),
        ("te", "gzip"),
        ("X-Capital", "1"),
        ("", "1"),
        ("a b", "1"),
        ("a:b", "1"),
        ("h\u{e4}", "1"),
        ("x", "a\nb"),
        ("x", "a\rb"),
        ("x", "a\0b"),
        ("content-length", "x"),
        ("content-length", "+1"),
        ("content-length", ""),
        // `head_of` says that no body follows.
        ("content-length", "1"),
        (":unknown", "1"),
        (":status", "200"),
        (":path", "/other"),
        (":method", "GET"),
        (":scheme", "http"),
        (":authority", "a"),
        (":protocol", "websocket"),
    ] {
        assert!(is_malformed(&with(wrong)), "{wrong:?}");
    }
    for right in [("te", "trailers"), ("content-length", "0"), ("x", "\u{e4}\t"), ("x", "")] {
        assert!(!is_malformed(&with(right)), "{right:?}");
    }
    for left_out in 0..3 {
        let mut fields = usual.to_vec();
        fields.remove(left_out);
        assert!(is_malformed(&fields), "{left_out}");
    }
    assert!(is_malformed(&[usual[0], usual[1], ("x", "y"), usual[2], usual[3]]), "a field before a pseudo-field");
    for path in ["", "no-slash", "/a b", "/\u{7f}", "**"] {
        assert!(is_malformed(&[usual[0], usual[1], (":path", path), usual[3]]), "{path}");
    }
    for authority in ["", "a b"] {
        assert!(is_malformed(&[usual[0], usual[1], usual[2], (":authority", authority)]), "{authority}");
    }
    assert!(is_malformed(&[(":method", "CONNECT"), (":path", "/"), (":authority", "a")]));
    assert!(is_malformed(&[(":method", "CONNECT")]));
    assert!(is_malformed(&[(":method", "G T"), usual[1], usual[2], usual[3]]));
    assert!(is_malformed(&[usual[0], (":scheme", "1"), usual[2], usual[3]]));
}

#[test]
fn a_head_that_is_too_large_is_known_by_its_size() {
    let mut head = Head::new(4 * 32 + 60, false);
    for (name, value) in [(":method", "GET"), (":path", "/"), ("x", &"y".repeat(100)), ("z", "")] {
        let begin = head.text.len();
        head.text.extend_from_slice(name.as_bytes());
        let name_end = head.text.len();
        head.text.extend_from_slice(value.as_bytes());
        head.known.add(&mut head.text, begin, name_end);
    }
    assert_eq!(head.finish(true), Err(Fault::TooLarge));
    assert_eq!(head.text, b":methodGET:path/");
}

#[test]
fn trailers_that_could_be_taken_for_a_head_stay_behind() {
    let mut head = Head::new(1 << 20, true);
    for (name, value) in [("grpc-status", "0"), ("content-length", "7"), ("x-a-bin", "AA=="), ("authorization", "x")] {
        let begin = head.text.len();
        head.text.extend_from_slice(name.as_bytes());
        let name_end = head.text.len();
        head.text.extend_from_slice(value.as_bytes());
        head.known.add(&mut head.text, begin, name_end);
    }
    assert_eq!(head.finish(true), Ok(()));
    let trailers = head.trailers();
    let expected: [(&[u8], &[u8]); 2] = [(b"grpc-status", b"0"), (b"x-a-bin", b"AA==")];
    assert_eq!(trailers.iter().collect::<Vec<_>>(), expected);
    let begin = head.text.len();
    head.text.extend_from_slice(b":path/");
    head.known.add(&mut head.text, begin, begin + 5);
    assert_eq!(head.finish(true), Err(Fault::Malformed));
}
