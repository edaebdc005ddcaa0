//! A request on a connection and its answer, as a whole or line by line as it comes.

use std::future::poll_fn;
use std::io::IoSlice;
use std::task::Poll;
use std::time::Duration;

use balanza_http1::{Body, ChunkedDecoder, Parsed, ResponseHead};
use balanza_message::Method;
use balanza_net::buffer::{Buffer, CAPACITY};
use balanza_net::shortage::describe;
use balanza_net::transport::Transport;
use serde_json::Value;
use tokio::time::timeout;

/// How long a connection, and the head of an answer, may take.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// The longest answer, and the longest line of one.
const LONGEST: usize = 64 << 20;
const TOO_LONG: &str = "the answer is too long";

/// An answer whose body may still come.
pub struct Answer {
    /// The status.
    pub status: u16,
    fields: Vec<(Vec<u8>, Vec<u8>)>,
    /// Another request may follow on the connection, if nothing is behind the body.
    keeps: bool,
    socket: Transport,
    buffer: Buffer,
    body: Body,
    decoder: ChunkedDecoder,
    ended: bool,
    /// The body as far as it has come and was not taken.
    payload: Vec<u8>,
    /// What was taken of it.
    taken: usize,
    /// Bytes without a line feed behind those that were taken.
    searched: usize,
}

/// Why there is no answer.
pub struct Trouble {
    /// In words.
    pub why: String,
    /// The connection has ended, and nothing of an answer has come.
    pub is_over: bool,
}

impl Trouble {
    fn wrong(why: impl Into<String>) -> Trouble {
        Trouble { why: why.into(), is_over: false }
    }
}

/// Sends a request and waits for the head of the answer.
///
/// # Errors
/// The connection is lost, or the answer is not HTTP/1.1.
pub async fn exchange(socket: Transport, text: &[u8]) -> Result<Answer, Trouble> {
    let (mut sent, mut lost) = (0, None);
    let mut buffer = Buffer::take();
    let mut head = ResponseHead::default();
    loop {
        while !buffer.is_empty() {
            let bytes = buffer.unread();
            let length = match head.parse(bytes, Method::Get, CAPACITY) {
                Ok(Parsed::Incomplete) => break,
                Ok(Parsed::Complete(length)) => length,
                Err(error) => return Err(Trouble::wrong(format!("the answer is not HTTP/1.1: {}", error.reason))),
            };
            if head.is_interim() {
                buffer.start += length;
                continue;
            }
            let pair = |field: &balanza_http1::Field| (field.name.of(bytes).to_vec(), field.value.of(bytes).to_vec());
            let fields = head.fields.iter().map(pair).collect();
            buffer.start += length;
            return Ok(Answer {
                status: head.status,
                fields,
                keeps: head.keep_alive && head.status >= 200 && sent == text.len(),
                socket,
                buffer,
                body: head.body,
                decoder: ChunkedDecoder::default(),
                ended: false,
                payload: Vec::new(),
                taken: 0,
                searched: 0,
            });
        }
        if buffer.space().is_empty() {
            return Err(Trouble::wrong("the head of the answer is too long"));
        }
        let is_over = buffer.start == 0 && buffer.is_empty();
        let read = poll_fn(|cx| {
            while sent < text.len() && lost.is_none() {
                match socket.poll_send(cx, &[IoSlice::new(&text[sent..])], false) {
                    Poll::Ready(Ok(length)) => sent += length,
                    Poll::Ready(Err(error)) => lost = Some(error),
                    Poll::Pending => break,
                }
            }
            // A server that refuses a request may answer before it has all of it, and close.
            socket.poll_recv(cx, &mut buffer, usize::MAX)
        });
        let why = match (read.await, lost.take()) {
            (Ok(1..), error) => {
                lost = error;
                continue;
            }
            (_, Some(error)) | (Err(error), None) => describe(&error),
            (Ok(0), None) => "the connection was closed without an answer".to_owned(),
        };
        return Err(Trouble { why, is_over });
    }
}

impl Answer {
    /// A field of the head.
    pub fn field(&self, name: &str) -> Option<&str> {
        let found = self.fields.iter().find(|(known, _)| known.eq_ignore_ascii_case(name.as_bytes()));
        found.and_then(|(_, value)| std::str::from_utf8(value).ok())
    }

    /// The answer, if the status is 200.
    ///
    /// # Errors
    /// It is another one, with what the body says of it.
    pub async fn good(mut self) -> Result<Answer, String> {
        if self.status == 200 {
            return Ok(self);
        }
        self.all(LONGEST).await?;
        Err(refused(self.status, &self.payload))
    }

