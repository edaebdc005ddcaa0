//! Request heads: no panic, spans in bounds, no dependence on what was parsed before or on how the bytes arrive, and what
//! was accepted is accepted again, with the same meaning, when it is written anew from the parsed form.
#![no_main]

use balanza_http1::{Body, Limits, Parsed, RequestHead};
use balanza_message::uri;
use libfuzzer_sys::fuzz_target;

fn write(buf: &[u8], head: &RequestHead) -> Vec<u8> {
    let mut out = [head.method_name.of(buf), b" ", head.target.of(buf), b" "].concat();
    out.extend_from_slice(if head.version == balanza_http1::Version::Http10 {
        b"HTTP/1.0\r\n"
    } else {
        b"HTTP/1.1\r\n"
    });
    for field in &head.fields {
        out.extend_from_slice(&[field.name.of(buf), b": ", field.value.of(buf), b"\r\n"].concat());
    }
    out.extend_from_slice(b"\r\n");
    out
}

fuzz_target!(|data: &[u8]| {
    let Some((&knobs, buf)) = data.split_first() else { return };
    let limits =
        Limits { underscores: knobs & 1 != 0, ignore_invalid: knobs & 2 == 0, fields: 100, ..Limits::default() };
    let mut head = RequestHead::default();
    let result = head.parse(buf, &limits);
    // A prefix is never a whole head, unless it is the whole head itself; and no later byte changes an outcome.
    let cut = buf.len() * usize::from(knobs >> 2) / 64;
    let mut other = RequestHead::default();
    match (other.parse(&buf[..cut], &limits), result) {
        (Ok(Parsed::Complete(a)), b) => assert_eq!(b, Ok(Parsed::Complete(a))),
        (Err(_), b) => assert!(b.is_err()),
        (Ok(Parsed::Incomplete), _) => {}
    }
    assert_eq!(other.parse(buf, &limits), result);
    let Ok(Parsed::Complete(len)) = result else { return };
    assert!(len <= buf.len());
    assert_ne!(head.body, Body::UntilClose);
    assert!(!head.path.is_empty());
    for span in [head.line, head.target, head.origin, head.path]
        .into_iter()
        .chain(head.query)
        .chain(head.host)
        .chain(head.upgrade)
    {
        assert!(span.end as usize <= len);
    }
    for name in &head.connection_names {
        assert!(!name.of(buf).is_empty());
    }
    if head.path.of(buf).starts_with(b"/") {
        let mut scratch = Vec::new();
        let path = head.path.of(buf);
        assert_eq!(head.plain_path, uri::is_plain(path));
        if let Ok(normal) = uri::normalise(path, true, &mut scratch) {
            assert!(normal.starts_with(b"/") && normal.len() <= path.len());
            assert!(!normal.contains(&0));
            assert!(!normal.windows(2).any(|w| w == b"//"));
            assert!(!normal.windows(4).any(|w| w == b"/../") && !normal.ends_with(b"/.."));
        }
    }
    let again = write(buf, &head);
    let mut second = RequestHead::default();
    let wide = Limits { line: usize::MAX, field: usize::MAX, head: usize::MAX, ..limits };
    assert_eq!(second.parse(&again, &wide), Ok(Parsed::Complete(again.len())), "{}", again.escape_ascii());
    assert_eq!(write(&again, &second), again);
    assert_eq!(
        (second.method, second.body, second.keep_alive, second.has),
        (head.method, head.body, head.keep_alive, head.has)
    );
    assert_eq!(second.host.map(|h| h.of(&again)), head.host.map(|h| h.of(buf)));
});
