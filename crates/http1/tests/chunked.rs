//! Chunked bodies: what is read, however it is cut, and what is refused.

use balanza_http1::{ChunkError, ChunkedDecoder, write_chunk_head};
use balanza_message::{push_hex, write_decimal};
use proptest::prelude::*;

/// Payload, what follows the body if it is complete, and the decoder.
type Read = (Vec<u8>, Option<Vec<u8>>, ChunkedDecoder);

fn decode(pieces: &[&[u8]]) -> Result<Read, ChunkError> {
    let mut decoder = ChunkedDecoder::default();
    let mut payload = Vec::new();
    let mut rest: Option<Vec<u8>> = None;
    for piece in pieces {
        if let Some(rest) = &mut rest {
            rest.extend_from_slice(piece);
            continue;
        }
        let mut buf = piece.to_vec();
        let decoded = decoder.decode(&mut buf)?;
        assert!(decoded.produced <= decoded.consumed && decoded.consumed <= buf.len());
        payload.extend_from_slice(&buf[..decoded.produced]);
        if decoded.finished {
            rest = Some(piece[decoded.consumed..].to_vec());
        } else {
            assert_eq!(decoded.consumed, piece.len());
        }
    }
    assert_eq!(decoder.is_finished(), rest.is_some());
    Ok((payload, rest, decoder))
}

#[test]
fn bodies() {
    for (body, payload) in [
        (&b"0\r\n\r\n"[..], &b""[..]),
        (b"5\r\nhello\r\n0\r\n\r\n", b"hello"),
        (b"5\r\nhello\r\n1\r\n!\r\n0\r\n\r\n", b"hello!"),
        (b"00000005\r\nhello\r\n000\r\n\r\n", b"hello"),
        (b"a\r\n0123456789\r\nA\r\n0123456789\r\n0\r\n\r\n", b"01234567890123456789"),
        (b"2\r\n\r\n\r\n0\r\n\r\n", b"\r\n"),
        (b"5;a\r\nhello\r\n0\r\n\r\n", b"hello"),
        (b"5;a=b;c=\"d;\\\"e\";e\r\nhello\r\n0;z\r\n\r\n", b"hello"),
        (b"5 ; a = b ;c\r\nhello\r\n0\r\n\r\n", b"hello"),
        (b"5;a=\"\"\r\nhello\r\n0\r\n\r\n", b"hello"),
        (b"5\r\nhello\r\n0\r\nX-Sum: 1\r\n\r\n", b"hello"),
    ] {
        let (got, rest, _) = decode(&[body]).unwrap();
        assert_eq!((&got[..], rest.as_deref()), (payload, Some(&b""[..])), "{}", body.escape_ascii());
        let (_, rest, _) = decode(&[&[body, b"GET /"].concat()]).unwrap();
        assert_eq!(rest.as_deref(), Some(&b"GET /"[..]));
    }
}

