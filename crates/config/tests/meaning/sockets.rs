//! Addresses to listen on.

use super::*;

/// A socket in short: the address, and for each group its local address and default server.
type Socket = (String, Vec<(Option<String>, String)>);

fn sockets(text: &str) -> Vec<Socket> {
    http(text)
        .listens
        .iter()
        .map(|listen| {
            let groups = listen
                .groups
                .iter()
                .map(|group| (group.local.map(|local| local.to_string()), group.default_server.name.clone()))
                .collect();
            let address = match &listen.address {
                ListenAddress::Inet(address) | ListenAddress::Udp(address) => address.to_string(),
                ListenAddress::Unix(path) => path.display().to_string(),
            };
            (address, groups)
        })
        .collect()
}

#[test]
fn listening_sockets() {
    let none = |name: &str| (None, name.to_string());
    let some = |address: &str, name: &str| (Some(address.to_string()), name.to_string());
    assert_eq!(
        sockets("server { listen 80; server_name a; } server { listen 127.0.0.1:80; server_name b; }"),
        [("0.0.0.0:80".to_string(), vec![some("127.0.0.1:80", "b"), none("a")])]
    );
    assert_eq!(
        sockets("server { listen 80; server_name a; } server { listen 127.0.0.1:80 bind; server_name b; }"),
        [("127.0.0.1:80".to_string(), vec![none("b")]), ("0.0.0.0:80".to_string(), vec![none("a")])]
    );
    assert_eq!(
        sockets("server { listen 127.0.0.1:80; server_name a; } server { listen 127.0.0.1:81; server_name b; }"),
        [("127.0.0.1:80".to_string(), vec![none("a")]), ("127.0.0.1:81".to_string(), vec![none("b")])]
    );
    assert_eq!(
        sockets(
            "server { listen 80; listen [::]:80; server_name a; } server { listen 80 default_server; server_name b; }"
        ),
        [("0.0.0.0:80".to_string(), vec![none("b")]), ("[::]:80".to_string(), vec![none("a")])]
    );
    assert_eq!(
        sockets("server { listen localhost:80; listen unix:/s; listen 82-83; server_name a; }"),
        [
            ("/s".to_string(), vec![none("a")]),
            ("127.0.0.1:80".to_string(), vec![none("a")]),
            ("[::1]:80".to_string(), vec![none("a")]),
            ("0.0.0.0:82".to_string(), vec![none("a")]),
            ("0.0.0.0:83".to_string(), vec![none("a")]),
        ]
    );
    assert_eq!(sockets("server { server_name a; }"), [("0.0.0.0:8000".to_string(), vec![none("a")])]);
    let options =
        http("server { listen 80 backlog=9 reuseport deferred so_keepalive=1m::3 rcvbuf=1k; }").listens[0].options;
    assert_eq!((options.backlog, options.reuseport, options.deferred, options.rcvbuf), (9, true, true, Some(1024)));
    let keepalive = TcpKeepalive::On { idle: Some(Duration::from_secs(60)), interval: None, count: Some(3) };
    assert_eq!((options.keepalive, options.ipv6only), (Some(keepalive), true));
}
