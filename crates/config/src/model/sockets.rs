//! Finding the virtual servers of an address.

use std::net::SocketAddr;

use super::{AddressGroup, Listen, ListenAddress};

impl<T> Listen<T> {
    /// The virtual servers for the local address of a connection, which is only asked for where it matters.
    pub fn group(&self, local: impl FnOnce() -> Option<SocketAddr>) -> &AddressGroup<T> {
        &self.groups[self.group_index(local)]
    }

    /// Where they are in `groups`.
    pub fn group_index(&self, local: impl FnOnce() -> Option<SocketAddr>) -> usize {
        if self.groups.len() == 1 {
            return 0;
        }
        let local = local();
        let wanted = |group: &AddressGroup<T>| match (group.local, local) {
            (Some(local), Some(mine)) => {
                local.ip().to_canonical() == mine.ip().to_canonical() && local.port() == mine.port()
            }
            (None, _) => true,
            _ => false,
        };
        self.groups.iter().position(wanted).unwrap_or(self.groups.len() - 1)
    }
}

impl ListenAddress {
    /// The IP address and the port; none of a Unix-domain socket.
    pub fn inet(&self) -> Option<SocketAddr> {
        match self {
            ListenAddress::Inet(address) | ListenAddress::Udp(address) => Some(*address),
            ListenAddress::Unix(_) => None,
        }
    }
}