    /// The whole body as JSON, if the status is 200.
    ///
    /// # Errors
    /// It does not come in time, is too long or no JSON, or the status is another one.
    pub async fn json(self) -> Result<Value, String> {
        serde_json::from_slice(&self.bytes(LONGEST).await?).map_err(|error| format!("the answer is not JSON: {error}"))
    }

    /// The whole body of so many bytes at most, if the status is 200.
    ///
    /// # Errors
    /// It does not come in time or is longer, or the status is another one.
    pub async fn bytes(mut self, most: usize) -> Result<Vec<u8>, String> {
        self.all(most).await?;
        match self.status {
            200 => Ok(self.payload),
            status => Err(refused(status, &self.payload)),
        }
    }

    /// The whole body of so many bytes at most, whatever the status is, and the connection if another request may follow.
    ///
    /// # Errors
    /// It does not come in time or is longer.
    pub async fn whole(mut self, most: usize) -> Result<(Vec<u8>, Option<Transport>), String> {
        self.all(most).await?;
        let keeps = self.keeps && self.buffer.is_empty();
        Ok((self.payload, keeps.then_some(self.socket)))
    }

    /// Waits for the whole body.
    async fn all(&mut self, most: usize) -> Result<(), String> {
        let all = async {
            while self.more().await? {
                if self.payload.len() > most {
                    return Err(TOO_LONG.into());
                }
            }
            Ok(())
        };
        timeout(PATIENCE, all).await.map_err(|_| "no complete answer in time".to_owned())?
    }

    /// The next line of the body; none at its end. A caller may stop waiting and ask again.
    ///
    /// # Errors
    /// The connection is lost, or the line is too long.
    pub async fn line(&mut self) -> Result<Option<&[u8]>, String> {
        loop {
            let from = self.taken + self.searched;
            if let Some(end) = self.payload[from..].iter().position(|byte| *byte == b'\n') {
                let begin = self.taken;
                self.taken = from + end + 1;
                self.searched = 0;
                return Ok(Some(self.payload[begin..from + end].trim_ascii()));
            }
            self.searched = self.payload.len() - self.taken;
            if !self.more().await? {
                let begin = std::mem::replace(&mut self.taken, self.payload.len());
                self.searched = 0;
                let rest = self.payload[begin..].trim_ascii();
                return Ok((!rest.is_empty()).then_some(rest));
            }
        }
    }

    /// Reads more of the body; false at its end.
    async fn more(&mut self) -> Result<bool, String> {
        if self.taken > 0 {
            self.payload.drain(..self.taken);
            self.taken = 0;
        }
        let before = self.payload.len();
        loop {
            self.decode()?;
            if self.payload.len() > before {
                return Ok(true);
            }
            if self.ended {
                return Ok(false);
            }
            if self.buffer.is_empty() {
                (self.buffer.start, self.buffer.end) = (0, 0);
            }
            let read = poll_fn(|cx| self.socket.poll_recv(cx, &mut self.buffer, usize::MAX)).await;
            match read.map_err(|error| describe(&error))? {
                0 if self.body == Body::UntilClose => self.ended = true,
                0 => return Err("the connection was closed in the middle of an answer".into()),
                _ => {}
            }
        }
    }

    /// Takes over what has come of the body.
    fn decode(&mut self) -> Result<(), String> {
        if self.ended {
            return Ok(());
        }
        let come = self.buffer.unread_mut();
        let used = match &mut self.body {
            Body::None => {
                self.ended = true;
                0
            }
            Body::Length(left) => {
                let used = come.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                self.payload.extend_from_slice(&come[..used]);
                *left -= used as u64;
                self.ended = *left == 0;
                used
            }
            Body::Chunked => {
                let decoded = self.decoder.decode(come).map_err(|error| format!("wrong chunks: {}", error.reason))?;
                self.payload.extend_from_slice(&come[..decoded.produced]);
                self.ended = decoded.finished;
                decoded.consumed
            }
            Body::UntilClose => {
                self.payload.extend_from_slice(come);
                come.len()
            }
        };
        self.buffer.start += used;
        match self.payload.len() > LONGEST {
            true => Err(TOO_LONG.into()),
            false => Ok(()),
        }
    }
}

/// What a body says, as far as a message has room for it.
pub fn first_line(body: &[u8]) -> String {
    String::from_utf8_lossy(body).lines().next().unwrap_or_default().trim().to_owned()
}

