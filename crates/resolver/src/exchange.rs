//! One question to one name server.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

use crate::message::{Question, Reading, Response};

/// Messages that are no answer to the question, after which it is asked by TCP: they may be guesses of an attacker.
const GUESSES: usize = 16;

/// Why there is no answer.
#[derive(Debug)]
pub enum Trouble {
    /// None came in time.
    TimedOut,
    /// The network failed, or nothing listens there.
    Failed,
}

impl From<io::Error> for Trouble {
    fn from(_: io::Error) -> Trouble {
        Trouble::Failed
    }
}

/// Asks a server, within this time.
///
/// # Errors
/// There was no answer.
pub async fn ask(server: SocketAddr, question: &Question, patience: Duration) -> Result<Response, Trouble> {
    // Its room for messages is there only while it is asked: thousands of tasks wait until they ask again.
    timeout(patience, Box::pin(converse(server, question))).await.unwrap_or(Err(Trouble::TimedOut))
}

async fn converse(server: SocketAddr, question: &Question) -> Result<Response, Trouble> {
    match by_udp(server, question).await? {
        Some(response) if !response.truncated => Ok(response),
        _ => by_tcp(server, question).await,
    }
}

/// By a socket of its own, whose port the system chooses at random.
async fn by_udp(server: SocketAddr, question: &Question) -> Result<Option<Response>, Trouble> {
    let any: IpAddr = match server {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).await?;
    // From here on the system drops what others send.
    socket.connect(server).await?;
    socket.send(&question.bytes()).await?;
    let mut room = [0; 4096];
    for _ in 0..GUESSES {
        let length = socket.recv(&mut room).await?;
        if let Reading::Answer(response) = question.read(&room[..length]) {
            return Ok(Some(response));
        }
    }
    Ok(None)
}

async fn by_tcp(server: SocketAddr, question: &Question) -> Result<Response, Trouble> {
    let mut stream = TcpStream::connect(server).await?;
    let bytes = question.bytes();
    let mut message = (bytes.len() as u16).to_be_bytes().to_vec();
    message.extend_from_slice(&bytes);
    stream.write_all(&message).await?;
    let length = stream.read_u16().await?;
    let mut answer = vec![0; usize::from(length)];
    stream.read_exact(&mut answer).await?;
    match question.read(&answer) {
        Reading::Answer(response) => Ok(response),
        Reading::Other => Err(Trouble::Failed),
    }
}
