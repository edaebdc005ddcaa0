//! Numbers, sizes, times, addresses.

use std::time::Duration;

use proptest::prelude::*;

use crate::address::{self, Host, Use};
use crate::values::{flag, milliseconds, number, seconds, size};

#[test]
fn sizes() {
    let table: [(&str, Option<u64>, Option<u64>); 14] = [
        ("0", Some(0), Some(0)),
        ("1024", Some(1024), Some(1024)),
        ("8k", Some(8192), Some(8192)),
        ("8K", Some(8192), Some(8192)),
        ("1m", Some(1 << 20), Some(1 << 20)),
        ("1M", Some(1 << 20), Some(1 << 20)),
        ("2g", None, Some(2 << 30)),
        ("", None, None),
        ("k", None, None),
        ("1kb", None, None),
        ("-1", None, None),
        ("1.5m", None, None),
        ("9223372036854775807", Some(i64::MAX as u64), Some(i64::MAX as u64)),
        ("9007199254740992k", None, None),
    ];
    for (text, plain, giga) in table {
        assert_eq!(size(text.as_bytes(), false), plain, "{text}");
        assert_eq!(size(text.as_bytes(), true), giga, "{text}");
    }
}

#[test]
fn times() {
    let ms = Duration::from_millis;
    let s = Duration::from_secs;
    let table: [(&str, Option<Duration>, Option<Duration>); 20] = [
        ("0", Some(ms(0)), Some(s(0))),
        ("60", Some(s(60)), Some(s(60))),
        ("60s", Some(s(60)), Some(s(60))),
        ("500ms", Some(ms(500)), None),
        ("1h30m", Some(s(5400)), Some(s(5400))),
        ("1h 30m", Some(s(5400)), Some(s(5400))),
        ("1h 30m 5", Some(s(5405)), Some(s(5405))),
        ("1m5s6ms", Some(ms(65_006)), None),
        ("1w", Some(s(604_800)), Some(s(604_800))),
        ("1M", None, Some(s(2_592_000))),
        ("1y", None, Some(s(31_536_000))),
        ("1y6M2w3d4h5m6s", None, Some(s(31_536_000 + 15_552_000 + 1_209_600 + 259_200 + 14_400 + 300 + 6))),
        ("30m1h", None, None),
        ("1h1h", None, None),
        ("5 1m", None, None),
        ("", None, None),
        ("s", Some(ms(0)).filter(|_| false), None),
        ("1x", None, None),
        ("-1", None, None),
        ("99999999999999999999", None, None),
    ];
    for (text, in_ms, in_s) in table {
        assert_eq!(milliseconds(text.as_bytes()), in_ms, "{text}");
        assert_eq!(seconds(text.as_bytes()), in_s, "{text}");
    }
}

#[test]
fn flags_and_numbers() {
    assert_eq!((flag(b"on"), flag(b"OFF"), flag(b"yes"), flag(b"")), (Some(true), Some(false), None, None));
    assert_eq!((number(b"007"), number(b""), number(b"+1"), number(b"1 ")), (Some(7), None, None, None));
    assert_eq!((number(b"9223372036854775807"), number(b"9223372036854775808")), (Some(i64::MAX as u64), None));
}

proptest! {
    #[test]
    fn times_are_sums(w in 0u64..100, d in 0u64..100, h in 0u64..100, m in 0u64..100, s in 0u64..100, ms in 0u64..5000) {
        let text = format!("{w}w {d}d{h}h  {m}m{s}s{ms}ms");
        let total = (((w * 7 + d) * 24 + h) * 60 + m) * 60 + s;
        prop_assert_eq!(milliseconds(text.as_bytes()), Some(Duration::from_millis(total * 1000 + ms)));
        let text = format!("{w}w{d}d {h}h{m}m {s}s");
        prop_assert_eq!(seconds(text.as_bytes()), Some(Duration::from_secs(total)));
    }

    #[test]
    fn values_never_panic(text in proptest::collection::vec(any::<u8>(), 0..30)) {
        let _ = (number(&text), size(&text, true), milliseconds(&text), seconds(&text), flag(&text));
        for usage in [Use::Listen, Use::Server, Use::Url] {
            let _ = address::parse(&text, 80, usage);
        }
    }
}

#[test]
fn addresses() {
    let parse = |text: &str, usage| address::parse(text.as_bytes(), 80, usage);
    let url = parse("app.example:8080/a?b", Use::Url).unwrap();
    assert_eq!((url.host, url.port, url.no_port), (Host::Name("app.example".into()), 8080, false));
    assert_eq!((url.host_text, url.uri), (b"app.example".to_vec(), b"/a?b".to_vec()));
    let url = parse("app.example?x:1", Use::Url).unwrap();
    assert_eq!((url.port, url.no_port, url.uri), (80, true, b"?x:1".to_vec()));
    let url = parse("unix:/run/a.sock:/x/", Use::Url).unwrap();
    assert_eq!((url.host, url.uri), (Host::Unix("/run/a.sock".into()), b"/x/".to_vec()));
    let url = parse("[::1]:81/x", Use::Url).unwrap();
    assert_eq!((url.host, url.port, url.uri), (Host::Ip("::1".parse().unwrap()), 81, b"/x".to_vec()));
    let listen = parse("*:81-83", Use::Listen).unwrap();
    assert_eq!((listen.host, listen.port, listen.last_port), (Host::Ip("0.0.0.0".parse().unwrap()), 81, Some(83)));
    let errors = [
        ("", Use::Server, "no host"),
        ("a:", Use::Server, "invalid port"),
        ("a:65536", Use::Server, "invalid port"),
        ("a/b", Use::Server, "invalid host"),
        ("[::1", Use::Url, "invalid host"),
        ("[]:80", Use::Url, "no host"),
        ("[x]:80", Use::Url, "invalid IPv6 address"),
        ("9-8", Use::Listen, "invalid port range"),
        ("unix:", Use::Listen, "no path in the unix domain socket"),
    ];
    for (text, usage, error) in errors {
        assert_eq!(parse(text, usage).unwrap_err(), error, "{text}");
    }
}
