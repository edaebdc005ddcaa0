//! What a client of HTTP/2 sends: no panic, no more held than allowed, and the same outcome however the bytes are cut.
#![no_main]

use balanza_http2::fuzzing::run;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (Vec<u8>, &[u8])| {
    let (sizes, bytes) = input;
    let sizes: Vec<usize> = sizes.iter().map(|&size| usize::from(size) + 1).collect();
    // SETTINGS, without which nothing else is looked at.
    let bytes = [b"\0\0\0\x04\0\0\0\0\0", bytes].concat();
    assert_eq!(run(&bytes, &[]), run(&bytes, &sizes));
});
