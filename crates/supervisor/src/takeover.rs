//! Serving without a supervisor: if the supervisor was killed, its worker continues, and the next start takes over the
//! sockets.
//!
//! The supervisor binds a Unix-domain socket, the takeover socket, beside the pid file and shares it with its
//! worker. A program that starts connects to it before it binds anything. A running supervisor answers that it is
//! running. A worker without a supervisor answers with its listening sockets, and shuts down gracefully when the new
//! worker serves. Only the account of the supervisor, and root, may connect.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use anyhow::Context;
use balanza_config::model::{Level, ListenAddress};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{getsockopt, sockopt};
use nix::sys::stat::{Mode, umask};
use nix::unistd::Uid;
use serde::{Deserialize, Serialize};

use crate::link::Link;
use crate::listen::Sockets;
use crate::log::{Log, OsError};

/// The answer to a program that connects.
#[derive(Debug, Serialize, Deserialize)]
enum Answer {
    /// By a supervisor.
    Alive,
    /// By a worker without one. Its listening sockets and then the takeover socket are beside it.
    Orphan {
        /// Its process.
        worker: u32,
    },
}

/// The message of the new program when it serves.
#[derive(Debug, Serialize, Deserialize)]
struct Retire;

/// The socket beside the pid file.
#[derive(Debug)]
pub struct TakeoverSocket {
    listener: UnixListener,
    path: PathBuf,
}

impl TakeoverSocket {
    /// Where the takeover socket of a pid file is.
    pub fn path(pid: &Path) -> PathBuf {
        let mut name = pid.as_os_str().to_owned();
        name.push(".takeover");
        name.into()
    }

    /// Opens the takeover socket of a pid file. Without one a worker cannot be taken over; the log says why there is none.
    pub fn open(pid: &Path, log: &Log) -> Option<TakeoverSocket> {
        let path = TakeoverSocket::path(pid);
        let bind = || {
            // What is there belonged to a program that has gone: the pid file is this one's.
            match std::fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            // Never open to others, not even for a moment. This process has one thread.
            let mask = umask(Mode::from_bits_truncate(0o177));
            let listener = UnixListener::bind(&path);
            umask(mask);
            let listener = listener?;
            listener.set_nonblocking(true)?;
            Ok(listener)
        };
        match bind() {
            Ok(listener) => Some(TakeoverSocket { listener, path }),
            Err(error) => {
                let (path, error) = (path.display(), OsError(&error));
                let what = "if the master process dies, its worker cannot be taken over";
                log.write(Level::Warn, format_args!("bind() to \"{path}\" failed {error}: {what}"));
                None
            }
        }
    }

    /// Follows the pid file to another name.
    pub fn rename(&mut self, pid: &Path, log: &Log) {
        let path = TakeoverSocket::path(pid);
        match std::fs::rename(&self.path, &path) {
            Ok(()) => self.path = path,
            Err(error) => {
                let (old, path, error) = (self.path.display(), path.display(), OsError(&error));
                log.write(Level::Alert, format_args!("rename() {old} to {path} failed {error}"));
            }
        }
    }

    /// Removes its name.
    pub fn remove(self) {
        // It may be gone already, with the directory.
        drop(std::fs::remove_file(&self.path));
    }

    /// Answers, as a supervisor, a program that has connected.
    pub fn answer_alive(&self) {
        while let Some(knocker) = knocker(&self.listener) {
            // A program that does not wait for the answer does not need it.
            drop(knocker.send(&Answer::Alive, &[]));
        }
    }
}

impl AsFd for TakeoverSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

fn knocker(listener: &UnixListener) -> Option<Link> {
    let (stream, _) = listener.accept().ok()?;
    Link::over(stream).ok()
}

/// What a worker keeps for the case that its supervisor dies.
#[derive(Debug)]
pub struct Inheritance {
    sockets: Vec<OwnedFd>,
    takeover: UnixListener,
    heir: Option<Link>,
}

/// The state of a worker without a supervisor.
#[derive(Debug, PartialEq, Eq)]
pub enum Fate {
    /// It continues to serve.
    Serve,
    /// Another program serves.
    Retire,
}

