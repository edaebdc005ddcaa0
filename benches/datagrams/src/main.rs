//! Datagrams through a proxy: `bench-datagrams echo ADDRESS` answers each with itself, and `bench-datagrams ask ADDRESS COUNT`
//! sends so many and waits for the answers. `bench-datagrams bulk ADDRESS COUNT` sends them in runs of 32 that the kernel
//! divides, as senders of QUIC do.
//!
//! There are 64 clients, each with one datagram on its way at a time; in bulk there are 2, each with a run on its way. The
//! exit code is 1 if an answer to `ask` is missing, or more than a hundredth of those in bulk.
#![forbid(unsafe_code)]

use std::io::{self, IoSlice, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::process::ExitCode;
use std::time::Duration;

use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, sendmsg, setsockopt, sockopt,
};

const CLIENTS: usize = 64;
const PATIENCE: Duration = Duration::from_secs(2);
const LENGTH: usize = 200;

/// In bulk: clients, datagrams of a run, and how long each is.
const BULK: (usize, usize, u16) = (2, 32, 1200);

fn echo(address: SocketAddr) -> io::Result<()> {
    let socket = UdpSocket::bind(address)?;
    setsockopt(&socket, sockopt::UdpGroSegment, &true)?;
    let (fd, mut buffer) = (socket.as_raw_fd(), vec![0; 65_536]);
    let mut control = nix::cmsg_space!(i32);
    loop {
        let mut space = [IoSliceMut::new(&mut buffer)];
        // A client that is gone makes a later call fail, which is no reason to end.
        let Ok(got) = recvmsg::<SockaddrStorage>(fd, &mut space, Some(&mut control), MsgFlags::empty()) else {
            continue;
        };
        let each = got.cmsgs()?.find_map(|part| match part {
            ControlMessageOwned::UdpGroSegments(each) => u16::try_from(each).ok(),
            _ => None,
        });
        let (length, from) = (got.bytes, got.address);
        let run = each.filter(|each| length > usize::from(*each));
        let control = run.as_ref().map(ControlMessage::UdpGsoSegments);
        let _ = sendmsg(fd, &[IoSlice::new(&buffer[..length])], control.as_slice(), MsgFlags::empty(), from.as_ref());
    }
}

fn clients(count: usize, address: SocketAddr) -> io::Result<Vec<UdpSocket>> {
    let client = || {
        let client = UdpSocket::bind("127.0.0.1:0")?;
        client.set_read_timeout(Some(PATIENCE))?;
        client.connect(address)?;
        Ok(client)
    };
    (0..count).map(|_| client()).collect()
}

fn bulk(address: SocketAddr, count: usize) -> io::Result<()> {
    let (clients, (_, run, length)) = (clients(BULK.0, address)?, BULK);
    let bytes = vec![b'x'; run * usize::from(length)];
    let (mut answer, mut lost) = (vec![0; 65_536], 0);
    for client in &clients {
        client.set_read_timeout(Some(PATIENCE / 100))?;
        setsockopt(client, sockopt::UdpGroSegment, &true)?;
    }
    for _ in 0..count / (clients.len() * run) {
        for client in &clients {
            let control = [ControlMessage::UdpGsoSegments(&length)];
            sendmsg::<()>(client.as_raw_fd(), &[IoSlice::new(&bytes)], &control, MsgFlags::empty(), None)?;
        }
        for client in &clients {
            let mut missing = bytes.len();
            while missing > 0 {
                match client.recv(&mut answer) {
                    Ok(length) => missing = missing.saturating_sub(length),
                    Err(_) => break,
                }
            }
            lost += missing / usize::from(length);
        }
    }
    if lost > count / 100 { Err(io::Error::other(format!("{lost} answers are missing"))) } else { Ok(()) }
}

fn ask(address: SocketAddr, count: usize) -> io::Result<()> {
    let clients = clients(CLIENTS, address)?;
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
        ["bulk", address, count] => address.parse().ok().zip(count.parse().ok()).map(|(to, count)| bulk(to, count)),
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
            eprintln!("usage: bench-datagrams echo ADDRESS:PORT | ask ADDRESS:PORT COUNT | bulk ADDRESS:PORT COUNT");
            ExitCode::from(2)
        }
    }
}
