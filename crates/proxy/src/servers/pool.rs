//! Idle connections to the servers of one upstream, as `keepalive` allows: the one used last is used first, and when
//! there are too many the one idle for longest goes. Nothing here depends on the number of servers.
//!
//! Under load the number of idle connections changes all the time, and a connection closed now would be opened again a
//! moment later. So a connection above the limit stays for a tenth of a second, and is closed if no request has used
//! it.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use balanza_config::model::UpstreamKeepalive;
use balanza_net::clock::{self, Nanos};
use balanza_net::transport::Transport;

use rustc_hash::FxHashMap as HashMap;

use super::membership::{Present, ServerId};
use crate::essential;

const NONE: u32 = u32::MAX;
/// How long a connection above the limit stays idle before it is closed.
const MOMENT: Duration = Duration::from_millis(100);

/// A connection to a server.
pub struct ServerConnection {
    /// The socket.
    pub socket: Transport,
    /// Requests it has carried, the current one included.
    pub requests: u64,
    /// When it was opened.
    pub opened: Nanos,
    /// It is for one client alone, which has authenticated itself over it in an upstream with `ntlm`.
    pub private: Option<Private>,
}

/// How a connection for one client was made: the settings, the name and the certificate of TLS, hashed; 0 without it. It is used
/// for the same ones only.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Private(pub usize);

/// A place in two lists: all idle connections by age, and those to one server.
struct Entry {
    connection: Option<Box<ServerConnection>>,
    /// Where it may be used: the location for `keepalive N local`, else 0.
    tag: usize,
    server: ServerId,
    since: Nanos,
    older: u32,
    newer: u32,
    below: u32,
    above: u32,
}

/// The idle connections of one worker to one upstream.
pub struct IdlePool {
    keepalive: UpstreamKeepalive,
    entries: Vec<Entry>,
    free: Vec<u32>,
    oldest: u32,
    newest: u32,
    /// By server: the connection used last.
    top: HashMap<ServerId, u32>,
    count: usize,
    /// Servers whose connections are kept.
    servers: Present,
    /// Whether a task waits to close connections above the limit.
    is_watched: bool,
}

impl IdlePool {
    /// An empty pool for these servers.
    pub fn new(keepalive: UpstreamKeepalive, servers: &Present) -> IdlePool {
        IdlePool {
            keepalive,
            entries: Vec::new(),
            free: Vec::new(),
            oldest: NONE,
            newest: NONE,
            top: HashMap::default(),
            count: 0,
            servers: Arc::clone(servers),
            is_watched: false,
        }
    }

    /// Uses these limits from now on.
    pub fn set_keepalive(&mut self, keepalive: UpstreamKeepalive) {
        self.keepalive = keepalive;
    }

    /// Closes all connections, also those that are returned later.
    pub fn close(&mut self) {
        self.keepalive.connections = 0;
        while self.oldest != NONE {
            self.remove(self.oldest);
        }
    }

    /// Closes the connections to all but these servers, also those that are returned later.
    pub fn keep_only(&mut self, servers: &Present) {
        self.servers = Arc::clone(servers);
        let left: Vec<ServerId> = self.top.keys().filter(|server| !self.servers.contains(server)).copied().collect();
        for server in left {
            while let Some(index) = self.top.get(&server) {
                self.remove(*index);
            }
        }
    }

    fn top_of(&self, server: ServerId) -> u32 {
        self.top.get(&server).copied().unwrap_or(NONE)
    }

    /// Takes an idle connection to a server that its peer has not closed.
    pub fn take(&mut self, server: ServerId, tag: usize, now: Nanos) -> Option<Box<ServerConnection>> {
        let patience = clock::nanos(self.keepalive.timeout);
        let mut index = self.top_of(server);
        while index != NONE {
            let entry = &self.entries[index as usize];
            let below = entry.below;
            if entry.tag == tag {
                let old = now.saturating_sub(entry.since) >= patience;
                let connection = self.remove(index)?;
                if !old && !connection.socket.has_news() {
                    return Some(connection);
                }
            }
            index = below;
        }
        None
    }

