//! Tests of the data plane as a whole, on real sockets; here the servers and the engine that they share.

mod lists;
mod membership;
mod metrics;

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use balanza_config::model::membership::ServerKey;
use balanza_config::model::{Config, ServerAddress, UpstreamServer};
use balanza_config::{Bundle, Options, load};

use crate::Setup;

/// A server that answers each request with 200, and counts those that came long after it was told to rest.
pub struct Origin {
    pub address: SocketAddr,
    pub served: Arc<AtomicU64>,
    pub resting: Arc<AtomicBool>,
    pub strays: Arc<AtomicU64>,
}

impl Origin {
    pub fn start() -> Origin {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let origin = Origin {
            address: listener.local_addr().unwrap(),
            served: Arc::default(),
            resting: Arc::default(),
            strays: Arc::default(),
        };
        let (served, resting, strays) =
            (Arc::clone(&origin.served), Arc::clone(&origin.resting), Arc::clone(&origin.strays));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (served, resting, strays) = (Arc::clone(&served), Arc::clone(&resting), Arc::clone(&strays));
                std::thread::spawn(move || {
                    let mut reader = BufReader::new(stream.try_clone().unwrap());
                    while read_head(&mut reader).is_some() {
                        served.fetch_add(1, SeqCst);
                        if resting.load(SeqCst) {
                            strays.fetch_add(1, SeqCst);
                        }
                        if (&stream).write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok\n").is_err() {
                            return;
                        }
                    }
                });
            }
        });
        origin
    }

    pub fn server(&self) -> UpstreamServer {
        UpstreamServer::new(self.address.to_string(), ServerAddress::Inet(self.address))
    }

    pub fn key(&self) -> ServerKey {
        ServerKey { address: ServerAddress::Inet(self.address), nth: 0 }
    }
}

/// The first line of a head, once all of it has come.
pub fn read_head(reader: &mut impl BufRead) -> Option<String> {
    let mut first = String::new();
    reader.read_line(&mut first).ok().filter(|read| *read > 0)?;
    let mut line = String::new();
    while line != "\r\n" {
        line.clear();
        reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
    }
    Some(first)
}

pub fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_micros(500));
    }
}

/// A socket that a balancer can listen on.
pub fn listener() -> TcpListener {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    listener
}

/// What an engine of two workers needs to run this configuration, whose `http` listens on one of the sockets and whose `stream`
/// on the other.
pub fn setup(text: &str, http: &TcpListener, stream: &TcpListener) -> Setup {
    let mut files = Bundle::default();
    files.add_file("/n.conf", text.to_owned());
    let (config, problems) = load(&files, &Options::new("/", "/n.conf"));
    let config: Arc<Config> = Arc::new(config.unwrap_or_else(|| panic!("{problems:?}")));
    let listens = config.http.listens.iter().map(|listen| (listen.address.clone(), http));
    let listeners = listens.chain(config.stream.listens.iter().map(|listen| (listen.address.clone(), stream)));
    let listeners = listeners.map(|(address, socket)| (address, vec![socket.try_clone().unwrap().into()])).collect();
    Setup { config, listeners, logs: Vec::new(), threads: 2, changes: Default::default(), respawned: 0 }
}
