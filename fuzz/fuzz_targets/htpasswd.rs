//! Files of passwords and hashes: no panic, and a user's line is that of the user.
#![no_main]

use balanza_proxy::htpasswd::{find, is_slow, verify};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (&[u8], &[u8], &[u8])| {
    let (text, user, password) = input;
    if let Some(hash) = find(text, user) {
        assert!(!hash.iter().any(|byte| matches!(byte, b'\n' | b'\r' | b':')));
        // What follows in the file means nothing.
        let mut longer = text.to_vec();
        longer.extend_from_slice(b"\nx:{PLAIN}y\n");
        assert_eq!(find(&longer, user), Some(hash));
        if !is_slow(hash) {
            let _ = verify(hash, password);
        }
    }
    // A round of a slow hash is the same as any: those that cost much are left to the tests.
    let expensive = text.starts_with(b"$2") || text.starts_with(b"$5") || text.starts_with(b"$6");
    if !expensive {
        let _ = verify(text, password);
    }
    let plain = [b"{PLAIN}", password].concat();
    assert_eq!(verify(&plain, password), Ok(true));
});
