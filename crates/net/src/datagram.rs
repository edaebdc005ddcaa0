//! Datagrams to a server that does not answer, such as a syslog.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::path::Path;

/// A socket that is connected to one server. It never waits: a datagram that does not fit into its queue is lost.
pub enum Datagrams {
    /// UDP.
    Inet(UdpSocket),
    /// A socket of the file system.
    Unix(UnixDatagram),
}

impl Datagrams {
    /// To a server of a network.
    ///
    /// # Errors
    /// No socket, or no route to the server.
    pub fn to_address(server: SocketAddr) -> io::Result<Datagrams> {
        let any = if server.is_ipv4() { (Ipv4Addr::UNSPECIFIED, 0).into() } else { (Ipv6Addr::UNSPECIFIED, 0).into() };
        let socket = UdpSocket::bind::<SocketAddr>(any)?;
        socket.connect(server)?;
        socket.set_nonblocking(true)?;
        Ok(Datagrams::Inet(socket))
    }

    /// To a socket of the file system.
    ///
    /// # Errors
    /// There is none, or this process may not write to it.
    pub fn to_path(path: &Path) -> io::Result<Datagrams> {
        let socket = UnixDatagram::unbound()?;
        socket.connect(path)?;
        socket.set_nonblocking(true)?;
        Ok(Datagrams::Unix(socket))
    }

    /// Sends one.
    ///
    /// # Errors
    /// The server does not listen, or its queue is full.
    pub fn send(&self, datagram: &[u8]) -> io::Result<()> {
        match self {
            Datagrams::Inet(socket) => socket.send(datagram).map(drop),
            Datagrams::Unix(socket) => socket.send(datagram).map(drop),
        }
    }
}
