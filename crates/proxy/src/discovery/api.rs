//! A small HTTP/1.1 client for the interfaces of sources: connections, and requests for JSON with one connection each.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use balanza_config::model::discover::{Api, Place};
use balanza_config::read_file;
use balanza_message::uri::{Escape, escape};
use balanza_net::shortage::describe;
use balanza_net::transport::{self, ConnectOptions, Destination, Transport};
use balanza_tls::client::server_name;
use serde_json::Value;
use tokio::time::timeout;

use super::exchange::exchange;
pub use super::exchange::{Answer, PATIENCE};

/// The largest file with a token or a password.
const SECRET_MAX: u64 = 64 << 10;

/// A request.
#[derive(Default)]
pub struct Request<'a> {
    /// The target in origin form.
    pub target: String,
    /// Sent with POST if there is one, and with GET otherwise.
    pub json: Option<&'a Value>,
    /// The value of Authorization; without it the API's token.
    pub authorization: Option<String>,
    /// A further field.
    pub field: Option<(&'static str, String)>,
    /// The type of the answer in place of JSON.
    pub accept: Option<&'static str>,
}

/// Sends a request and waits for the head of the answer.
///
/// # Errors
/// There is none in time, or it is not HTTP.
pub async fn send(api: &Api, request: &Request<'_>, patience: Duration) -> Result<Answer, String> {
    let token = api.token.as_deref();
    let text = compose(&api.authority, token, request)?;
    let socket = connect(api).await?;
    let answer = timeout(patience, exchange(socket, &text)).await;
    answer.map_err(|_| "no answer in time".to_owned())?.map_err(|trouble| trouble.why)
}

/// The same over plain HTTP to the first of these addresses that accepts.
///
/// # Errors
/// There is no answer in time, or it is not HTTP.
pub async fn send_to(addresses: &[SocketAddr], authority: &str, request: &Request<'_>) -> Result<Answer, String> {
    let text = compose(authority, None, request)?;
    let options = ConnectOptions::default();
    let socket = connect_to_first(addresses, share(addresses.len()), &options).await?;
    let answer = timeout(PATIENCE, exchange(socket, &text)).await;
    answer.map_err(|_| "no answer in time".to_owned())?.map_err(|trouble| trouble.why)
}

