//! Datagrams through a proxy: `bench-datagrams echo ADDRESS` answers each with itself, and `bench-datagrams ask ADDRESS COUNT`
//! sends so many and waits for the answers.
//!
//! There are 64 clients, each with one datagram on its way at a time. The exit code of `ask` is 1 if an answer is missing.
#![forbid(unsafe_code)]

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::process::ExitCode;
use std::time::Duration;

const CLIENTS: usize = 64;
const PATIENCE: Duration = Duration::from_secs(2);
const LENGTH: usize = 200;

fn echo(address: SocketAddr) -> io::Result<()> {
    let socket = UdpSocket::bind(address)?;
    let mut buffer = [0; 2048];
    loop {
        // A client that is gone makes a later call fail, which is no reason to end.
        if let Ok((length, from)) = socket.recv_from(&mut buffer) {
            let _ = socket.send_to(&buffer[..length], from);
        }
    }
}

fn ask(address: SocketAddr, count: usize) -> io::Result<()> {
    let clients: Vec<UdpSocket> = (0..CLIENTS)
        .map(|_| {
            let client = UdpSocket::bind("127.0.0.1:0")?;
            client.set_read_timeout(Some(PATIENCE))?;
            client.connect(address)?;
            Ok(client)
        })
        .collect::<io::Result<_>>()?;
    let mut answer = [0; 2048];
    for _ in 0..count / CLIENTS {
        for client in &clients {
            client.send(&[b'x'; LENGTH])?;
        }
        for client in &clients {
            client.recv(&mut answer)?;
        }
    }
    Ok(())
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words[..] {
        ["echo", address] => address.parse().map(echo).ok(),
        ["ask", address, count] => address.parse().ok().zip(count.parse().ok()).map(|(to, count)| ask(to, count)),
        _ => None,
    };
    match done {
        Some(Ok(())) => ExitCode::SUCCESS,
        Some(Err(error)) => {
            eprintln!("bench-datagrams: {error}");
            ExitCode::FAILURE
        }
        None => {
            eprintln!("usage: bench-datagrams echo ADDRESS:PORT | ask ADDRESS:PORT COUNT");
            ExitCode::from(2)
        }
    }
}
