//! The first bytes of clients of TLS: no panic, and a verdict that stands whatever follows.
#![no_main]

use balanza_tls::hello::{First, read};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut decided = None;
    for end in 0..=bytes.len() {
        match (read(&bytes[..end]), &decided) {
            (First::Incomplete, None) => {}
            (verdict, None) => decided = Some(verdict),
            (verdict, Some(before)) => assert_eq!(verdict, *before),
        }
    }
    if let Some(First::Hello(hello)) = decided {
        assert!(hello.server_name.is_none_or(|name| !name.is_empty() && !name.bytes().any(|byte| byte <= b' ')));
    }
});
