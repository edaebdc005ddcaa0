//! What the workers count is what clients and servers have seen, through reloads and changes of the number of workers.

use std::collections::BTreeMap;
use std::io::{BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::Ordering::SeqCst;

use balanza_config::model::ServerAddress;
use balanza_config::model::membership::Protocol;

use super::{Origin, listener, wait_for};
use crate::{Engine, Setup};

/// Sends a request on a connection of its own, and returns the bytes of its response.
fn ask(address: SocketAddr, path: &str) -> u64 {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(request(path).as_bytes()).unwrap();
    let mut response = Vec::new();
    BufReader::new(stream).read_to_end(&mut response).unwrap();
    response.len() as u64
}

fn request(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: shop\r\nConnection: close\r\n\r\n")
}

#[test]
fn counters_agree_with_what_was_sent() {
    let origins: Vec<Origin> = (0..2).map(|_| Origin::start()).collect();
    // Bound, but not listening: it refuses, and no other program gets the port.
    let bound = tokio::net::TcpSocket::new_v4().unwrap();
    bound.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let closed = bound.local_addr().unwrap();
    let (http, stream) = (listener(), listener());
    let (of_http, of_stream) = (http.local_addr().unwrap(), stream.local_addr().unwrap());
    let setup = |threads, more: &str| {
        let text = format!(
            "error_log stderr alert; events {{}}
             http {{
               access_log off;
               upstream backend {{ server {}; server {}; server {closed} max_fails=0; {more} }}
               server {{
                 listen {of_http}; server_name shop;
                 location / {{ proxy_pass http://backend; }}
                 location /gone {{ return 410; }}
                 location /silent {{ return 444; }}
               }}
             }}
             stream {{ server {{ listen {of_stream}; proxy_pass {}; }} }}",
            origins[0].address, origins[1].address, origins[0].address
        );
        Setup { threads, ..super::setup(&text, &http, &stream) }
    };
    let engine = Engine::start(setup(2, "")).unwrap();
    let (mut received, mut sent) = (0, 0);
    let mut ask_each = |path: &str, times: usize| {
        for _ in 0..times {
            sent += ask(of_http, path);
            received += request(path).len() as u64;
        }
    };
    ask_each("/", 30);
    ask_each("/gone", 4);
    // A worker leaves, another comes, and the upstream gets another algorithm: its servers stay who they are.
    engine.reload(setup(1, "least_conn;")).unwrap();
    engine.reload(setup(2, "least_conn;")).unwrap();
    ask_each("/", 30);
    ask_each("/silent", 3);
    let requests = || engine.requests(Protocol::Http, "shop");
    wait_for("67 requests", || requests().times.count() == 67);
    assert_eq!(requests().statuses, BTreeMap::from([(200, 60), (410, 4)]));
    assert_eq!((requests().discarded, requests().received, requests().sent), (3, received, sent));
    assert!(requests().times.quantile(0.5) <= requests().times.quantile(0.99));

    let attempts = BTreeMap::from_iter(engine.attempts(Protocol::Http, "backend"));
    for origin in &origins {
        let of_server = &attempts[&ServerAddress::Inet(origin.address)];
        let served = origin.served.load(SeqCst);
        assert!(served > 0);
        assert_eq!((of_server.attempts, of_server.classes, of_server.failures), (served, [0, served, 0, 0, 0], 0));
        let bytes = served * b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok\n".len() as u64;
        assert_eq!((of_server.headers, of_server.times.count(), of_server.received), (served, served, bytes));
    }
    let of_closed = &attempts[&ServerAddress::Inet(closed)];
    assert!(of_closed.attempts > 0);
    assert_eq!((of_closed.failures, of_closed.headers, of_closed.received), (of_closed.attempts, 0, 0));

    let mut session = TcpStream::connect(of_stream).unwrap();
    session.write_all(request("/").as_bytes()).unwrap();
    session.read_exact(&mut [0; 40]).unwrap();
    wait_for("one connection", || engine.connections().active == 1);
    drop(session);
    let sessions = || engine.requests(Protocol::Stream, &of_stream.to_string());
    wait_for("the end of the session", || sessions().times.count() == 1);
    assert_eq!((sessions().statuses, sessions().received), (BTreeMap::from([(200, 1)]), request("/").len() as u64));
    let kept = TcpStream::connect(of_http).unwrap();
    wait_for("an idle connection", || engine.connections().idle == 1);
    drop(kept);
    wait_for("no connections", || engine.connections().active == 0);
    let connections = engine.connections();
    assert_eq!((connections.accepted, connections.idle, connections.dropped), (67 + 2, 0, 0));
    engine.stop();
}
