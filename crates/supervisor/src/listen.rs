//! Listening sockets: bound once, kept over reloads, and one for each worker thread.
//!
//! The kernel spreads connections over sockets of one address only if all of them have `SO_REUSEPORT`, and with it a
//! second program of the same user could bind a port that is in use without noticing. So the first socket of an
//! address is bound without the option, which gives `EADDRINUSE` as always, and gets it afterwards.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use balanza_config::model::{Level, ListenAddress, ListenOptions, TcpKeepalive};
use socket2::{Domain, SockAddr, SockRef, Socket, Type};

use crate::Failed;
use crate::log::{Log, OsError};
use crate::sys;

/// As NGINX: how often a port that is in use is tried, and how long it waits in between.
const TRIES: usize = 5;
const PAUSE: Duration = Duration::from_millis(500);

/// The sockets of each address. A socket is shared by the generations of the configuration that use it.
#[derive(Debug, Default, Clone)]
pub struct Sockets(BTreeMap<ListenAddress, Vec<Rc<OwnedFd>>>);

/// Whether sockets are for serving, or only for a test of the configuration (`-t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// To accept connections.
    Serve,
    /// Ports in use are no error, and nothing listens.
    Test,
}

/// A socket that a configuration asks for, and its file and line.
pub type Wanted<'a> = (&'a ListenAddress, &'a ListenOptions, &'a str);

