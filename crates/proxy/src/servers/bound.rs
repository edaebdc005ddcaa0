//! `ntlm`: idle connections to servers that are bound to one client each.
//!
//! A server with NTLM authenticates a connection, not a request: every later request on the connection counts as that
//! of the client that has authenticated itself. So such a connection never goes to the [`IdlePool`](super::pool::IdlePool), which refuses it,
//! and it can be had by its [`Binding`] only. There is one binding for a connection, it cannot be copied, and it stands
//! beside the socket of its client, with which it ends. The connections themselves are kept with their upstream, so that
//! those of servers that leave are closed at once.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use balanza_balancing::Member;
use rustc_hash::FxHashMap as HashMap;

use super::membership::{Present, ServerId};
use super::pool::{Private, ServerConnection};

/// The server of a binding, and where it stood in the list of servers.
#[derive(Clone, Copy)]
pub struct BoundServer {
    /// Who it is.
    pub server: ServerId,
    hint: Member,
}

impl BoundServer {
    /// Its place in a list of servers; none if it has left. Only after a change of the list is it searched for.
    pub fn among(&self, ids: &[ServerId]) -> Option<Member> {
        if ids.get(self.hint.0 as usize) == Some(&self.server) {
            return Some(self.hint);
        }
        ids.iter().position(|id| *id == self.server).map(|at| Member(at as u32))
    }
}

/// The bound connections of one worker to the servers of one upstream, while no request uses them.
pub struct BoundConnections {
    /// By a number that is never used again, so that no binding finds the connection of another.
    by_number: RefCell<HashMap<u64, (ServerId, Box<ServerConnection>)>>,
    last_number: Cell<u64>,
    /// Servers whose connections are kept.
    servers: RefCell<Present>,
}

impl BoundConnections {
    /// None, for these servers.
    pub fn new(servers: &Present) -> BoundConnections {
        let servers = RefCell::new(Arc::clone(servers));
        BoundConnections { by_number: RefCell::default(), last_number: Cell::new(0), servers }
    }

    /// Keeps a connection for the one who gets its binding; none if the server has left.
    pub fn bind(
        self: &Rc<BoundConnections>,
        server: ServerId,
        hint: Member,
        connection: Box<ServerConnection>,
    ) -> Option<Binding> {
        if !self.servers.borrow().contains(&server) {
            return None;
        }
        let number = self.last_number.get() + 1;
        self.last_number.set(number);
        self.by_number.borrow_mut().insert(number, (server, connection));
        Some(Binding { home: Rc::clone(self), number, server: BoundServer { server, hint } })
    }

    /// Closes the connections to all but these servers, also those that are returned later.
    pub fn keep_only(&self, servers: &Present) {
        let mut kept = self.servers.borrow_mut();
        *kept = Arc::clone(servers);
        self.by_number.borrow_mut().retain(|_, (server, _)| kept.contains(server));
    }

    /// Closes those that the server has closed, or over which it has sent something unrequested.
    pub fn sweep(&self) {
        self.by_number.borrow_mut().retain(|_, (_, connection)| !connection.socket.has_news());
    }
}

/// The right to use a bound connection.
pub struct Binding {
    home: Rc<BoundConnections>,
    number: u64,
    server: BoundServer,
}

impl Binding {
    /// The connection, unless it is gone or was closed by the server.
    fn take(self) -> Option<Box<ServerConnection>> {
        let (_, connection) = self.home.by_number.borrow_mut().remove(&self.number)?;
        Some(connection).filter(|connection| !connection.socket.has_news())
    }

    fn is_alive(&self) -> bool {
        let connections = self.home.by_number.borrow();
        connections.get(&self.number).is_some_and(|(_, connection)| !connection.socket.has_news())
    }
}

impl Drop for Binding {
    fn drop(&mut self) {
        let closed = self.home.by_number.borrow_mut().remove(&self.number);
        drop(closed);
    }
}

/// The bindings of a client's connection: one for an upstream at most.
#[derive(Default)]
pub struct Bindings(Vec<Binding>);

impl Bindings {
    /// The server that the client is bound to. A binding whose connection was closed is forgotten.
    pub fn server(&mut self, home: &Rc<BoundConnections>) -> Option<BoundServer> {
        let at = self.position(home)?;
        if !self.0[at].is_alive() {
            self.0.swap_remove(at);
            return None;
        }
        Some(self.0[at].server)
    }