    /// Keeps a connection for later, unless it has served or lived for long enough.
    pub fn put(
        pool: &Rc<RefCell<IdlePool>>,
        server: ServerId,
        tag: usize,
        connection: Box<ServerConnection>,
        now: Nanos,
    ) {
        let mut it = pool.borrow_mut();
        it.insert(server, tag, connection, now);
        if it.count > it.keepalive.connections && !std::mem::replace(&mut it.is_watched, true) {
            let watch = IdlePool::watch(Rc::clone(pool));
            tokio::task::spawn_local(essential::task("the watch over idle connections", watch));
        }
    }

    /// Waits until the number is within the limit.
    async fn watch(pool: Rc<RefCell<IdlePool>>) {
        loop {
            tokio::time::sleep(MOMENT).await;
            let mut it = pool.borrow_mut();
            it.close_excess(clock::now());
            it.is_watched = it.count > it.keepalive.connections;
            if !it.is_watched {
                return;
            }
        }
    }

    /// Closes the one idle for longest; false when there is none.
    pub fn close_oldest(&mut self) -> bool {
        self.oldest != NONE && self.remove(self.oldest).is_some()
    }

    /// Closes those idle for longest until the number is within the limit.
    fn close_excess(&mut self, now: Nanos) {
        while self.count > self.keepalive.connections
            && now.saturating_sub(self.entries[self.oldest as usize].since) >= clock::nanos(MOMENT)
        {
            self.remove(self.oldest);
        }
    }

    fn insert(&mut self, server: ServerId, tag: usize, connection: Box<ServerConnection>, now: Nanos) {
        // Whoever calls: a connection over which a client has authenticated itself is not for the others.
        if connection.private.is_some() {
            return;
        }
        let worn = connection.requests >= self.keepalive.requests
            || now - connection.opened >= clock::nanos(self.keepalive.time);
        if self.keepalive.connections == 0 || worn || !self.servers.contains(&server) {
            return;
        }
        let below = self.top_of(server);
        let entry = Entry {
            connection: Some(connection),
            tag,
            server,
            since: now,
            older: self.newest,
            newer: NONE,
            below,
            above: NONE,
        };
        let index = match self.free.pop() {
            Some(index) => {
                self.entries[index as usize] = entry;
                index
            }
            None => {
                self.entries.push(entry);
                (self.entries.len() - 1) as u32
            }
        };
        if below != NONE {
            self.entries[below as usize].above = index;
        }
        self.top.insert(server, index);
        match self.newest {
            NONE => self.oldest = index,
            newest => self.entries[newest as usize].newer = index,
        }
        self.newest = index;
        self.count += 1;
    }

    /// Closes connections that have been idle for too long or were closed by the server.
    pub fn sweep(&mut self, now: Nanos) {
        let patience = clock::nanos(self.keepalive.timeout);
        let mut index = self.oldest;
        while index != NONE {
            let entry = &self.entries[index as usize];
            let newer = entry.newer;
            let closed = entry.connection.as_ref().is_none_or(|connection| connection.socket.has_news());
            if closed || now.saturating_sub(entry.since) >= patience {
                self.remove(index);
            }
            index = newer;
        }
    }

