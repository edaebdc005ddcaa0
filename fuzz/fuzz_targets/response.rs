//! Response heads: no panic, spans in bounds, no dependence on earlier calls or on how the bytes arrive, and the same
//! meaning when written anew from the parsed form.
#![no_main]

use balanza_http1::{Method, Parsed, ResponseHead};
use libfuzzer_sys::fuzz_target;

const MAX: usize = 16 * 1024;

fn write(buf: &[u8], head: &ResponseHead) -> Vec<u8> {
    let version = if head.version == balanza_http1::Version::Http10 { "HTTP/1.0" } else { "HTTP/1.1" };
    let mut out = format!("{version} {} ", head.status).into_bytes();
    out.extend_from_slice(&[head.reason.of(buf), b"\r\n"].concat());
    for field in &head.fields {
        out.extend_from_slice(&[field.name.of(buf), b": ", field.value.of(buf), b"\r\n"].concat());
    }
    out.extend_from_slice(b"\r\n");
    out
}

fuzz_target!(|data: &[u8]| {
    let Some((&knobs, buf)) = data.split_first() else { return };
    let method = if knobs & 1 != 0 { Method::Head } else { Method::Get };
    let mut head = ResponseHead::default();
    let result = head.parse(buf, method, MAX);
    let cut = buf.len() * usize::from(knobs >> 2) / 64;
    let mut other = ResponseHead::default();
    match (other.parse(&buf[..cut], method, MAX), result) {
        (Ok(Parsed::Complete(a)), b) => assert_eq!(b, Ok(Parsed::Complete(a))),
        (Err(_), b) => assert!(b.is_err()),
        (Ok(Parsed::Incomplete), _) => {}
    }
    assert_eq!(other.parse(buf, method, MAX), result);
    let Ok(Parsed::Complete(len)) = result else { return };
    assert!(len <= buf.len() && (100..=599).contains(&head.status));
    let again = write(buf, &head);
    let mut second = ResponseHead::default();
    assert_eq!(second.parse(&again, method, usize::MAX), Ok(Parsed::Complete(again.len())), "{}", again.escape_ascii());
    assert_eq!(write(&again, &second), again);
    assert_eq!((second.body, second.keep_alive, second.has), (head.body, head.keep_alive, head.has));
});