    /// Ends the binding to this upstream. Its connection, if it leads to this server and was made like that.
    pub fn take(
        &mut self,
        home: &Rc<BoundConnections>,
        server: ServerId,
        private: Private,
    ) -> Option<Box<ServerConnection>> {
        let binding = self.0.swap_remove(self.position(home)?);
        if binding.server.server != server {
            return None;
        }
        binding.take().filter(|connection| connection.private == Some(private))
    }

    /// Adds one, in place of another one to the same upstream.
    pub fn put(&mut self, binding: Binding) {
        if let Some(at) = self.position(&binding.home) {
            self.0.swap_remove(at);
        }
        self.0.push(binding);
    }

    fn position(&self, home: &Rc<BoundConnections>) -> Option<usize> {
        self.0.iter().position(|binding| Rc::ptr_eq(&binding.home, home))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;

    use balanza_net::transport::Transport;

    use super::*;

    const ONE: ServerId = ServerId::new(1);
    const OTHER: ServerId = ServerId::new(2);

    const PLAIN: Private = Private(0);

    fn connection(requests: u64) -> (Box<ServerConnection>, UnixStream) {
        let (near, far) = UnixStream::pair().unwrap();
        near.set_nonblocking(true).unwrap();
        far.set_nonblocking(true).unwrap();
        let socket = Transport::new(OwnedFd::from(near), true);
        (Box::new(ServerConnection { socket, requests, opened: 0, private: Some(PLAIN) }), far)
    }

    fn is_closed(mut far: &UnixStream) -> bool {
        far.read(&mut [0]).is_ok_and(|read| read == 0)
    }

    fn home() -> Rc<BoundConnections> {
        Rc::new(BoundConnections::new(&Arc::new([ONE, OTHER].into_iter().collect())))
    }

    #[test]
    fn each_client_gets_its_own_connection() {
        let home = home();
        let (mut clients, mut far) = (Vec::new(), Vec::new());
        for number in 0..5 {
            let (connection, other) = connection(number);
            far.push(other);
            let mut bindings = Bindings::default();
            bindings.put(home.bind(ONE, Member(0), connection).unwrap());
            clients.push(bindings);
        }
        // Numbers of clients that have gone are not used again.
        drop(clients.remove(4));
        assert!(is_closed(&far[4]));
        let (another, _far) = connection(5);
        clients.push(Bindings::default());
        clients[4].put(home.bind(ONE, Member(0), another).unwrap());
        for (number, bindings) in clients.iter_mut().enumerate().rev() {
            let expected = if number == 4 { 5 } else { number as u64 };
            assert_eq!(bindings.take(&home, ONE, PLAIN).unwrap().requests, expected);
            assert!(bindings.take(&home, ONE, PLAIN).is_none(), "it is taken");
        }
        assert!(home.by_number.borrow().is_empty());
    }

    #[test]
    fn a_connection_that_does_not_suit_is_closed() {
        let home = home();
        for (server, tag) in [(OTHER, 0), (ONE, 1)] {
            let mut bindings = Bindings::default();
            let (connection, far) = connection(1);
            bindings.put(home.bind(ONE, Member(0), connection).unwrap());
            assert!(bindings.take(&home, server, Private(tag)).is_none());
            assert!(is_closed(&far), "the binding is over");
        }
    }

    #[test]
    fn an_upstream_has_one_binding_of_a_client() {
        let (home, another) = (home(), home());
        let mut bindings = Bindings::default();
        let ((first, far), (second, _far), (third, _far3)) = (connection(1), connection(2), connection(3));
        bindings.put(home.bind(ONE, Member(0), first).unwrap());
        bindings.put(another.bind(ONE, Member(0), second).unwrap());
        bindings.put(home.bind(OTHER, Member(1), third).unwrap());
        assert!(is_closed(&far));
        assert_eq!(bindings.server(&home).unwrap().server, OTHER);
        assert_eq!(bindings.take(&another, ONE, PLAIN).unwrap().requests, 2);
        assert_eq!(bindings.take(&home, OTHER, PLAIN).unwrap().requests, 3);
    }

    #[test]
    fn connections_of_servers_that_leave_are_closed() {
        let home = home();
        let mut bindings = Bindings::default();
        let (connection_of_one, far) = connection(1);
        bindings.put(home.bind(ONE, Member(0), connection_of_one).unwrap());
        home.keep_only(&Arc::new([OTHER].into_iter().collect()));
        assert!(is_closed(&far));
        assert!(bindings.server(&home).is_none());
        // One that was in use at that time.
        let (late, far) = connection(1);
        assert!(home.bind(ONE, Member(0), late).is_none());
        assert!(is_closed(&far));
    }
}
