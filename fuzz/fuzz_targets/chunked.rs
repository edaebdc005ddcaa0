//! Chunked bodies: no panic, the same outcome however the bytes are cut, and bounded memory.
#![no_main]

use balanza_http1::{ChunkError, ChunkedDecoder};
use libfuzzer_sys::fuzz_target;

type Outcome = Result<(Vec<u8>, Option<usize>, Vec<u8>), ChunkError>;

/// Payload, where the body ended, and the trailers; read in pieces of the given sizes, over and over.
fn decode(bytes: &[u8], sizes: &[u8]) -> Outcome {
    let mut decoder = ChunkedDecoder::default();
    let (mut payload, mut at) = (Vec::new(), 0);
    let mut sizes = sizes.iter().cycle();
    while at < bytes.len() {
        let size = sizes.next().map_or(bytes.len(), |&size| usize::from(size) + 1).min(bytes.len() - at);
        let mut piece = bytes[at..at + size].to_vec();
        let decoded = decoder.decode(&mut piece)?;
        assert!(decoded.produced <= decoded.consumed && decoded.consumed <= size);
        payload.extend_from_slice(&piece[..decoded.produced]);
        at += decoded.consumed;
        if decoded.finished {
            assert!(decoder.is_finished());
            return Ok((payload, Some(at), decoder.trailers().bytes().to_vec()));
        }
        assert_eq!(decoded.consumed, size);
    }
    assert!(decoder.trailers().bytes().len() <= 8 * 1024);
    Ok((payload, None, Vec::new()))
}

fuzz_target!(|data: &[u8]| {
    let Some((&n, rest)) = data.split_first() else { return };
    let (sizes, bytes) = rest.split_at(rest.len().min(usize::from(n & 7)));
    let whole = decode(bytes, &[]);
    assert_eq!(decode(bytes, &[0]), whole);
    assert_eq!(decode(bytes, sizes), whole);
    if let Ok((payload, Some(end), _)) = whole {
        assert!(payload.len() < end && end <= bytes.len());
        // What is behind a body is not looked at.
        assert_eq!(decode(&bytes[..end], &[]).map(|outcome| outcome.1), Ok(Some(end)));
    }
});