#[test]
fn what_is_refused() {
    for body in [
        &b"\r\n"[..],
        b"\r\nhello",
        b" 5\r\nhello\r\n",
        b"\t5\r\n",
        b"5 \r\nhello\r\n",
        b"5\t\r\n",
        b"0x5\r\nhello\r\n",
        b"+5\r\nhello\r\n",
        b"-5\r\nhello\r\n",
        b"5h\r\n",
        b"g\r\n",
        b"5,5\r\n",
        b"5\nhello\r\n",
        b"5\rhello\r\n",
        b"5\r\rhello",
        b"5\r\nhello\n0\r\n\r\n",
        b"5\r\nhello\r0\r\n\r\n",
        b"5\r\nhello0\r\n\r\n",
        b"5\r\nhello!\r\n0\r\n\r\n",
        b"5\r\nhello\r\n0\n\r\n",
        b"5\r\nhello\r\n0\r\n\n",
        b"5\r\nhello\r\n0\r\nA: b\n\r\n",
        b"5\r\nhello\r\n0\r\nA: b\r\n\n",
        b"5\r\nhello\r\n0\r\n\rx",
        b"5\r\nhello\r\n\r\n",
        b"8000000000000000\r\n",
        b"ffffffffffffffff\r\n",
        b"10000000000000000\r\n",
        b"00000000000000005\r\n",
        b"f0000000000000005\r\n",
        b"5;\r\n",
        b"5;;a\r\n",
        b"5;=b\r\n",
        b"5;a=\r\n",
        b"5;a= ;b\r\n",
        b"5;a b\r\n",
        b"5;a \r\n",
        b"5;a=b \r\n",
        b"5;a=\"b\\\r\"\r\n",
        b"5;a=\"b\r\n",
        b"5;a=\"b\n\"\r\n",
        b"5;a=\"b\"c\r\n",
        b"5;a=b\"c\"\r\n",
        b"5;a\n",
        b"5;a=\x01\r\n",
        b"5;\x00\r\n",
        b"5;a\xc3\r\n",
        b"5;a/b\r\n",
        b"5 a\r\n",
        b"5 5\r\n",
        b"\xef\xbc\x95\r\n",
        b"5\x00\r\n",
        b"5\x0b\r\n",
    ] {
        assert!(decode(&[body]).is_err(), "{}", body.escape_ascii());
        // And cut into bytes.
        let bytes: Vec<&[u8]> = body.chunks(1).collect();
        assert!(decode(&bytes).is_err(), "{}", body.escape_ascii());
    }
    assert!(decode(&[b"7fffffffffffffff\r\nx"]).is_ok());
}

#[test]
fn extensions_are_bounded() {
    let one = |n: usize| format!("1;{}\r\nx\r\n", "e".repeat(n));
    assert!(decode(&[one(200).as_bytes()]).is_ok());
    assert!(decode(&[one(300).as_bytes()]).is_err());
    assert!(decode(&[one(200).repeat(80).as_bytes()]).is_ok());
    assert!(decode(&[one(200).repeat(90).as_bytes()]).is_err());
}

#[test]
fn trailers() {
    let trailers = |section: &str| {
        let body = format!("1\r\nx\r\n0\r\n{section}\r\n");
        decode(&[body.as_bytes()]).map(|(_, rest, decoder)| {
            assert_eq!(rest, Some(Vec::new()));
            let text = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
            decoder.trailers().iter().map(|(n, v)| (text(n), text(v))).collect::<Vec<_>>()
        })
    };
    let own = |n: &str, v: &str| (n.to_owned(), v.to_owned());
    assert_eq!(trailers(""), Ok(vec![]));
    assert_eq!(trailers("X-Sum: 1\r\nETag:  \"a\" \r\n"), Ok(vec![own("X-Sum", "1"), own("ETag", "\"a\"")]));
    // Those that have no business there are dropped.
    for name in [
        "Connection",
        "Keep-Alive",
        "Te",
        "Upgrade",
        "Proxy-Connection",
        "Trailer",
        "Authorization",
        "Cookie",
        "Set-Cookie",
        "Content-Type",
        "Content-Encoding",
        "Content-Range",
        "Cache-Control",
        "Expect",
        "Range",
        "If-Match",
        "X-Forwarded-For",
        "X-Accel-Redirect",
        "Location",
    ] {
        assert_eq!(trailers(&format!("{name}: a\r\nX: b\r\n")), Ok(vec![own("X", "b")]), "{name}");
    }
    for section in [
        "Content-Length: 1\r\n",
        "transfer-encoding: chunked\r\n",
        "Host: a\r\n",
        "X : a\r\n",
        " X: a\r\n",
        "X: a\r\n b\r\n",
        ": a\r\n",
        "X\r\n",
        "X@: a\r\n",
        "X: a\0\r\n",
        "X: a\rb\r\n",
    ] {
        assert!(trailers(section).is_err(), "{section:?}");
    }
    let long = |n: usize| format!("X: {}\r\n", "a".repeat(n));
    assert!(trailers(&long(8000)).is_ok());
    assert!(trailers(&long(8200)).is_err());
}

