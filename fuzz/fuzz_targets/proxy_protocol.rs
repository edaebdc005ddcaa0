//! The header of the PROXY protocol: no panic, a verdict that stands, bounded, and TLVs that are in the header.
#![no_main]

use balanza_proxy::proxy_protocol::{First, LONGEST, read};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut decided = None;
    for end in 0..=bytes.len().min(LONGEST + 1) {
        match (read(&bytes[..end]), &decided) {
            (First::Incomplete, None) => assert!(end < LONGEST),
            (verdict, None) => decided = Some(verdict),
            (verdict, Some(before)) => assert_eq!(verdict, *before),
        }
    }
    if let Some(First::Header(length, Some(header))) = decided {
        assert!(length <= LONGEST);
        for name in [&b"alpn"[..], b"authority", b"ssl", b"ssl_cn", b"ssl_0x21", b"0xea"] {
            let mut value = Vec::new();
            if header.tlv(name, &mut value) && !value.is_empty() {
                assert!(bytes[..length].windows(value.len()).any(|piece| piece == value));
            }
        }
        header.tlv(b"ssl_verify", &mut Vec::new());
    }
});