/// The text of a request.
fn compose(authority: &str, token: Option<&Path>, request: &Request<'_>) -> Result<Vec<u8>, String> {
    let authorization = match (&request.authorization, token) {
        (Some(authorization), _) => Some(authorization.clone()),
        (None, Some(path)) => Some(format!("Bearer {}", secret(path)?)),
        (None, None) => None,
    };
    let method = if request.json.is_some() { "POST" } else { "GET" };
    let accept = request.accept.unwrap_or("application/json");
    let mut text = format!("{method} {} HTTP/1.1\r\nHost: {authority}\r\n", request.target);
    text.push_str(&format!("User-Agent: balanza\r\nAccept: {accept}\r\nConnection: close\r\n"));
    let authorization = authorization.map(|value| ("Authorization", value));
    for (name, value) in authorization.iter().chain(&request.field) {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    let json = request.json.map(Value::to_string);
    if let Some(json) = &json {
        text.push_str(&format!("Content-Type: application/json\r\nContent-Length: {}\r\n", json.len()));
    }
    text.push_str("\r\n");
    text.push_str(json.as_deref().unwrap_or_default());
    Ok(text.into_bytes())
}

/// What a file with a token or a password says, without the white space around it.
///
/// # Errors
/// It cannot be read, or cannot be a field's value.
pub fn secret(path: &Path) -> Result<String, String> {
    let shown = path.display();
    let text = read_file(path, SECRET_MAX).map_err(|error| format!("cannot read \"{shown}\" {}", describe(&error)))?;
    let text = str::from_utf8(&text).unwrap_or_default().trim();
    if text.is_empty() || text.chars().any(char::is_control) {
        return Err(format!("\"{shown}\" does not have one line"));
    }
    Ok(text.to_owned())
}

/// Connects to an interface.
///
/// # Errors
/// There is no connection in time.
pub async fn connect(api: &Api) -> Result<Transport, String> {
    timeout(PATIENCE, connect_whenever(api)).await.map_err(|_| "no connection in time".to_owned())?
}

async fn connect_whenever(api: &Api) -> Result<Transport, String> {
    let options = ConnectOptions { keepalive: true, ..ConnectOptions::default() };
    let (host, port) = match &api.place {
        Place::Unix(path) => {
            let failed = |error: io::Error| format!("cannot connect {}", describe(&error));
            let socket =
                transport::connect(&Destination::Unix(path), &options).map_err(|error| failed(error.into()))?;
            poll_fn(|cx| socket.poll_connected(cx)).await.map_err(failed)?;
            return Ok(socket);
        }
        Place::Host(host, port) => (host, *port),
    };
    let found = tokio::net::lookup_host((host.as_str(), port)).await;
    let addresses: Vec<SocketAddr> = found.map_err(|_| format!("host \"{host}\" not found"))?.collect();
    if addresses.is_empty() {
        return Err(format!("host \"{host}\" has no address"));
    }
    let socket = connect_to_first(&addresses, share(addresses.len()), &options).await?;
    secure(socket, api, host).await
}

/// How long each of so many addresses may take. A last part is for TLS.
fn share(addresses: usize) -> Duration {
    let parts = u32::try_from(addresses).unwrap_or(u32::MAX).saturating_add(1);
    (PATIENCE / parts).max(Duration::from_secs(1))
}

/// Connects to the first address that accepts; one may say nothing at all.
async fn connect_to_first(
    addresses: &[SocketAddr],
    patience: Duration,
    options: &ConnectOptions,
) -> Result<Transport, String> {
    let mut trouble = String::new();
    for address in addresses {
        match timeout(patience, connect_to(*address, options)).await {
            Ok(Ok(socket)) => return Ok(socket),
            Ok(Err(error)) => trouble = format!("cannot connect to {address} {}", describe(&error)),
            Err(_) => trouble = format!("cannot connect to {address} in time"),
        }
    }
    Err(trouble)
}

async fn connect_to(address: SocketAddr, options: &ConnectOptions) -> io::Result<Transport> {
    let socket = transport::connect(&Destination::Inet(address), options)?;
    poll_fn(|cx| socket.poll_connected(cx)).await?;
    Ok(socket)
}

async fn secure(socket: Transport, api: &Api, host: &str) -> Result<Transport, String> {
    if let Some(tls) = &api.tls {
        let failed = |error: io::Error| format!("TLS handshake failed {}", describe(&error));
        let config = tls.context.for_server(&api.authority);
        socket.begin_tls_client(config, server_name(host.as_bytes())).map_err(failed)?;
        poll_fn(|cx| socket.poll_handshake(cx)).await.map_err(failed)?;
    }
    Ok(socket)
}

/// A value in a query, percent-encoded.
pub fn encode(text: &str) -> String {
    let mut encoded = Vec::with_capacity(text.len());
    escape(text.as_bytes(), Escape::Component, &mut encoded);
    String::from_utf8_lossy(&encoded).into_owned()
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    use balanza_net::buffer::CAPACITY;
    use balanza_net::event_loop;

    use super::*;

    fn run(test: impl Future<Output = ()> + 'static) {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build_local(Default::default()).unwrap();
        runtime.block_on(event_loop::run(test)).unwrap();
    }

    /// A server that answers one request with these pieces, and returns the request.
    fn serve(pieces: Vec<Vec<u8>>) -> (Api, std::thread::JoinHandle<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let thread = std::thread::spawn(move || {
            let (mut client, _) = listener.accept().unwrap();
            let mut request = vec![0; 4096];
            let read = client.read(&mut request).unwrap();
            for piece in pieces {
                client.write_all(&piece).unwrap();
                client.flush().unwrap();
                std::thread::sleep(Duration::from_millis(5));
            }
            String::from_utf8_lossy(&request[..read]).into_owned()
        });
        let place = Place::Host("127.0.0.1".into(), port);
        (Api { place, authority: format!("127.0.0.1:{port}"), tls: None, token: None }, thread)
    }

    #[test]
    fn an_address_that_says_nothing_is_passed_over() {
        run(async {
            // A full backlog: further SYNs are dropped.
            let full = tokio::net::TcpSocket::new_v4().unwrap();
            full.bind("127.0.0.1:0".parse().unwrap()).unwrap();
            let full = full.listen(1).unwrap();
            let silent = full.local_addr().unwrap();
            let patience = Duration::from_millis(300);
            let fill = || std::net::TcpStream::connect_timeout(&silent, patience);
            let _clients: Vec<_> = std::iter::from_fn(|| fill().ok()).take(1000).collect();
            let other = TcpListener::bind("127.0.0.1:0").unwrap();
            let addresses = [silent, other.local_addr().unwrap()];
            let options = ConnectOptions::default();
            let trouble = connect_to_first(&addresses[..1], patience, &options).await.err();
            assert_eq!(trouble, Some(format!("cannot connect to {silent} in time")));
            assert!(connect_to_first(&addresses, patience, &options).await.is_ok());
        });
        assert_eq!(share(4), Duration::from_secs(2));
        assert_eq!(share(usize::MAX), Duration::from_secs(1));
    }

    /// The lines of an answer in pieces, and how it ends.
    fn lines(pieces: &[&[u8]]) -> (Vec<String>, Result<(), String>) {
        let (api, server) = serve(pieces.iter().map(|piece| piece.to_vec()).collect());
        let found = std::rc::Rc::new(std::cell::RefCell::new((Vec::new(), Ok(()))));
        let result = std::rc::Rc::clone(&found);
        run(async move {
            let request = Request { target: "/a".into(), ..Request::default() };
            let mut answer = match send(&api, &request, PATIENCE).await {
                Ok(answer) => answer,
                Err(error) => return result.borrow_mut().1 = Err(error),
            };
            loop {
                match answer.line().await {
                    Ok(Some(line)) => result.borrow_mut().0.push(String::from_utf8_lossy(line).into_owned()),
                    Ok(None) => return,
                    Err(error) => return result.borrow_mut().1 = Err(error),
                }
            }
        });
        server.join().unwrap();
        std::rc::Rc::try_unwrap(found).unwrap().into_inner()
    }

    #[test]
    fn lines_of_all_framings() {
        let chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        let of = |pieces: &[&[u8]]| lines(pieces);
        let expected = (vec!["one".to_owned(), "two".to_owned(), "three".to_owned()], Ok(()));
        assert_eq!(of(&[chunked, b"6\r\none\ntw\r\n", b"2\r\no\n\r\n", b"5\r\nthree\r\n0\r\n\r\n"]), expected);
        assert_eq!(of(&[b"HTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\none\n", b"two\nthree"]), expected);
        assert_eq!(of(&[b"HTTP/1.0 200 OK\r\n\r\non", b"e\r\ntwo\n", b"three\n"]), expected);
        assert_eq!(of(&[b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n"]), (Vec::new(), Ok(())));
    }

    #[test]
    fn wrong_answers_are_errors() {
        let error = |pieces: &[&[u8]]| lines(pieces).1.unwrap_err();
        assert_eq!(error(&[]), "the connection was closed without an answer");
        let closed = "the connection was closed in the middle of an answer";
        assert_eq!(error(&[b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\none"]), closed);
        assert!(error(&[b"hello\r\n\r\n"]).starts_with("the answer is not HTTP/1.1"));
        let chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n";
        assert!(error(&[chunked]).starts_with("wrong chunks"));
        let long = format!("HTTP/1.1 200 OK\r\nA: {}", "a".repeat(CAPACITY));
        assert!(error(&[long.as_bytes()]).contains("too"));
    }

    #[test]
    fn requests_have_json_and_secrets() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("token");
        std::fs::write(&file, "abc\n").unwrap();
        let (mut api, server) = serve(vec![b"HTTP/1.1 200 OK\r\nA: b\r\nContent-Length: 2\r\n\r\n{}".to_vec()]);
        api.token = Some(file.clone());
        let authority = api.authority.clone();
        run(async move {
            let json = serde_json::json!({"a": 1});
            let request = Request { target: "/v3?a=b".into(), json: Some(&json), ..Request::default() };
            let answer = send(&api, &request, PATIENCE).await.unwrap();
            assert_eq!(answer.field("a"), Some("b"));
            assert_eq!(answer.json().await.unwrap(), serde_json::json!({}));
        });
        let expected = format!(
            "POST /v3?a=b HTTP/1.1\r\nHost: {authority}\r\nUser-Agent: balanza\r\nAccept: application/json\r\n\
             Connection: close\r\nAuthorization: Bearer abc\r\nContent-Type: application/json\r\nContent-Length: 7\r\n\r\n\
             {{\"a\":1}}"
        );
        assert_eq!(server.join().unwrap(), expected);
        std::fs::write(&file, "abc\r\nX: y").unwrap();
        assert!(secret(&file).unwrap_err().ends_with("does not have one line"));
        assert!(secret(&directory.path().join("none")).unwrap_err().contains("(2: No such file or directory)"));
    }

    #[test]
    fn only_small_regular_files_are_secrets() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        std::fs::write(at("most"), "a".repeat(SECRET_MAX as usize)).unwrap();
        std::fs::write(at("more"), "a".repeat(SECRET_MAX as usize + 1)).unwrap();
        std::fs::write(at("bytes"), b"a\xff").unwrap();
        let mode = rustix::fs::Mode::RWXU;
        rustix::fs::mknodat(rustix::fs::CWD, at("fifo"), rustix::fs::FileType::Fifo, mode, 0).unwrap();
        // Opening a FIFO may wait for its other end.
        let of = |name: &str| {
            let (sender, result) = std::sync::mpsc::channel();
            let path = at(name);
            std::thread::spawn(move || sender.send(secret(&path)));
            result.recv_timeout(Duration::from_secs(10)).expect("an answer")
        };
        assert!(of("fifo").unwrap_err().ends_with("/fifo\" (not a regular file)"));
        assert_eq!(of("most").map(|secret| secret.len()), Ok(SECRET_MAX as usize));
        assert!(of("more").unwrap_err().ends_with("/more\" (27: File too large)"));
        assert!(of("bytes").unwrap_err().ends_with("/bytes\" does not have one line"));
    }

    #[test]
    fn values_are_encoded() {
        assert_eq!(encode("a-Z.9_~"), "a-Z.9_~");
        assert_eq!(encode("{\"a\": [é]}"), "%7B%22a%22%3A%20%5B%C3%A9%5D%7D");
    }
}
