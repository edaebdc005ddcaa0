//! A listening socket with a chosen backlog.

use std::io;
use std::net::{SocketAddr, TcpListener};

use socket2::{Domain, Protocol, Socket, Type};

/// Listens on `address` (port 0: any free one). The kernel queues up to `backlog` connections that were not accepted
/// yet, and never more than `net.core.somaxconn`; those beyond are dropped and tried again by the client's kernel.
pub(super) fn listen(address: SocketAddr, backlog: u16) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    // A target started again must not wait for the old connections' TIME_WAIT.
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(i32::from(backlog))?;
    Ok(socket.into())
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;
    use std::time::Duration;

    use super::*;

    /// How many connections the kernel completes while nobody accepts.
    fn fits(backlog: u16) -> usize {
        let listener = listen(([127, 0, 0, 1], 0).into(), backlog).unwrap();
        let address = listener.local_addr().unwrap();
        let connect = |_| TcpStream::connect_timeout(&address, Duration::from_millis(150)).ok();
        (0..40).map_while(connect).collect::<Vec<_>>().len()
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn the_kernel_gets_the_backlog() {
        // Linux completes one connection more than the backlog says.
        assert_eq!(fits(1), 2);
        assert_eq!(fits(8), 9);
        assert_eq!(fits(128), 40);
    }

    #[test]
    fn an_address_in_use_is_an_error() {
        let first = listen(([127, 0, 0, 1], 0).into(), 1).unwrap();
        let error = listen(first.local_addr().unwrap(), 1).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    }
}
