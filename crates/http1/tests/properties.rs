//! What must hold for every head.

use balanza_http1::{Body, Limits, Method, Parsed, RequestHead, ResponseHead};
use proptest::prelude::*;

type Fields = Vec<(String, String)>;

fn fields() -> impl Strategy<Value = Fields> {
    prop::collection::vec(("X-[A-Za-z0-9-]{1,12}", "([!-~]([ -~\t]{0,20}[!-~])?)?"), 0..80)
}

/// How the body is announced, and what must come of it.
fn framing() -> impl Strategy<Value = (Fields, Body)> {
    prop_oneof![
        Just((vec![], Body::None)),
        (0..=i64::MAX as u64).prop_map(|n| (vec![("Content-Length".into(), n.to_string())], Body::Length(n))),
        prop::sample::select(vec!["chunked", "Chunked", "CHUNKED"])
            .prop_map(|te| (vec![("Transfer-Encoding".into(), te.into())], Body::Chunked)),
    ]
}

fn serialise(start: &str, fields: &Fields, spaces: &str) -> Vec<u8> {
    let mut out = format!("{start}\r\n");
    for (name, value) in fields {
        out += &format!("{name}:{spaces}{value}{spaces}\r\n");
    }
    (out + "\r\n").into_bytes()
}

fn check_fields(buf: &[u8], got: &[balanza_http1::Field], sent: &Fields) {
    let got: Vec<(&[u8], &[u8])> = got.iter().map(|f| (f.name.of(buf), f.value.of(buf))).collect();
    let sent: Vec<(&[u8], &[u8])> = sent.iter().map(|(n, v)| (n.as_bytes(), v.as_bytes())).collect();
    assert_eq!(got, sent);
}

proptest! {
    #[test]
    fn requests_are_read_as_written(
        method in "[A-Z]{1,10}".prop_filter("has another target", |m| m != "CONNECT"),
        path in "/[!-\"$->@-~é]{0,30}",
        query in prop::option::of("[!-\"$-~]{0,30}"),
        host in "[a-z0-9-]{1,20}",
        port in prop::option::of(any::<u16>()),
        others in fields(),
        (framing, body) in framing(),
        spaces in "[ \t]{0,3}",
        following in prop::collection::vec(any::<u8>(), 0..10),
    ) {
        let target = query.as_ref().map_or(path.clone(), |q| format!("{path}?{q}"));
        let authority = port.map_or(host.clone(), |p| format!("{host}:{p}"));
        let mut sent = others;
        sent.push(("Host".into(), authority));
        sent.extend(framing);
        let mut buf = serialise(&format!("{method} {target} HTTP/1.1"), &sent, &spaces);
        let len = buf.len();
        buf.extend(following);
        let mut head = RequestHead::default();
        prop_assert_eq!(head.parse(&buf, &Limits::default()), Ok(Parsed::Complete(len)));
        prop_assert_eq!(head.method, Method::recognise(method.as_bytes()));
        prop_assert_eq!(head.method_name.of(&buf), method.as_bytes());
        prop_assert_eq!(head.target.of(&buf), target.as_bytes());
        prop_assert_eq!(head.path.of(&buf), path.as_bytes());
        prop_assert_eq!(head.query.map(|q| q.of(&buf)), query.as_ref().map(|q| q.as_bytes()));
        prop_assert_eq!(head.host.map(|h| h.of(&buf)), Some(host.as_bytes()));
        prop_assert_eq!(head.port, port);
        prop_assert_eq!(head.body, body);
        prop_assert_eq!(head.plain_path, balanza_message::uri::is_plain(path.as_bytes()));
        check_fields(&buf, &head.fields, &sent);
        for field in &head.fields {
            prop_assert!(field.header.is_in(head.has));
        }
    }

    #[test]
    fn responses_are_read_as_written(
        status in 200..=599u16,
        reason in "[ -~]{0,20}",
        others in fields(),
        (framing, body) in framing(),
        spaces in "[ \t]{0,3}",
    ) {
        let mut sent = others;
        sent.extend(framing);
        let buf = serialise(&format!("HTTP/1.1 {status} {reason}"), &sent, &spaces);
        let mut head = ResponseHead::default();
        prop_assert_eq!(head.parse(&buf, Method::Get, 1 << 20), Ok(Parsed::Complete(buf.len())));
        prop_assert_eq!((head.status, head.reason.of(&buf)), (status, reason.as_bytes()));
        let body = match (status, body) {
            (204 | 304, _) => Body::None,
            (_, Body::None) => Body::UntilClose,
            (_, body) => body,
        };
        prop_assert_eq!(head.body, body);
        check_fields(&buf, &head.fields, &sent);
    }

    /// No prefix of a good head is refused or taken for a whole one, and a struct that has seen them reads like a new one.
    #[test]
    fn heads_may_arrive_in_pieces(others in fields(), (framing, _) in framing()) {
        let mut sent = others;
        sent.truncate(6);
        sent.push(("Host".into(), "a".into()));
        sent.push(("X_Dropped@".into(), "b".into()));
        sent.extend(framing);
        let limits = Limits::default();
        let buf = serialise("GET /a?b HTTP/1.1", &sent, " ");
        let mut head = RequestHead::default();
        for i in 0..buf.len() {
            prop_assert_eq!(head.parse(&buf[..i], &limits), Ok(Parsed::Incomplete));
        }
        prop_assert_eq!(head.parse(&buf, &limits), Ok(Parsed::Complete(buf.len())));
        let mut fresh = RequestHead::default();
        fresh.parse(&buf, &limits).unwrap();
        prop_assert_eq!(format!("{head:?}"), format!("{fresh:?}"));

        sent.retain(|(name, _)| name != "X_Dropped@");
        let buf = serialise("HTTP/1.1 200 OK", &sent, " ");
        let mut head = ResponseHead::default();
        for i in 0..buf.len() {
            prop_assert_eq!(head.parse(&buf[..i], Method::Get, 1 << 20), Ok(Parsed::Incomplete));
        }
        prop_assert_eq!(head.parse(&buf, Method::Get, 1 << 20), Ok(Parsed::Complete(buf.len())));
    }

    /// One byte changed anywhere never yields a head in which a field's name or value, the target or the method holds a
    /// control byte, or a body that both framings announce.
    #[test]
    fn one_wrong_byte(at in any::<prop::sample::Index>(), b: u8) {
        let mut buf = b"POST /a?b HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nX-A: b c\r\nConnection: close\r\n\r\n".to_vec();
        let at = at.index(buf.len());
        buf[at] = b;
        let mut head = RequestHead::default();
        if let Ok(Parsed::Complete(_)) = head.parse(&buf, &Limits::default()) {
            let clean = |part: &[u8]| part.iter().all(|&b| b == b'\t' || (b >= b' ' && b != 0x7f));
            prop_assert!(clean(head.target.of(&buf)) && clean(head.method_name.of(&buf)));
            for field in &head.fields {
                prop_assert!(clean(field.name.of(&buf)) && clean(field.value.of(&buf)));
                prop_assert!(!field.name.of(&buf).iter().any(|&b| b == b' ' || b == b':'));
            }
        }
    }
}