impl Inheritance {
    /// Duplicates the listening sockets, to be given away through this takeover socket.
    ///
    /// # Errors
    /// When the process has no descriptor left.
    pub fn new(sockets: &[(ListenAddress, Vec<OwnedFd>)], takeover: OwnedFd) -> io::Result<Inheritance> {
        let sockets =
            sockets.iter().flat_map(|(_, sockets)| sockets).map(OwnedFd::try_clone).collect::<io::Result<_>>()?;
        Ok(Inheritance { sockets, takeover: UnixListener::from(takeover), heir: None })
    }

    /// What to wait for.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        // One program at a time: another one that connects waits.
        self.heir.as_ref().map_or(self.takeover.as_fd(), AsFd::as_fd)
    }

    /// Handles a program that takes over. Call it when [`Inheritance::descriptor`] is readable.
    pub fn attend(&mut self, log: &Log) -> Fate {
        if let Some(heir) = &self.heir {
            if !is_readable(heir) {
                return Fate::Serve;
            }
            match heir.receive::<Retire>() {
                Ok(Some(_)) => return Fate::Retire,
                // It did not come to serve.
                Ok(None) | Err(_) => self.heir = None,
            }
        }
        if let Some(heir) = knocker(&self.takeover) {
            let descriptors: Vec<_> = self.sockets.iter().map(AsFd::as_fd).chain([self.takeover.as_fd()]).collect();
            match heir.send(&Answer::Orphan { worker: std::process::id() }, &descriptors) {
                Ok(()) => {
                    log.write(Level::Notice, "another program takes the listening sockets over");
                    self.heir = Some(heir);
                }
                Err(error) => log.write(Level::Alert, format_args!("sendmsg() failed {}", OsError(&error))),
            }
        }
        Fate::Serve
    }
}

fn is_readable(link: &Link) -> bool {
    poll(&mut [PollFd::new(link.as_fd(), PollFlags::POLLIN)], PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
}

/// A worker that serves without a supervisor, seen from the program that takes over.
#[derive(Debug)]
pub struct Orphan {
    link: Link,
    worker: u32,
    takeover: TakeoverSocket,
}

impl Orphan {
    /// Connects to the takeover socket of a pid file, and takes over the listening sockets if a worker without a
    /// supervisor answers.
    pub fn find(pid: &Path, log: &Log) -> Option<(Orphan, Sockets)> {
        let path = TakeoverSocket::path(pid);
        // Nothing, or nothing that listens: the ordinary case.
        let stream = UnixStream::connect(&path).ok()?;
        // The account of the process that began to listen: a worker's must not hand out sockets.
        let owner = getsockopt(&stream, sockopt::PeerCredentials).ok()?.uid();
        if owner != 0 && owner != Uid::effective().as_raw() {
            log.write(Level::Warn, format_args!("\"{}\" belongs to account {owner}: not used", path.display()));
            return None;
        }
        match Orphan::receive(stream, path) {
            Ok(found) => found,
            Err(error) => {
                log.write(Level::Warn, format_args!("no listening sockets are taken over: {error:#}"));
                None
            }
        }
    }

    fn receive(stream: UnixStream, path: PathBuf) -> anyhow::Result<Option<(Orphan, Sockets)>> {
        let link = Link::over(stream)?;
        let answer = link.receive::<Answer>().with_context(|| format!("no answer at \"{}\"", path.display()))?;
        let Some((Answer::Orphan { worker }, mut descriptors)) = answer else { return Ok(None) };
        let listener = UnixListener::from(descriptors.pop().context("the takeover socket is missing")?);
        let mut sockets = Sockets::default();
        for descriptor in descriptors {
            sockets.adopt(descriptor)?;
        }
        Ok(Some((Orphan { link, worker, takeover: TakeoverSocket { listener, path } }, sockets)))
    }

    /// Its process.
    pub fn worker(&self) -> u32 {
        self.worker
    }

    /// Tells it to finish its requests, because another worker serves; its takeover socket now belongs to the new
    /// program.
    pub fn retire(self) {
        // If it is gone, there is nothing to finish.
        drop(self.link.send(&Retire, &[]));
    }

    /// A duplicate of its takeover socket.
    ///
    /// # Errors
    /// When the process has no descriptor left.
    pub fn takeover_socket(&self) -> io::Result<TakeoverSocket> {
        Ok(TakeoverSocket { listener: self.takeover.listener.try_clone()?, path: self.takeover.path.clone() })
    }
}
