//! Whole connections by which requests are smuggled past proxies. Each must be cut off before a second reading of its
//! bytes is possible: what is served is what every strict recipient would see, and nothing is served after a refusal.

use balanza_http1::{Body, ChunkedDecoder, Limits, Parsed, RequestHead};

#[derive(Debug, PartialEq, Eq)]
enum Event {
    Served(String, Vec<u8>),
    Refused(u16),
    /// The connection waits for more.
    Waits,
}

/// Reads a connection as the proxy does: requests with their bodies, up to the first refusal.
fn read(mut stream: &[u8]) -> Vec<Event> {
    let mut events = Vec::new();
    let mut head = RequestHead::default();
    while !stream.is_empty() {
        let len = match head.parse(stream, &Limits::default()) {
            Ok(Parsed::Complete(len)) => len,
            Ok(Parsed::Incomplete) => {
                events.push(Event::Waits);
                break;
            }
            Err(error) => {
                events.push(Event::Refused(error.status));
                break;
            }
        };
        let path = String::from_utf8_lossy(head.path.of(stream)).into_owned();
        let rest = &stream[len..];
        let (body, used) = match head.body {
            Body::None => (Vec::new(), 0),
            Body::Length(length) if (rest.len() as u64) < length => {
                events.push(Event::Waits);
                break;
            }
            Body::Length(length) => (rest[..length as usize].to_vec(), length as usize),
            Body::Chunked => {
                let mut buf = rest.to_vec();
                match ChunkedDecoder::default().decode(&mut buf) {
                    Ok(decoded) if decoded.finished => (buf[..decoded.produced].to_vec(), decoded.consumed),
                    Ok(_) => {
                        events.push(Event::Waits);
                        break;
                    }
                    Err(_) => {
                        events.push(Event::Refused(400));
                        break;
                    }
                }
            }
            Body::UntilClose => panic!("no request ends so"),
        };
        events.push(Event::Served(path, body));
        stream = &rest[used..];
    }
    events
}

const SMUGGLED: &str = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";

fn post(fields: &str, body: &str) -> String {
    format!("POST /first HTTP/1.1\r\nHost: a\r\n{fields}\r\n{body}")
}

#[test]
fn refused_at_the_head() {
    for fields in [
        // Both framings, in either order, and in disguise.
        "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n",
        "Content-Length: 4\r\nTransfer-Encoding: xchunked\r\n",
        "Content-Length: 4\r\nTransfer-Encoding : chunked\r\n",
        "Content-Length: 4\r\nTransfer-Encoding\t: chunked\r\n",
        "Content-Length: 4\r\nTransfer-Encoding\x0b: chunked\r\n",
        "Content-Length: 4\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n",
        "Content-Length: 4\r\nTransfer-Encoding: x\r\nTransfer-Encoding: chunked\r\n",
        "Content-Length: 4\r\n Transfer-Encoding: chunked\r\n",
        "Content-Length: 4\r\nX: x\nTransfer-Encoding: chunked\r\n",
        "Content-Length: 4\r\nX: x\rTransfer-Encoding: chunked\r\n",
        "Content-Length: 4\r\nX: x\r\r\nTransfer-Encoding: chunked\r\n",
        "Content-Length: 4\r\nX: x\0Transfer-Encoding: chunked\r\n",
        "Content-Length: 4\r\nTransfer-Encoding:\r\n chunked\r\n",
        "Content-Length: 4\r\nTransfer-Encoding: chunk\\ed\r\n",
        "Content-Length: 4\r\nTransfer-Encoding: 'chunked'\r\n",
        "Content-Length: 4\r\nTransfer-Encoding:\x00chunked\r\n",
        "Content-Length: 4\r\nTransfer-Encoding:\u{2028}chunked\r\n",
        "Content-Length: 4\r\n\u{feff}Transfer-Encoding: chunked\r\n",
        "Content-Length: 4\r\nTransfer-Encoding;: chunked\r\n",
        "Content-Length: 4\r\n\"Transfer-Encoding\": chunked\r\n",
        // Lengths of which one could be overlooked.
        "Content-Length: 0\r\nContent-Length: 37\r\n",
        "Content-Length: 37\r\nContent-Length: 0\r\n",
        "Content-Length: 0, 37\r\n",
        "Content-Length : 37\r\n",
        "Content-Length\t: 37\r\n",
        "Content-Length:\r\n 37\r\n",
        "Content-Length: 37abc\r\n",
        "Content-Length: 0x25\r\n",
        "Content-Length: +37\r\n",
        "Content-Length: 37,\r\n",
        "Content-Length: 3 7\r\n",
        "Content-Length: 18446744073709551653\r\n",
        "Content-Length: 4294967333000000000000\r\n",
        "Content-Length@: 37\r\n",
    ] {
        let stream = post(fields, "0\r\n\r\n") + SMUGGLED;
        assert_eq!(read(stream.as_bytes()), [Event::Refused(400)], "{fields:?}");
    }
}

