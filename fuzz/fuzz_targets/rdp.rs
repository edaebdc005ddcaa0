//! The first bytes of Remote Desktop clients: no panic, a verdict that stands, and cookies that are in the packet.
#![no_main]

use balanza_proxy::rdp::{First, LONGEST, read};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut decided = None;
    for end in 0..=bytes.len().min(LONGEST + 1) {
        match (read(&bytes[..end]), decided) {
            (First::Incomplete, None) => assert!(end < LONGEST),
            (verdict, None) => decided = Some(verdict),
            (verdict, Some(before)) => assert_eq!(verdict, before),
        }
    }
    if let Some(First::Request(request)) = decided {
        assert!(bytes.starts_with(request.bytes()));
        for name in [&b"mstshash"[..], b"msts", b"a", b""] {
            if let Some(value) = request.cookie(name) {
                assert!(!value.is_empty() && request.bytes().windows(value.len()).any(|piece| piece == value));
                assert!(!value.windows(2).any(|pair| pair == b"\r\n"));
            }
        }
    }
});
