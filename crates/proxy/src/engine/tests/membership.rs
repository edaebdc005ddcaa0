//! The servers of an upstream are added, changed, drained and removed while it serves, and no request is lost.

use std::collections::BTreeSet;
use std::io::{BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use balanza_config::model::membership::{Change, ChangeError, Protocol};
use balanza_config::model::{ServerAddress, UpstreamServer};

use super::{Origin, listener, read_head, wait_for};
use crate::{Engine, Setup};

/// Sends requests until told to stop; returns how many, or what went wrong.
fn ask(address: SocketAddr, kept: bool, stop: &AtomicBool) -> Result<u64, String> {
    let connect = || BufReader::new(TcpStream::connect(address).unwrap());
    let mut reader = connect();
    let mut count = 0;
    while !stop.load(SeqCst) {
        let fail = |what: &str| format!("request {count} on {address}: {what}");
        reader.get_mut().write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").map_err(|error| fail(&error.to_string()))?;
        let first = read_head(&mut reader).ok_or_else(|| fail("no response"))?;
        let mut body = [0; 3];
        reader.read_exact(&mut body).map_err(|error| fail(&error.to_string()))?;
        if !first.starts_with("HTTP/1.1 200") || body != *b"ok\n" {
            return Err(fail(&first));
        }
        count += 1;
        if !kept {
            reader = connect();
        }
    }
    Ok(count)
}

struct Balancer {
    engine: Engine,
    http: TcpListener,
    stream: TcpListener,
}

impl Balancer {
    fn start(servers: &str) -> Balancer {
        let (http, stream) = (listener(), listener());
        let engine = Engine::start(setup(&http, &stream, servers)).unwrap();
        Balancer { engine, http, stream }
    }

    fn reload(&self, servers: &str) {
        self.engine.reload(setup(&self.http, &self.stream, servers)).unwrap();
    }

    /// The servers of an upstream, and that nothing is in flight at any of them.
    fn servers_at_rest(&self, protocol: Protocol) -> BTreeSet<ServerAddress> {
        wait_for("requests in flight", || {
            self.engine.in_flight(protocol, "backend").iter().all(|(_, in_flight)| *in_flight == 0)
        });
        self.engine.in_flight(protocol, "backend").into_iter().map(|(address, _)| address).collect()
    }
}

fn setup(http: &TcpListener, stream: &TcpListener, servers: &str) -> Setup {
    let (of_http, of_stream) = (http.local_addr().unwrap(), stream.local_addr().unwrap());
    let text = format!(
        "error_log stderr notice; events {{}}
         http {{
           access_log off;
           upstream backend {{ {servers} keepalive 16; }}
           server {{ listen {of_http}; keepalive_requests 1000000; location / {{ proxy_pass http://backend; }} }}
         }}
         stream {{
           upstream backend {{ {servers} }}
           server {{ listen {of_stream}; proxy_pass backend; }}
         }}"
    );
    super::setup(&text, http, stream)
}

/// Ends the clients also when the test fails, which would wait for them.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

/// Small and good enough: xorshift.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % limit
    }
}

#[test]
fn a_thousand_changes_under_load_lose_no_request() {
    let origins: Vec<Origin> = (0..6).map(|_| Origin::start()).collect();
    let configured = |weight| format!("server {} weight={weight}; server {};", origins[0].address, origins[1].address);
    let balancer = Balancer::start(&configured(1));
    let (of_http, of_stream) = (balancer.http.local_addr().unwrap(), balancer.stream.local_addr().unwrap());
    let stop = AtomicBool::new(false);
    // The first server is always there; the others come and go.
    let mut present: BTreeSet<usize> = [0, 1].into();
    let counts: Vec<u64> = std::thread::scope(|scope| {
        let loads = [(of_http, true), (of_http, true), (of_http, false), (of_stream, true), (of_stream, false)];
        let (stop, _guard) = (&stop, StopOnDrop(&stop));
        let clients = loads.map(|(address, kept)| scope.spawn(move || ask(address, kept, stop)));
        let served = || origins.iter().map(|origin| origin.served.load(SeqCst)).sum::<u64>();
        let mut random = Random(0x9e37_79b9_7f4a_7c15);
        for step in 0..1_000 {
            let which = 1 + random.below(origins.len() - 1);
            let origin = &origins[which];
            let kind = random.below(6);
            let change = match present.contains(&which) {
                false => {
                    present.insert(which);
                    Change::Add(UpstreamServer { weight: 1 + kind as u32, ..origin.server() })
                }
                true if kind < 2 => {
                    present.remove(&which);
                    Change::Remove(origin.key())
                }
                true => {
                    let changed = UpstreamServer {
                        weight: 1 + random.below(9) as u32,
                        down: kind == 2,
                        draining: kind == 3,
                        max_conns: random.below(3) as u32 * 100,
                        ..origin.server()
                    };
                    Change::Set(origin.key(), changed)
                }
            };
            for protocol in [Protocol::Http, Protocol::Stream] {
                balancer.engine.change(protocol, "backend", change.clone()).unwrap();
            }
            if step % 250 == 249 {
                balancer.reload(&configured(1 + step % 7));
            }
            // Requests go on between any two changes.
            let before = served();
            wait_for("no requests", || served() >= before + 5);
        }
        stop.store(true, SeqCst);
        clients.map(|client| client.join().unwrap().unwrap()).to_vec()
    });
    assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
    let expected: BTreeSet<ServerAddress> =
        present.iter().map(|which| ServerAddress::Inet(origins[*which].address)).collect();
    for protocol in [Protocol::Http, Protocol::Stream] {
        assert_eq!(balancer.servers_at_rest(protocol), expected);
    }
    balancer.engine.stop();
}

/// A server that was removed gets nothing more, one that is added gets its share, and what is known of those that stay is
/// kept.
#[test]
fn servers_come_and_go_at_once() {
    let origins: Vec<Origin> = (0..3).map(|_| Origin::start()).collect();
    let balancer = Balancer::start(&format!("server {};", origins[0].address));
    let address = balancer.http.local_addr().unwrap();
    let ask_some = || {
        let begun: Vec<u64> = origins.iter().map(|origin| origin.served.load(SeqCst)).collect();
        let mut reader = BufReader::new(TcpStream::connect(address).unwrap());
        for _ in 0..30 {
            reader.get_mut().write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
            assert!(read_head(&mut reader).unwrap().contains(" 200 "));
            reader.read_exact(&mut [0; 3]).unwrap();
        }
        let served = |(origin, begun): (&Origin, u64)| origin.served.load(SeqCst) - begun;
        origins.iter().zip(begun).map(served).collect::<Vec<u64>>()
    };
    // A worker takes the change over a moment later.
    let settles = |expected: [u64; 3]| wait_for(&format!("{expected:?}"), || ask_some() == expected);
    let change = |change| balancer.engine.change(Protocol::Http, "backend", change);
    settles([30, 0, 0]);
    change(Change::Add(origins[1].server())).unwrap();
    settles([15, 15, 0]);
    change(Change::Add(UpstreamServer { weight: 4, ..origins[2].server() })).unwrap();
    settles([5, 5, 20]);
    change(Change::Remove(origins[0].key())).unwrap();
    settles([0, 6, 24]);
    origins[0].resting.store(true, SeqCst);
    change(Change::Set(origins[2].key(), UpstreamServer { draining: true, ..origins[2].server() })).unwrap();
    settles([0, 30, 0]);
    // The reload changes the weight of a server that nobody changed, and names one that was removed.
    let configured = |weight| format!("server {}; server {} weight={weight};", origins[0].address, origins[1].address);
    balancer.reload(&configured(3));
    settles([0, 30, 0]);
    let changes = balancer.engine.changes();
    assert_eq!(changes.len(), 1);
    change(Change::Set(origins[2].key(), origins[2].server())).unwrap();
    settles([0, 15, 15]);
    assert_eq!(origins[0].strays.load(SeqCst), 0);

    let refused = |change, error| {
        let before = balancer.engine.changes();
        assert_eq!(balancer.engine.change(Protocol::Http, "backend", change).unwrap_err(), error);
        assert_eq!(balancer.engine.changes(), before);
    };
    refused(Change::Remove(origins[0].key()), ChangeError::NoServer(origins[0].key().address));
    change(Change::Remove(origins[1].key())).unwrap();
    let missing = balancer.engine.change(Protocol::Stream, "other", Change::Remove(origins[1].key()));
    assert_eq!(missing.unwrap_err(), ChangeError::NoUpstream("other".into()));
    settles([0, 0, 30]);

    // Another process begins with what was changed.
    let changes = balancer.engine.changes();
    balancer.engine.stop();
    let next = setup(&balancer.http, &balancer.stream, &configured(1));
    let engine = Engine::start(Setup { changes, ..next }).unwrap();
    let servers: Vec<ServerAddress> =
        engine.in_flight(Protocol::Http, "backend").into_iter().map(|(address, _)| address).collect();
    assert_eq!(servers, [origins[2].key().address]);
    engine.stop();
}