impl Sockets {
    /// The sockets that `listens` needs with `threads` worker threads: those of `self` that fit, and new ones. `self`
    /// does not change, so that the caller may keep using it. An address never has fewer sockets than before: closing
    /// one would reset the connections that wait in it.
    ///
    /// # Errors
    /// The log says which address could not be bound, and why.
    pub fn prepare(&self, listens: &[Wanted<'_>], threads: usize, purpose: Purpose, log: &Log) -> Result<Self, Failed> {
        let mut next = Self::default();
        let mut tries = TRIES;
        loop {
            let mut in_use = false;
            for listen in listens {
                if next.0.contains_key(listen.0) {
                    continue;
                }
                match self.bind_all(listen, threads) {
                    Ok(sockets) => drop(next.0.insert(listen.0.clone(), sockets)),
                    Err(Refused { call, error }) => {
                        let used = call == "bind()" && error.raw_os_error() == Some(libc::EADDRINUSE);
                        if used && purpose == Purpose::Test {
                            continue;
                        }
                        // A port that is in use is tried again in silence.
                        if !used || tries == TRIES {
                            let (address, place) = (Shown(listen.0), listen.2);
                            let error = OsError(&error);
                            log.write(Level::Emerg, format_args!("{call} to {address} failed {error} in {place}"));
                        }
                        if !used {
                            return Err(Failed);
                        }
                        in_use = true;
                    }
                }
            }
            tries -= 1;
            if !in_use {
                break;
            }
            if tries == 0 {
                log.write(
                    Level::Emerg,
                    "still could not bind(): another process listens there (`ss -lxtnp` shows which), or this one runs already",
                );
                return Err(Failed);
            }
            log.write(Level::Notice, "try again to bind() after 500ms");
            std::thread::sleep(PAUSE);
        }
        if purpose == Purpose::Serve {
            for listen in listens {
                for socket in &next.0[listen.0] {
                    activate(socket, listen, log)?;
                }
            }
        } else {
            next.unlink_except(self);
        }
        Ok(next)
    }

    fn bind_all(&self, (address, options, _): &Wanted<'_>, threads: usize) -> Result<Vec<Rc<OwnedFd>>, Refused> {
        let mut sockets = self.0.get(address).cloned().unwrap_or_default();
        match address {
            ListenAddress::Inet(address) => {
                // On a reload "*:80" may replace "127.0.0.1:80": this program has the port already.
                let mut shared = self.holds_port(address.port());
                while sockets.len() < threads.max(1) {
                    sockets.push(Rc::new(bind_inet(Type::STREAM, *address, options, shared)?.into()));
                    shared = true;
                }
            }
            ListenAddress::Udp(address) => {
                while sockets.len() < threads.max(1) {
                    let shared = !sockets.is_empty();
                    sockets.push(Rc::new(bind_inet(Type::DGRAM, *address, options, shared)?.into()));
                }
            }
            ListenAddress::Unix(path) => {
                if sockets.is_empty() {
                    sockets.push(Rc::new(bind_unix(path)?.into()));
                }
            }
        }
        Ok(sockets)
    }

    fn holds_port(&self, port: u16) -> bool {
        self.0.keys().any(|address| matches!(address, ListenAddress::Inet(address) if address.port() == port))
    }

    /// Takes over a socket that is already bound, under the address that it is bound to.
    ///
    /// # Errors
    /// When it is not a bound stream or datagram socket.
    pub fn adopt(&mut self, socket: OwnedFd) -> io::Result<()> {
        let unusable = |what: &str| io::Error::new(io::ErrorKind::InvalidInput, what.to_string());
        let (address, listening, kind) = {
            let socket = SockRef::from(&socket);
            socket.set_cloexec(true)?;
            (socket.local_addr()?, socket.is_listener()?, socket.r#type()?)
        };
        let udp = kind == Type::DGRAM;
        let address = if let (Some(address), true) = (address.as_socket(), udp) {
            ListenAddress::Udp(address)
        } else if let Some(address) = address.as_socket() {
            ListenAddress::Inet(address)
        } else if let Some(path) = address.as_pathname() {
            ListenAddress::Unix(path.to_path_buf())
        } else {
            return Err(unusable("unsupported address family"));
        };
        if !listening && !udp {
            return Err(unusable("not a listening socket"));
        }
        if address.inet().is_some() {
            // NGINX's sockets lack it, and those of further threads need it on all of the address.
            SockRef::from(&socket).set_reuse_port(true)?;
        }
        self.0.entry(address).or_default().push(Rc::new(socket));
        Ok(())
    }

    /// Every address with its sockets.
    pub fn iter(&self) -> impl Iterator<Item = (&ListenAddress, Vec<BorrowedFd<'_>>)> {
        self.0.iter().map(|(address, sockets)| (address, sockets.iter().map(|socket| socket.as_fd()).collect()))
    }

    /// Duplicates, for a data plane in this process.
    ///
    /// # Errors
    /// When the process has no descriptor left.
    pub fn duplicate(&self) -> io::Result<Vec<(ListenAddress, Vec<OwnedFd>)>> {
        let copy = |sockets: &[Rc<OwnedFd>]| sockets.iter().map(|socket| socket.try_clone()).collect::<io::Result<_>>();
        self.0.iter().map(|(address, sockets)| Ok((address.clone(), copy(sockets)?))).collect()
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Removes the files of those Unix-domain sockets that `kept` does not have.
    pub fn unlink_except(&self, kept: &Self) {
        for address in self.0.keys().filter(|address| !kept.0.contains_key(address)) {
            if let ListenAddress::Unix(path) = address {
                // Someone may have removed it already.
                drop(std::fs::remove_file(path));
            }
        }
    }
}

/// A system call that failed.
struct Refused {
    call: &'static str,
    error: io::Error,
}

fn refused(call: &'static str) -> impl Fn(io::Error) -> Refused {
    move |error| Refused { call, error }
}

fn bind_inet(kind: Type, address: SocketAddr, options: &ListenOptions, shared: bool) -> Result<Socket, Refused> {
    let socket = Socket::new(Domain::for_address(address), kind.nonblocking(), None).map_err(refused("socket()"))?;
    // With UDP it would let two programs share a port.
    if kind == Type::STREAM {
        socket.set_reuse_address(true).map_err(refused("setsockopt(SO_REUSEADDR)"))?;
    }
    if address.is_ipv6() {
        socket.set_only_v6(options.ipv6only).map_err(refused("setsockopt(IPV6_V6ONLY)"))?;
    }
    let share = || socket.set_reuse_port(true).map_err(refused("setsockopt(SO_REUSEPORT)"));
    if shared {
        share()?;
    }
    socket.bind(&address.into()).map_err(refused("bind()"))?;
    share()?;
    Ok(socket)
}

fn bind_unix(path: &Path) -> Result<Socket, Refused> {
    let address = SockAddr::unix(path).map_err(refused("bind()"))?;
    let socket = Socket::new(Domain::UNIX, Type::STREAM.nonblocking(), None).map_err(refused("socket()"))?;
    let mut bound = socket.bind(&address);
    if matches!(&bound, Err(error) if error.raw_os_error() == Some(libc::EADDRINUSE)) && is_stale(path) {
        std::fs::remove_file(path).map_err(refused("unlink()"))?;
        bound = socket.bind(&address);
    }
    bound.map_err(refused("bind()"))?;
    // As NGINX: every local user may connect; the directory's permissions restrict this.
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o666)).map_err(refused("chmod()"))?;
    Ok(socket)
}

/// Whether a socket's file is left over from a program that was killed: no program listens there.
fn is_stale(path: &Path) -> bool {
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|metadata| metadata.file_type().is_socket());
    is_socket && matches!(UnixStream::connect(path), Err(error) if error.kind() == io::ErrorKind::ConnectionRefused)
}

