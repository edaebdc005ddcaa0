//! A blocking HTTP/1.1 client, as small as the tests need it; each test program uses a part of it.
#![allow(dead_code)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use balanza_lab::target::{Handle, STATS_PATH, Stats, Target};

/// An answer.
#[derive(Debug)]
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// Header lines, in lower case.
    pub headers: Vec<String>,
    /// The body.
    pub body: Vec<u8>,
}

/// A connection that asks one request after the other.
pub struct Client(BufReader<TcpStream>);

impl Client {
    /// Connects.
    pub fn new(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.set_nodelay(true).unwrap();
        Self(BufReader::new(stream))
    }

    /// Sends a whole request as it is.
    pub fn send(&mut self, request: &str) {
        self.0.get_mut().write_all(request.as_bytes()).unwrap();
    }

    /// Reads one answer with a Content-Length.
    pub fn receive(&mut self) -> Answer {
        let mut head = Vec::new();
        loop {
            let mut line = String::new();
            assert_ne!(self.0.read_line(&mut line).unwrap(), 0, "the server closed the connection after {head:?}");
            if line == "\r\n" {
                break;
            }
            head.push(line.trim_end().to_lowercase());
        }
        let length = head.iter().find_map(|line| line.strip_prefix("content-length: "));
        let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
        self.0.read_exact(&mut body).unwrap();
        Answer { status: head[0].split(' ').nth(1).unwrap().parse().unwrap(), headers: head, body }
    }

    /// GET.
    pub fn get(&mut self, path: &str) -> Answer {
        self.send(&format!("GET {path} HTTP/1.1\r\nHost: test\r\n\r\n"));
        self.receive()
    }

    /// Whether the server has closed the connection.
    pub fn closed(&mut self) -> bool {
        self.0.read(&mut [0]).unwrap() == 0
    }
}

/// A target on a free port.
pub fn spawn(target: Target) -> Handle {
    Target { listen: ([127, 0, 0, 1], 0).into(), ..target }.spawn().unwrap()
}

/// The counters over HTTP.
pub fn stats(handle: &Handle) -> Stats {
    serde_json::from_slice(&Client::new(handle.address()).get(STATS_PATH).body).unwrap()
}

/// Whether the target works on its first request, or has answered it.
pub fn has_begun(handle: &Handle) -> bool {
    let stats = handle.stats();
    stats.in_flight + stats.requests > 0
}

/// Waits until the condition holds.
pub fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(30), "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// `clients` threads, each with a connection and `requests` requests one after the other.
pub fn load(handle: &Handle, clients: usize, requests: usize) {
    let address = handle.address();
    std::thread::scope(|scope| {
        for _ in 0..clients {
            scope.spawn(move || {
                let mut client = Client::new(address);
                for _ in 0..requests {
                    assert_eq!(client.get("/").status, 200);
                }
            });
        }
    });
}