#[test]
fn a_decoder_is_used_again() {
    let mut decoder = ChunkedDecoder::default();
    let mut first = *b"1;x\r\na\r\n0\r\nX: y\r\n\r\n";
    assert!(decoder.decode(&mut first).unwrap().finished);
    assert!(!decoder.trailers().is_empty());
    let mut nothing = *b"GET";
    assert_eq!(decoder.decode(&mut nothing).unwrap().consumed, 0);
    decoder.reset();
    assert!(decoder.trailers().is_empty() && !decoder.is_finished());
    let mut second = *b"2\r\nbc\r\n0\r\n\r\n";
    assert_eq!(decoder.decode(&mut second).unwrap().produced, 2);
}

#[test]
fn payload_can_be_moved_elsewhere() {
    let mut decoder = ChunkedDecoder::default();
    let step = decoder.step(b"a\r\n01").unwrap();
    assert_eq!((step.framing, step.payload, step.finished), (3, 2, false));
    assert_eq!(decoder.remaining(), 8);
    decoder.advance(8);
    assert_eq!(decoder.remaining(), 0);
    let step = decoder.step(b"\r\n0\r\n\r\nGET").unwrap();
    assert_eq!((step.framing, step.payload, step.finished), (7, 0, true));
}

#[test]
fn numbers() {
    let mut buf = [0; 20];
    for n in [0, 1, 9, 10, 15, 16, 255, 256, 4096, u64::from(u32::MAX), u64::MAX - 1, u64::MAX] {
        assert_eq!(write_decimal(&mut buf, n), n.to_string().as_bytes());
        assert_eq!(write_chunk_head(&mut buf, n), format!("{n:x}\r\n").as_bytes());
        let mut hex = Vec::new();
        push_hex(&mut hex, n);
        assert_eq!(hex, format!("{n:x}").as_bytes());
    }
}

fn cut<'a>(bytes: &'a [u8], cuts: &[usize]) -> Vec<&'a [u8]> {
    let mut at: Vec<usize> = cuts.iter().map(|c| c % (bytes.len() + 1)).collect();
    at.extend([0, bytes.len()]);
    at.sort_unstable();
    at.windows(2).map(|w| &bytes[w[0]..w[1]]).collect()
}

proptest! {
    #[test]
    fn what_is_written_is_read(
        chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..60), 0..8),
        cuts in prop::collection::vec(any::<usize>(), 0..20),
        extension in "(;[a-z]{1,5}(=([a-z]{1,5}|\"[ -!#-\\[\\]-~]{0,5}\"))?)?",
        following in prop::collection::vec(any::<u8>(), 0..10),
    ) {
        let mut body = Vec::new();
        for chunk in &chunks {
            push_hex(&mut body, chunk.len() as u64);
            body.extend_from_slice(extension.as_bytes());
            body.extend_from_slice(b"\r\n");
            body.extend_from_slice(chunk);
            body.extend_from_slice(b"\r\n");
        }
        body.extend_from_slice(b"0\r\nX-T: v\r\n\r\n");
        let end = body.len();
        body.extend_from_slice(&following);
        let (payload, rest, decoder) = decode(&cut(&body, &cuts)).unwrap();
        prop_assert_eq!(payload, chunks.concat());
        prop_assert_eq!(rest.as_deref(), Some(&body[end..]));
        prop_assert_eq!(decoder.trailers().iter().next(), Some((&b"X-T"[..], &b"v"[..])));
    }

    /// However nearly right bytes are cut, the outcome is the same.
    #[test]
    fn cuts_do_not_matter(body in "[0-3]{0,2}(\r\n|;a=\"b\"|[ -~]|\n|\r|0\r\n|[0-2]\r\n|A: b\r\n|ab\r\n){0,12}") {
        let body = body.as_bytes();
        let whole = decode(&[body]).map(|(payload, rest, _)| (payload, rest));
        let bytes: Vec<&[u8]> = body.chunks(1).collect();
        prop_assert_eq!(&decode(&bytes).map(|(payload, rest, _)| (payload, rest)), &whole);
        for i in 0..body.len() {
            let halves = [&body[..i], &body[i..]];
            prop_assert_eq!(&decode(&halves).map(|(payload, rest, _)| (payload, rest)), &whole);
        }
    }
}
