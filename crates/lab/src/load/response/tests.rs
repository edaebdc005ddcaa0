//! Answers of every framing, and what is none.

use proptest::prelude::*;

use super::*;

/// What came of a text, fed in pieces that end at `cuts`: bytes taken, status, bytes of the answer, keep-alive, server.
fn read(text: &[u8], cuts: &[usize]) -> Result<(usize, bool, u16, bool, Option<String>), Malformed> {
    let mut reader = Reader::default();
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (text.len() + 1)).collect();
    cuts.extend([0, text.len()]);
    cuts.sort_unstable();
    let mut taken = 0;
    for piece in cuts.windows(2) {
        taken += reader.feed(&text[piece[0]..piece[1]])?;
        if reader.is_complete() {
            break;
        }
    }
    assert_eq!(reader.bytes(), taken as u64);
    let server = reader.server().map(|name| String::from_utf8_lossy(name).into_owned());
    let complete = reader.is_complete();
    Ok((taken, complete, if complete { reader.status() } else { 0 }, complete && reader.keeps_alive(), server))
}

fn whole(text: &str) -> Option<(u16, bool)> {
    let (taken, complete, status, keeps_alive, _) = read(text.as_bytes(), &[]).ok()?;
    (complete && taken == text.len()).then_some((status, keeps_alive))
}

#[test]
fn answers_of_every_framing_are_read() {
    for (text, expected) in [
        ("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", (200, true)),
        ("HTTP/1.1 200\r\ncontent-length:0\r\n\r\n", (200, true)),
        ("HTTP/1.1 502 Bad Gateway\r\nContent-Length: 1\r\nConnection: Foo, close\r\n\r\nx", (502, false)),
        ("HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\nx", (200, false)),
        ("HTTP/1.0 200 OK\r\nContent-Length: 1\r\nConnection: keep-alive\r\n\r\nx", (200, true)),
        ("HTTP/1.1 204 No Content\r\n\r\n", (204, true)),
        ("HTTP/1.1 304 Not Modified\r\nContent-Length: 10\r\n\r\n", (304, true)),
        ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nab", (200, true)),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n1A;x=y\r\n01234567890123456789012345\r\n0\r\n\r\n",
            (200, true),
        ),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n0\r\nX-Sum: 1\r\nY: 2\r\n\r\n", (200, true)),
        (
            "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
            (404, true),
        ),
    ] {
        assert_eq!(whole(text), Some(expected), "{text:?}");
    }
}

#[test]
fn what_can_be_read_in_two_ways_is_refused() {
    for text in [
        "HTTP/2 200 OK\r\n\r\n",
        "HTTP/1.1 20 OK\r\n\r\n",
        "HTTP/1.1 2000 OK\r\n\r\n",
        "HTTP/1.1 600 OK\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\n\r\n",
        "SSH-2.0-OpenSSH\r\n\r\n",
        "HTTP/1.1 200 OK\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 0\nX: y\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX: a\rb\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX: a\0b\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        "HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\na",
        "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\na",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX : y\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX: y\r\n folded\r\n\r\n",
        "HTTP/1.1 200 OK\r\n: y\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nabcg\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\nx\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nxy\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n11111111111111111\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nno field\r\n\r\n",
    ] {
        assert_eq!(read(text.as_bytes(), &[]), Err(Malformed), "{text:?}");
    }
    let endless = format!("HTTP/1.1 200 OK\r\nX: {}", "x".repeat(HEAD_MAX));
    assert_eq!(read(endless.as_bytes(), &[]), Err(Malformed));
    let lines = format!("HTTP/1.1 200 OK\r\n{}", "X: y\r\n".repeat(HEAD_MAX / 6));
    assert_eq!(read(lines.as_bytes(), &[]), Err(Malformed));
}

#[test]
fn an_answer_may_end_with_its_connection() {
    let mut reader = Reader::default();
    reader.feed(b"HTTP/1.1 200 OK\r\n\r\nabc").unwrap();
    assert!(!reader.is_complete());
    assert!(reader.closed() && !reader.keeps_alive());

    let mut reader = Reader::default();
    reader.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nabc").unwrap();
    assert!(!reader.closed());
    let mut reader = Reader::default();
    reader.feed(b"HTTP/1.1 200 OK\r\n").unwrap();
    assert!(!reader.closed());
}

#[test]
fn the_server_says_its_name() {
    for (field, name) in [
        ("X-Server: web-1\r\n", Some("web-1")),
        ("x-server:\t web 1 \t\r\n", Some("web 1")),
        ("X-Server:\r\n", Some("")),
        ("", None),
    ] {
        let text = format!("HTTP/1.1 200 OK\r\n{field}Content-Length: 0\r\n\r\n");
        assert_eq!(read(text.as_bytes(), &[]).unwrap().4.as_deref(), name, "{field:?}");
    }
}

#[test]
fn a_reader_can_be_used_again() {
    let text =
        b"HTTP/1.1 200 OK\r\nX-Server: a\r\nContent-Length: 1\r\n\r\nxHTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n";
    let mut reader = Reader::default();
    let first = reader.feed(text).unwrap();
    assert_eq!((reader.status(), reader.server()), (200, Some(&b"a"[..])));
    assert!(first < text.len(), "the rest is not of this answer");
    reader.reset(false);
    assert_eq!(reader.feed(&text[first..]), Ok(text.len() - first));
    assert_eq!((reader.status(), reader.server(), reader.is_complete()), (404, None, true));
}

fn field() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("X-Server: s1\r\n".to_owned()),
        Just("Connection: close\r\n".to_owned()),
        Just("Transfer-Encoding: chunked\r\n".to_owned()),
        Just("Bad field\r\n".to_owned()),
        (0u32..12).prop_map(|length| format!("Content-Length: {length}\r\n")),
    ]
}

fn answer() -> impl Strategy<Value = Vec<u8>> {
    let status = prop_oneof![Just(100u16), Just(200), Just(204), Just(503)];
    let body = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..16),
        prop::collection::vec(1usize..20, 0..4).prop_map(|sizes| {
            let chunks = sizes.iter().map(|&size| format!("{size:x}\r\n{}\r\n", "c".repeat(size)));
            (chunks.collect::<String>() + "0\r\nT: 1\r\n\r\n").into_bytes()
        }),
    ];
    (status, prop::collection::vec(field(), 0..3), body).prop_map(|(status, fields, body)| {
        let mut text = format!("HTTP/1.1 {status} Reason\r\n{}\r\n", fields.concat()).into_bytes();
        text.extend(body);
        text
    })
}

proptest! {
    #[test]
    fn how_the_bytes_are_cut_makes_no_difference(
        text in answer(),
        cuts in prop::collection::vec(any::<usize>(), 0..12),
    ) {
        let one_by_one: Vec<usize> = (0..text.len()).collect();
        prop_assert_eq!(read(&text, &cuts), read(&text, &[]));
        prop_assert_eq!(read(&text, &one_by_one), read(&text, &[]));
    }

    #[test]
    fn nothing_makes_it_panic(text in prop::collection::vec(any::<u8>(), 0..200), cuts in prop::collection::vec(any::<usize>(), 0..4)) {
        let _ = read(&text, &cuts);
    }
}
