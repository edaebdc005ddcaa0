//! The listening sockets of a worker, for connections that `pass` hands to them.

use std::cell::RefCell;
use std::rc::Rc;

use balanza_config::model::ListenAddress;
use balanza_net::buffer::Buffer;
use balanza_net::transport::Transport;

use crate::client::Client;

/// A connection that another listening socket has accepted.
pub struct Handed {
    /// The client.
    pub client: Client,
    /// The way to it.
    pub socket: Transport,
    /// What was read from it and is to be read again.
    pub received: Option<Buffer>,
}

/// What is done with a connection.
pub type Serve = Rc<dyn Fn(Handed)>;

/// The listening sockets of the newest configuration, in its order.
#[derive(Default)]
pub struct Ports {
    list: RefCell<Vec<(ListenAddress, Serve)>>,
}

impl Ports {
    /// Puts those of another configuration in their place.
    pub fn replace(&self, list: Vec<(ListenAddress, Serve)>) {
        // Those before may hold the last references to much: they end outside the borrow.
        let _before = self.list.replace(list);
    }

    /// What serves the connections to an address: a socket of that address, or of all addresses of its port.
    pub fn find(&self, address: &ListenAddress) -> Option<Serve> {
        let list = self.list.borrow();
        let fits = |listens: &ListenAddress| match (listens, address) {
            (ListenAddress::Inet(one), ListenAddress::Inet(other)) => {
                one == other
                    || one.ip().is_unspecified() && one.is_ipv4() == other.is_ipv4() && one.port() == other.port()
            }
            (ListenAddress::Unix(one), ListenAddress::Unix(other)) => one == other,
            _ => false,
        };
        list.iter().find(|(listens, _)| fits(listens)).map(|(_, serve)| Rc::clone(serve))
    }
}
