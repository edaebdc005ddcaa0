//! The connections of one worker to the servers of an upstream, to end those of a server at once.

use std::cell::RefCell;

use balanza_net::hang_up::HangUp;

use super::membership::ServerId;

/// From this number on, closed connections are forgotten when there are twice as many entries as open ones.
const FEW: usize = 64;

/// Connections that are open, and some that were.
#[derive(Default)]
pub struct Open(RefCell<Entries>);

#[derive(Default)]
struct Entries {
    list: Vec<(ServerId, HangUp)>,
    /// At this length the list is tidied.
    full: usize,
    /// Servers whose connections were ended: what fails there is not their failure.
    ended: Vec<ServerId>,
}

impl Open {
    /// A connection to this server begins.
    pub fn add(&self, server: ServerId, connection: HangUp) {
        let mut entries = self.0.borrow_mut();
        if entries.ended.contains(&server) {
            // The request has chosen the server before its connections were ended.
            connection.hang_up();
            return;
        }
        if entries.list.len() >= entries.full.max(FEW) {
            entries.list.retain(|(_, connection)| !connection.is_closed());
            entries.full = 2 * entries.list.len();
        }
        entries.list.push((server, connection));
    }

    /// Ends the connections to this server.
    pub fn hang_up(&self, server: ServerId) {
        let mut entries = self.0.borrow_mut();
        entries.list.retain(|(of, connection)| *of != server || !connection.hang_up());
        if !entries.ended.contains(&server) {
            entries.ended.push(server);
        }
    }

    /// Whether the connections to this server were ended.
    pub fn has_ended(&self, server: ServerId) -> bool {
        self.0.borrow().ended.contains(&server)
    }

    /// Servers that are in use again may fail again.
    pub fn resume(&self, is_down: impl Fn(ServerId) -> bool) {
        self.0.borrow_mut().ended.retain(|server| is_down(*server));
    }

    /// How many entries there are.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.0.borrow().list.len()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use balanza_net::transport::Transport;

    use super::*;

    fn connection() -> (Transport, UnixStream) {
        let (mine, theirs) = UnixStream::pair().unwrap();
        (Transport::new(mine.into(), true), theirs)
    }

    #[test]
    fn connections_of_one_server_are_ended() {
        let open = Open::default();
        let ((one, mut first), (other, mut second)) = (connection(), connection());
        open.add(ServerId::new(1), one.hang_up());
        open.add(ServerId::new(2), other.hang_up());
        open.hang_up(ServerId::new(1));
        first.set_nonblocking(true).unwrap();
        second.set_nonblocking(true).unwrap();
        let mut byte = [0];
        use std::io::Read as _;
        assert_eq!(first.read(&mut byte).unwrap(), 0);
        assert_eq!(second.read(&mut byte).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
        assert_eq!(open.len(), 1);
        assert!(open.has_ended(ServerId::new(1)) && !open.has_ended(ServerId::new(2)));
        let (late, mut third) = connection();
        open.add(ServerId::new(1), late.hang_up());
        assert_eq!((third.read(&mut byte).unwrap(), open.len()), (0, 1));
        open.resume(|_| true);
        assert!(open.has_ended(ServerId::new(1)));
        open.resume(|_| false);
        assert!(!open.has_ended(ServerId::new(1)));
    }

    #[test]
    fn closed_connections_are_forgotten() {
        let open = Open::default();
        let (kept, _theirs) = connection();
        open.add(ServerId::new(1), kept.hang_up());
        for _ in 0..10 * FEW {
            let (gone, _) = connection();
            open.add(ServerId::new(1), gone.hang_up());
        }
        assert!(open.len() <= FEW + 1, "{}", open.len());
    }
}
