//! Time to parse heads, in nanoseconds: `cargo bench -p balanza-http1`. The median of many short runs is printed, so that
//! neither interrupts nor a busy machine count.

#![allow(clippy::disallowed_methods, reason = "it measures time")]

use std::hint::black_box;
use std::time::Instant;

use balanza_http1::{ChunkedDecoder, Limits, Method, RequestHead, ResponseHead};
use balanza_message::uri;

const BROWSER: &[u8] = b"GET /assets/app.3f9c1d.js?v=20240117 HTTP/1.1\r\n\
    Host: www.example.com\r\n\
    User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0\r\n\
    Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\n\
    Accept-Language: en-US,en;q=0.5\r\n\
    Accept-Encoding: gzip, deflate, br, zstd\r\n\
    Referer: https://www.example.com/shop/index.html\r\n\
    Connection: keep-alive\r\n\
    Cookie: session=0123456789abcdef0123456789abcdef; theme=dark\r\n\
    If-None-Match: \"65a7d1b2-2f1c\"\r\n\
    Cache-Control: max-age=0\r\n\r\n";

const MINIMAL: &[u8] = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";

const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\n\
    Server: nginx/1.22.1\r\n\
    Date: Wed, 17 Jan 2024 12:00:00 GMT\r\n\
    Content-Type: application/javascript; charset=utf-8\r\n\
    Content-Length: 12060\r\n\
    Last-Modified: Wed, 17 Jan 2024 11:00:00 GMT\r\n\
    Connection: keep-alive\r\n\
    ETag: \"65a7d1b2-2f1c\"\r\n\
    Cache-Control: public, max-age=3600\r\n\
    Vary: Accept-Encoding\r\n\
    Accept-Ranges: bytes\r\n\r\n";

const MINIMAL_RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 200\r\n\r\n";

fn measure(name: &str, mut work: impl FnMut()) {
    const TURNS: u32 = 2000;
    let mut runs: Vec<f64> = (0..201)
        .map(|_| {
            let start = Instant::now();
            for _ in 0..TURNS {
                work();
            }
            start.elapsed().as_nanos() as f64 / f64::from(TURNS)
        })
        .collect();
    runs.sort_by(f64::total_cmp);
    println!("{name:<28} {:>8.1} ns  (least {:.1})", runs[runs.len() / 2], runs[0]);
}

fn main() {
    let limits = Limits::default();
    let mut request = RequestHead::default();
    let mut response = ResponseHead::default();
    measure("request, browser", || {
        black_box(request.parse(black_box(BROWSER), &limits)).unwrap();
    });
    measure("request, minimal", || {
        black_box(request.parse(black_box(MINIMAL), &limits)).unwrap();
    });
    measure("response, 10 fields", || {
        black_box(response.parse(black_box(RESPONSE), Method::Get, 4096)).unwrap();
    });
    measure("response, minimal", || {
        black_box(response.parse(black_box(MINIMAL_RESPONSE), Method::Get, 4096)).unwrap();
    });

    let chunk = [b"4000\r\n", &[b'x'; 0x4000][..], b"\r\n"].concat();
    let mut decoder = ChunkedDecoder::default();
    let mut buf = chunk.clone();
    measure("chunk of 16 KiB, in place", || {
        buf.copy_from_slice(&chunk);
        black_box(decoder.decode(black_box(&mut buf))).unwrap();
    });
    measure("chunk of 16 KiB, steps", || {
        let mut at = 0;
        while at < chunk.len() {
            let step = decoder.step(black_box(&chunk[at..])).unwrap();
            at += step.framing + step.payload;
        }
    });
    let mut out = Vec::new();
    measure("path with an escape", || {
        black_box(uri::normalise(black_box(b"/shop/caf%C3%A9/../index.html"), true, &mut out)).unwrap();
    });
}