#[test]
fn refused_in_the_body() {
    for body in [
        "0\n\r\n",
        "0\r\n\n",
        "5\nhello\r\n0\r\n\r\n",
        "5\rxhello\r\n0\r\n\r\n",
        "5\r\nhello\n0\r\n\r\n",
        "5\r\nhelloX0\r\n\r\n",
        "0x5\r\nhello\r\n0\r\n\r\n",
        "5 \r\nhello\r\n0\r\n\r\n",
        "+5\r\nhello\r\n0\r\n\r\n",
        "-1\r\n\r\n",
        "10000000000000005\r\nhello\r\n0\r\n\r\n",
        "5;\nhello\r\n0\r\n\r\n",
        "5;a\nx\r\nhello\r\n0\r\n\r\n",
        "5;a\rx\r\nhello\r\n0\r\n\r\n",
        "5;a=\"\n\"\r\nhello\r\n0\r\n\r\n",
        "5,1\r\nhello\r\n0\r\n\r\n",
        "\r\n5\r\nhello\r\n0\r\n\r\n",
        "0\r\nContent-Length: 37\r\n\r\n",
        "0\r\nTransfer-Encoding: chunked\r\n\r\n",
        "0\r\nX: y\n\r\n",
        "0\r\n X: y\r\n\r\n",
        "0\r\nX\r\n\r\n",
        "0\r\n\rX\r\n\r\n",
        "0_0\r\n\r\n",
        "0\r\nHost: b\r\n\r\n",
        "00000000000000000\r\n\r\n",
        "0\x0b\r\n\r\n",
        "0\u{a0}\r\n\r\n",
    ] {
        let stream = post("Transfer-Encoding: chunked\r\n", body) + SMUGGLED;
        assert_eq!(read(stream.as_bytes()), [Event::Refused(400)], "{body:?}");
    }
}

#[test]
fn read_in_the_one_way_there_is() {
    let served = |path: &str, body: &str| Event::Served(path.into(), body.into());
    // The bytes of a request in a body are a body.
    let stream = post("Content-Length: 37\r\n", &SMUGGLED.replace("smuggled", "smuggled?"));
    assert_eq!(read(stream.as_bytes()).len(), 1);
    let chunk = format!("{:x}\r\n{SMUGGLED}\r\n0\r\n\r\n", SMUGGLED.len());
    assert_eq!(read(post("Transfer-Encoding: chunked\r\n", &chunk).as_bytes()), [served("/first", SMUGGLED)]);
    // Without framing there is no body: what follows is a request, on every method.
    for method in ["GET", "POST", "PUT", "DELETE", "OPTIONS"] {
        let stream = format!("{method} /first HTTP/1.1\r\nHost: a\r\n\r\n{SMUGGLED}");
        assert_eq!(read(stream.as_bytes()), [served("/first", ""), served("/smuggled", "")]);
    }
    // A GET with a body has one.
    let stream = format!("GET /first HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{SMUGGLED}", SMUGGLED.len());
    assert_eq!(read(stream.as_bytes()), [served("/first", SMUGGLED)]);
    // Names that only resemble are no framing, and are not forwarded either.
    let stream = post("Transfer_Encoding: chunked\r\nContent_Length: 37\r\n", SMUGGLED);
    assert_eq!(read(stream.as_bytes()), [served("/first", ""), served("/smuggled", "")]);
    // Pipelined after a chunked body with extensions and trailers.
    let stream =
        post("Transfer-Encoding: chunked\r\n", "1;a=\"0\"\r\nx\r\n0;b\r\nX-T: GET / HTTP/1.1\r\n\r\n") + SMUGGLED;
    assert_eq!(read(stream.as_bytes()), [served("/first", "x"), served("/smuggled", "")]);
}

#[test]
fn lines_hidden_in_the_target_or_host() {
    for start in [
        "GET /first\r\nX: y HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /first HTTP/1.1\rX: y\r\nHost: a\r\n\r\n",
        "GET /first HTTP/1.1 HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /first HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        "GET /first HTTP/1.1\r\nHost: a\r\n Host: b\r\n\r\n",
        "GET http://b@a/first HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET http://a\\@b/first HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET http://a/first HTTP/1.1\r\nHost: b\r\nHost: a\r\n\r\n",
        "GET @b/first HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /first HTTP/1.1\r\nHost: a/smuggled\r\n\r\n",
        "GET /first HTTP/1.1\r\nHost: a?x\r\n\r\n",
        "GET /first HTTP/1.1\r\nHost: a#x\r\n\r\n",
        "GET /first HTTP/1.1\r\n\r\n",
        "GET /first HTTP/1.1\r\nHost : a\r\n\r\n",
        "GET /first\r\n\r\n",
    ] {
        let stream = start.to_owned() + SMUGGLED;
        assert_eq!(read(stream.as_bytes()), [Event::Refused(400)], "{start:?}");
    }
    // Preludes of other protocols.
    assert_eq!(read(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), [Event::Refused(505)]);
    assert_eq!(read(b"PROXY TCP4 1.2.3.4 1.2.3.4 1 2\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n"), [Event::Refused(400)]);
    // A tunnel begins right behind its head, and nothing may say otherwise.
    for fields in ["Content-Length: 36\r\n", "Transfer-Encoding: chunked\r\n"] {
        let stream = format!("CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n{fields}\r\n{SMUGGLED}");
        assert_eq!(read(stream.as_bytes()), [Event::Refused(400)], "{fields:?}");
    }
}
