//! Changes of upstreams' servers on their way: from the threads of the data plane to the loop of the worker process, and
//! from one binary to the next.

use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};

use balanza_config::model::membership::{Changed, Changes, Notify, Protocol};
use nix::sys::memfd::{MFdFlags, memfd_create};

/// Changes as messages carry them.
pub type Listed = Vec<((Protocol, String), Changed)>;

/// Where the newest changes wait for the loop of the process.
pub struct Mailbox {
    newest: Arc<Mutex<Option<Changes>>>,
    waiting: UnixStream,
}

impl Mailbox {
    /// An empty mailbox, and what fills it.
    ///
    /// # Errors
    /// No descriptors are left.
    pub fn new() -> io::Result<(Mailbox, Notify)> {
        let (waiting, wake) = UnixStream::pair()?;
        waiting.set_nonblocking(true)?;
        wake.set_nonblocking(true)?;
        let newest = Arc::<Mutex<Option<Changes>>>::default();
        let filled = Arc::clone(&newest);
        let notify = move |changes: &Changes| {
            *filled.lock().unwrap_or_else(PoisonError::into_inner) = Some(changes.clone());
            // A full socket wakes as well as one byte more.
            let _ = (&wake).write(&[0]);
        };
        Ok((Mailbox { newest, waiting }, Box::new(notify)))
    }

    /// The newest changes, if there are any since the last look.
    pub fn take(&mut self) -> Option<Changes> {
        while self.waiting.read(&mut [0; 64]).is_ok_and(|read| read > 0) {}
        self.newest.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl AsFd for Mailbox {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.waiting.as_fd()
    }
}

/// Writes changes where another process can read them by the descriptor.
///
/// # Errors
/// No memory or no descriptors are left.
pub fn store(changes: &Changes) -> io::Result<OwnedFd> {
    let mut file = std::fs::File::from(memfd_create("changes", MFdFlags::MFD_CLOEXEC)?);
    let listed: Vec<_> = changes.iter().collect();
    serde_json::to_writer(&mut file, &listed)?;
    file.rewind()?;
    Ok(file.into())
}

/// Reads what [`store`] has written.
///
/// # Errors
/// The other process has other ideas of changes.
pub fn read(descriptor: OwnedFd) -> io::Result<Changes> {
    let mut file = std::fs::File::from(descriptor);
    file.rewind()?;
    let listed: Listed = serde_json::from_reader(file)?;
    Ok(listed.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use balanza_config::model::membership::Change;
    use balanza_config::model::{ServerAddress, UpstreamServer};

    use super::*;

    fn changes(port: u16) -> Changes {
        let address = ServerAddress::Inet(([127, 0, 0, 1], port).into());
        let mut changed = Changed::new(&[]);
        changed.change(Change::Add(UpstreamServer::new(format!("127.0.0.1:{port}"), address))).unwrap();
        [((Protocol::Http, "backend".to_owned()), changed)].into()
    }

    #[test]
    fn changes_are_stored_and_read() {
        assert_eq!(read(store(&changes(80)).unwrap()).unwrap(), changes(80));
        assert_eq!(read(store(&Changes::new()).unwrap()).unwrap(), Changes::new());
    }

    #[test]
    fn only_the_newest_waits() {
        let (mut mailbox, notify) = Mailbox::new().unwrap();
        assert_eq!(mailbox.take(), None);
        notify(&changes(80));
        notify(&changes(81));
        assert_eq!(mailbox.take(), Some(changes(81)));
        assert_eq!(mailbox.take(), None);
    }
}