/// A status other than 200, with what the body says of it.
fn refused(status: u16, body: &[u8]) -> String {
    let text = match serde_json::from_slice::<Value>(body) {
        Ok(value) => {
            let said = ["message", "error"].iter().find_map(|name| value.get(name)?.as_str().map(str::to_owned));
            said.unwrap_or_default()
        }
        Err(_) => first_line(body),
    };
    let text: String = text.chars().take(200).collect();
    if text.is_empty() { format!("status {status}") } else { format!("status {status}: {text}") }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};

    use balanza_net::event_loop;
    use balanza_net::transport::{ConnectOptions, Destination, connect};

    use super::*;

    /// Runs a test with a connection to a server.
    fn with<F: Future<Output = ()>>(
        serve: impl FnOnce(TcpStream) + Send + 'static,
        test: impl FnOnce(Transport) -> F + 'static,
    ) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || serve(listener.accept().unwrap().0));
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build_local(Default::default()).unwrap();
        let test = async move {
            let socket = connect(&Destination::Inet(address), &ConnectOptions::default()).unwrap();
            poll_fn(|cx| socket.poll_connected(cx)).await.unwrap();
            test(socket).await;
        };
        runtime.block_on(event_loop::run(test)).unwrap();
        server.join().unwrap();
    }

    /// What a request comes to on a connection over which this is answered.
    fn answered<F: Future<Output = bool>>(answer: &'static [u8], judge: impl FnOnce(Transport) -> F + 'static) -> bool {
        let result = std::rc::Rc::new(std::cell::Cell::new(false));
        let found = std::rc::Rc::clone(&result);
        let serve = |mut client: TcpStream| {
            let _ = client.read(&mut [0; 100]);
            client.write_all(answer).unwrap();
        };
        with(serve, move |socket| async move { result.set(judge(socket).await) });
        found.get()
    }

    /// Whether another request may follow after this answer.
    fn keeps(answer: &'static [u8]) -> bool {
        answered(answer, |socket| async {
            let answer = exchange(socket, b"GET / HTTP/1.1\r\n\r\n").await.ok().unwrap();
            answer.whole(10).await.unwrap().1.is_some()
        })
    }

    #[test]
    fn connections_are_kept_only_if_it_is_clear_where_an_answer_ends() {
        assert!(keeps(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"));
        assert!(keeps(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"));
        assert!(keeps(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n"));
        assert!(!keeps(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok!"));
        assert!(!keeps(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok"));
        assert!(!keeps(b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok"));
        assert!(!keeps(b"HTTP/1.1 200 OK\r\n\r\nok"));
        assert!(!keeps(b"HTTP/1.1 101 Other\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n"));
    }

    #[test]
    fn a_request_may_be_refused_before_all_of_it_is_sent() {
        let (done, wait) = std::sync::mpsc::channel::<()>();
        let serve = move |mut client: TcpStream| {
            client.write_all(b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno").unwrap();
            // It neither reads nor closes until the test is over.
            let _ = wait.recv();
        };
        with(serve, move |socket| async move {
            let request = vec![b'a'; 64 << 20];
            let answer = exchange(socket, &request).await.ok().unwrap();
            assert_eq!(answer.status, 413);
            let (body, connection) = answer.whole(10).await.unwrap();
            assert!(body == b"no" && connection.is_none());
            drop(done);
        });
    }

    #[test]
    fn a_connection_that_is_over_before_an_answer_is_told_apart() {
        let is_over = |answer: &'static [u8]| {
            answered(answer, |socket| async {
                exchange(socket, b"GET / HTTP/1.1\r\n\r\n").await.err().unwrap().is_over
            })
        };
        assert!(is_over(b""));
        assert!(!is_over(b"H"));
        assert!(!is_over(b"HTTP/1.1 100 Continue\r\n\r\n"));
        assert!(!is_over(b"hello\r\n\r\n"));
    }

    #[test]
    fn bodies_are_bounded() {
        let serve = |mut client: TcpStream| {
            let _ = client.read(&mut [0; 100]);
            let _ = client.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
            while client.write_all(&[b'a'; 1000]).is_ok() {}
        };
        with(serve, |socket| async move {
            let answer = exchange(socket, b"GET / HTTP/1.1\r\n\r\n").await.ok().unwrap();
            assert_eq!(answer.whole(100_000).await.err().as_deref(), Some(TOO_LONG));
        });
    }

    #[test]
    fn refusals_say_why() {
        assert_eq!(refused(401, b""), "status 401");
        assert_eq!(refused(403, b"{\"message\":\"no rights\"}"), "status 403: no rights");
        assert_eq!(refused(500, b"No cluster leader\nat all"), "status 500: No cluster leader");
    }
}