    fn remove(&mut self, index: u32) -> Option<Box<ServerConnection>> {
        let entry = &mut self.entries[index as usize];
        let connection = entry.connection.take();
        let (older, newer, below, above, server) = (entry.older, entry.newer, entry.below, entry.above, entry.server);
        match older {
            NONE => self.oldest = newer,
            older => self.entries[older as usize].newer = newer,
        }
        match newer {
            NONE => self.newest = older,
            newer => self.entries[newer as usize].older = older,
        }
        match above {
            NONE if below == NONE => {
                self.top.remove(&server);
            }
            NONE => {
                self.top.insert(server, below);
            }
            above => self.entries[above as usize].below = below,
        }
        if below != NONE {
            self.entries[below as usize].above = above;
        }
        self.free.push(index);
        self.count -= 1;
        connection
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    use super::*;
    use balanza_net::event_loop;
    use balanza_net::transport::Transport;

    fn pool(connections: usize) -> IdlePool {
        let keepalive = UpstreamKeepalive {
            connections,
            local: false,
            requests: 3,
            time: Duration::from_secs(3600),
            timeout: Duration::from_secs(60),
        };
        IdlePool::new(keepalive, &Arc::new([0, 1, 2].into_iter().map(ServerId::new).collect()))
    }

    fn connection(requests: u64) -> (Box<ServerConnection>, UnixStream) {
        let (near, far) = UnixStream::pair().unwrap();
        near.set_nonblocking(true).unwrap();
        let socket = Transport::new(OwnedFd::from(near), true);
        (Box::new(ServerConnection { socket, requests, opened: 0, private: None }), far)
    }

    #[test]
    fn the_last_connection_is_reused_first_and_the_oldest_goes_first() {
        let mut pool = pool(2);
        let mut far = Vec::new();
        for requests in [0, 1, 2] {
            let (connection, other) = connection(requests);
            far.push(other);
            pool.insert(ServerId::new(1), 7, connection, requests);
        }
        pool.close_excess(clock::nanos(MOMENT) - 1);
        assert_eq!(pool.count, 3, "two are allowed, and a third for a moment");
        pool.close_excess(clock::nanos(MOMENT) + 2);
        assert_eq!(pool.count, 2);
        assert!(pool.take(ServerId::new(0), 7, 60_000_000_000 - 1).is_none());
        assert!(pool.take(ServerId::new(1), 8, 60_000_000_000 - 1).is_none());
        assert_eq!(pool.take(ServerId::new(1), 7, 60_000_000_000 - 1).unwrap().requests, 2);
        assert_eq!(pool.take(ServerId::new(1), 7, 60_000_000_000 - 1).unwrap().requests, 1);
        assert!(pool.take(ServerId::new(1), 7, 60_000_000_000 - 1).is_none());
        assert_eq!(pool.count, 0);
    }

    #[test]
    fn worn_and_old_connections_are_closed() {
        let mut pool = pool(8);
        let (worn, _far) = connection(3);
        pool.insert(ServerId::new(0), 0, worn, 0);
        assert_eq!(pool.count, 0);
        let (fresh, _far) = connection(1);
        pool.insert(ServerId::new(0), 0, fresh, 0);
        let (later, _far) = connection(2);
        pool.insert(ServerId::new(2), 0, later, 59_000_000_000);
        pool.sweep(60_000_000_000);
        assert_eq!(pool.count, 1);
        assert!(pool.take(ServerId::new(0), 0, 60_000_000_000 - 1).is_none());
        assert_eq!(pool.take(ServerId::new(2), 0, 60_000_000_000 - 1).unwrap().requests, 2);
    }

    #[test]
    fn a_connection_of_one_client_is_refused() {
        let mut pool = pool(8);
        let (mut private, mut far) = connection(1);
        private.private = Some(Private(0));
        pool.insert(ServerId::new(0), 0, private, 0);
        assert_eq!(pool.count, 0);
        assert_eq!(std::io::Read::read(&mut far, &mut [0]).unwrap(), 0, "it is closed");
    }

    #[test]
    fn too_many_go_after_a_moment() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        tokio::task::LocalSet::new().block_on(&runtime, async {
            let pool = Rc::new(RefCell::new(pool(1)));
            for round in 0..2 {
                for _ in 0..3 {
                    let (mut connection, _far) = connection(0);
                    connection.opened = clock::now();
                    IdlePool::put(&pool, ServerId::new(0), 0, connection, clock::now());
                }
                assert_eq!(pool.borrow().count, 3 + round);
                tokio::time::timeout(Duration::from_secs(10), async {
                    while pool.borrow().is_watched {
                        tokio::time::sleep(Duration::from_millis(5)).await;
                    }
                })
                .await
                .expect("they go");
                assert_eq!(pool.borrow().count, 1);
            }
        });
    }

    #[test]
    fn what_the_server_closed_is_not_offered() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let served = runtime.block_on(event_loop::run(async {
            let mut pool = pool(8);
            let (connection, far) = connection(1);
            connection.socket.watch().unwrap();
            pool.insert(ServerId::new(0), 0, connection, 0);
            drop(far);
            tokio::time::sleep(Duration::from_millis(20)).await;
            assert!(pool.take(ServerId::new(0), 0, 60_000_000_000 - 1).is_none());
            assert_eq!(pool.count, 0);
        }));
        served.unwrap();
    }
}