/// Sets the options that `listen` asks for and starts to listen; on a socket that does so already, changes them.
fn activate(socket: &Rc<OwnedFd>, (listen, options, _): &Wanted<'_>, log: &Log) -> Result<(), Failed> {
    let address = Shown(listen);
    let reference = SockRef::from(socket.as_ref());
    let warn = |what: &str, result: io::Result<()>| {
        if let Err(error) = result {
            log.write(Level::Alert, format_args!("setsockopt({what}) {address} failed {}, ignored", OsError(&error)));
        }
    };
    if let Some(size) = options.rcvbuf {
        warn("SO_RCVBUF", reference.set_recv_buffer_size(size));
    }
    if let Some(size) = options.sndbuf {
        warn("SO_SNDBUF", reference.set_send_buffer_size(size));
    }
    if matches!(listen, ListenAddress::Udp(_)) {
        return Ok(());
    }
    let inet = matches!(listen, ListenAddress::Inet(_));
    if inet {
        match options.keepalive {
            None => {}
            Some(TcpKeepalive::Off) => warn("SO_KEEPALIVE", reference.set_keepalive(false)),
            Some(TcpKeepalive::On { idle, interval, count }) => {
                warn("SO_KEEPALIVE", reference.set_keepalive(true));
                let mut parameters = socket2::TcpKeepalive::new();
                if let Some(idle) = idle {
                    parameters = parameters.with_time(idle);
                }
                if let Some(interval) = interval {
                    parameters = parameters.with_interval(interval);
                }
                if let Some(count) = count {
                    parameters = parameters.with_retries(count);
                }
                warn("TCP_KEEPIDLE", reference.set_tcp_keepalive(&parameters));
            }
        }
        if let Some(queue) = options.fastopen {
            warn("TCP_FASTOPEN", sys::set_socket_option(socket, libc::IPPROTO_TCP, libc::TCP_FASTOPEN, queue));
        }
    }
    if let Err(error) = reference.listen(options.backlog) {
        let backlog = options.backlog;
        log.write(Level::Emerg, format_args!("listen() to {address}, backlog {backlog} failed {}", OsError(&error)));
        return Err(Failed);
    }
    if inet {
        // A second is enough: the option only spares a wake-up between the handshake and the first bytes.
        let seconds = i32::from(options.deferred);
        let result = sys::set_socket_option(socket, libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT, seconds);
        warn("TCP_DEFER_ACCEPT", result);
    }
    Ok(())
}

/// An address as NGINX writes it, with `udp:` before those of UDP.
pub struct Shown<'a>(pub &'a ListenAddress);

impl std::fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            ListenAddress::Inet(address) => write!(f, "{address}"),
            ListenAddress::Unix(path) => write!(f, "unix:{}", path.display()),
            ListenAddress::Udp(address) => write!(f, "udp:{address}"),
        }
    }
}

/// Reads what [`Shown`] writes.
pub fn parse_shown(text: &str) -> Option<ListenAddress> {
    if let Some(path) = text.strip_prefix("unix:") {
        return Some(ListenAddress::Unix(path.into()));
    }
    match text.strip_prefix("udp:") {
        Some(address) => address.parse().ok().map(ListenAddress::Udp),
        None => text.parse().ok().map(ListenAddress::Inet),
    }
}

#[cfg(test)]
mod tests;
