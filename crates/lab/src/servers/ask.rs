//! One request on a connection of its own: for counters and probes, not for load.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};

/// Answers of counters and probes are small.
const ANSWER_MAX: u64 = 4 << 20;

/// What came back.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Answer {
    pub status: u16,
    /// Who says that he answered: `X-Server`.
    pub server: Option<String>,
    pub body: String,
}

/// Asks for a path, from an address of this machine if one is given.
///
/// Errors: no connection, or no whole answer in time.
pub(crate) fn ask(
    to: SocketAddr,
    host: &str,
    path: &str,
    from: Option<Ipv4Addr>,
    limit: Duration,
) -> io::Result<Answer> {
    let end = Instant::now() + limit;
    let rest = || match end.saturating_duration_since(Instant::now()) {
        Duration::ZERO => Err(io::Error::from(io::ErrorKind::TimedOut)),
        rest => Ok(rest),
    };
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, None)?;
    if let Some(from) = from {
        socket.bind(&SocketAddr::from((from, 0)).into())?;
    }
    socket.connect_timeout(&to.into(), rest()?)?;
    let mut stream = TcpStream::from(socket);
    stream.set_write_timeout(Some(rest()?))?;
    // In one piece: whoever answers the first piece and closes would make the next one fail.
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: balanza-lab\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut bytes = Vec::new();
    let mut part = [0; 16 << 10];
    // The length may say where the answer ends before the connection does.
    while !is_whole(&bytes) && (bytes.len() as u64) < ANSWER_MAX {
        stream.set_read_timeout(Some(rest()?))?;
        match stream.read(&mut part)? {
            0 => break,
            length => bytes.extend_from_slice(&part[..length]),
        }
    }
    parse(&bytes).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the answer is not HTTP"))
}

fn is_whole(bytes: &[u8]) -> bool {
    let Some(head) = head(bytes) else { return false };
    let text = String::from_utf8_lossy(&bytes[..head]);
    let length = field(&text, "content-length").and_then(|length| length.parse::<usize>().ok());
    length.is_some_and(|length| bytes.len() >= head + length)
}

fn parse(bytes: &[u8]) -> Option<Answer> {
    let length = head(bytes)?;
    let head = String::from_utf8_lossy(&bytes[..length]);
    let status = head.strip_prefix("HTTP/1.")?.split(' ').nth(1)?.trim().parse().ok()?;
    let body = String::from_utf8_lossy(&bytes[length..]).into_owned();
    Some(Answer { status, server: field(&head, "x-server"), body })
}

fn head(bytes: &[u8]) -> Option<usize> {
    bytes.windows(4).position(|four| four == b"\r\n\r\n").map(|place| place + 4)
}

fn field(head: &str, name: &str) -> Option<String> {
    head.lines().skip(1).find_map(|line| {
        let (key, value) = line.split_once(':')?;
        key.eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
    })
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn answered(bytes: &'static [u8], close: bool) -> (io::Result<Answer>, String, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, peer) = listener.accept().unwrap();
            let mut request = [0; 1024];
            let length = stream.read(&mut request).unwrap();
            stream.write_all(bytes).unwrap();
            if !close {
                // Until the other side closes.
                let _ = stream.read(&mut [0; 1]);
            }
            (String::from_utf8_lossy(&request[..length]).into_owned(), peer)
        });
        let answer = ask(to, "lab", "/page", Some(Ipv4Addr::new(127, 1, 9, 1)), Duration::from_secs(20));
        let (request, peer) = server.join().unwrap();
        (answer, request, peer)
    }

    #[test]
    fn an_answer_with_a_length_ends_there() {
        let bytes = b"HTTP/1.1 200 OK\r\nX-Server: web-2\r\ncontent-length: 5\r\n\r\nhello";
        let (answer, request, peer) = answered(bytes, false);
        let expected = Answer { status: 200, server: Some("web-2".into()), body: "hello".into() };
        assert_eq!(answer.unwrap(), expected);
        assert!(request.starts_with("GET /page HTTP/1.1\r\nHost: lab\r\n"), "{request}");
        assert_eq!(peer.ip(), Ipv4Addr::new(127, 1, 9, 1));
    }

    #[test]
    fn other_answers_end_with_the_connection() {
        let answer = answered(b"HTTP/1.0 503 Service Unavailable\r\n\r\nno", true).0.unwrap();
        assert_eq!(answer, Answer { status: 503, server: None, body: "no".into() });
        assert_eq!(answered(b"hello", true).0.unwrap_err().kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn silence_is_not_waited_for() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = listener.local_addr().unwrap();
        let error = ask(to, "lab", "/", None, Duration::from_millis(50)).unwrap_err();
        assert!(matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut), "{error}");
    }
}
