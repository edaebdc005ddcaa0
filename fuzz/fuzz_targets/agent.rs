//! Lines of agents: no panic, and what a line means does not depend on what surrounds its words.
#![no_main]

use balanza_proxy::agent::{Weight, parse};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|line: &[u8]| {
    let statement = parse(line);
    if let Some(Weight::Units(units)) = statement.weight {
        assert!(units <= 256);
    }
    if let Some(word) = statement.unknown {
        assert!(parse(word).is_empty());
    }
    // Blanks in front and an end behind mean nothing.
    let mut padded = b" ,\t".to_vec();
    padded.extend_from_slice(line);
    assert_eq!(parse(&padded), statement);
    padded.extend_from_slice(b"\r\nmaint 0%");
    assert_eq!(parse(&padded), statement);
});
