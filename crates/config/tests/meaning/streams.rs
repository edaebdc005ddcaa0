//! `stream`.

use super::*;

fn stream(text: &str) -> Stream {
    config(&format!("events {{ }} stream {{ {text} }}")).stream
}

#[test]
fn a_session_has_nginx_s_defaults() {
    let stream = stream("server { listen 5000; proxy_pass 127.0.0.1:6000; }");
    let server = &stream.listens[0].groups[0].default_server;
    assert!(matches!(server.target, StreamTarget::Fixed(0)));
    assert_eq!((server.connect_timeout, server.timeout), (Duration::from_secs(60), Duration::from_secs(600)));
    assert_eq!((server.buffer_size, server.preread_buffer_size), (16384, 16384));
    assert_eq!(server.preread_timeout, Duration::from_secs(30));
    assert!(server.next_upstream && server.tcp_nodelay && !server.half_close && !server.prereads);
    assert!(server.access_logs.is_empty() && server.access.is_empty() && server.bind.is_none());
    assert_eq!(server.error_log.len(), 1, "that of the main context");
    assert_eq!(stream.upstreams[0].servers[0].address, ServerAddress::Inet("127.0.0.1:6000".parse().unwrap()));
}

#[test]
fn a_server_inherits_what_it_does_not_set() {
    let stream = stream(
        "proxy_timeout 5s; proxy_half_close on; allow 10.0.0.0/8; error_log /e.log;
         log_format f $status; access_log /a.log f;
         server { listen 5000; proxy_pass 127.0.0.1:1; }
         server { listen 5001; proxy_pass 127.0.0.1:1; proxy_timeout 6s; deny all; access_log off; }",
    );
    let [one, other] = [0, 1].map(|index: usize| &stream.listens[index].groups[0].default_server);
    assert_eq!((one.timeout, other.timeout), (Duration::from_secs(5), Duration::from_secs(6)));
    assert!(one.half_close && other.half_close);
    assert_eq!((one.access.len(), other.access.len()), (1, 1));
    assert!(one.access[0].allow && !other.access[0].allow);
    assert_eq!((one.access_logs.len(), other.access_logs.len()), (1, 0));
    assert_eq!(stream.access_log_files, [PathBuf::from("/a.log")]);
    assert_eq!(stream.error_log_files, [PathBuf::from("/e.log")]);
    assert_eq!(stream.upstreams.len(), 1, "one address is one upstream");
}

#[test]
fn tcp_and_udp_have_a_port_each() {
    let stream = stream("server { listen 53; listen 53 udp; proxy_pass 10.0.0.1:53; proxy_responses 1; }");
    let addresses: Vec<_> = stream.listens.iter().map(|listen| listen.address.clone()).collect();
    let any = "0.0.0.0:53".parse().unwrap();
    assert_eq!(addresses, [ListenAddress::Inet(any), ListenAddress::Udp(any)]);
    let server = &stream.listens[1].groups[0].default_server;
    assert_eq!((server.requests, server.responses), (0, Some(1)));
}

#[test]
fn an_address_of_udp_shares_the_wildcard_of_udp_only() {
    let stream = stream(
        "server { listen 53 udp; proxy_pass 10.0.0.1:53; } server { listen 127.0.0.1:53 udp; return a; }
         server { listen 127.0.0.1:53; return b; } server { listen 127.0.0.2:53 udp reuseport; return c; }",
    );
    let shown: Vec<_> = stream.listens.iter().map(|listen| (listen.address.clone(), listen.groups.len())).collect();
    let address = |text: &str| text.parse().unwrap();
    let expected = [
        (ListenAddress::Udp(address("127.0.0.2:53")), 1),
        (ListenAddress::Udp(address("0.0.0.0:53")), 2),
        (ListenAddress::Inet(address("127.0.0.1:53")), 1),
    ];
    assert_eq!(shown, expected);
}

#[test]
fn datagrams_have_nginx_s_defaults() {
    let stream = stream("server { listen 53 udp; proxy_pass 10.0.0.1:53; }");
    let server = &stream.listens[0].groups[0].default_server;
    assert_eq!((server.requests, server.responses), (0, None));
    assert_eq!((server.socket_buffers.receive, server.socket_buffers.send), (None, None));
    assert_eq!([&server.upload_rate, &server.download_rate].map(|rate| rate.as_literal()), [Some(&b"0"[..]); 2]);
}

#[test]
fn who_reads_the_cookie_reads_ahead() {
    let prereads = |text: &str| stream(text).listens[0].groups[0].default_server.prereads;
    let server = "server { listen 1; proxy_pass u; }";
    assert!(!prereads(&format!("upstream u {{ hash $remote_addr; server 10.0.0.1:1; }} {server}")));
    assert!(prereads(&format!("upstream u {{ hash $rdp_cookie; server 10.0.0.1:1; }} {server}")));
    assert!(prereads(&format!("upstream u {{ balance maglev key=x$rdp_cookie_msts; server 10.0.0.1:1; }} {server}")));
    let other = "upstream u { server 10.0.0.1:1; } upstream v { hash $rdp_cookie; server 10.0.0.1:1; }";
    assert!(!prereads(&format!("{other} {server}")), "another server's business");
    assert!(prereads(&format!("{other} server {{ listen 1; proxy_pass $remote_addr:5; }}")), "it may lead there");
    assert!(prereads("log_format f $rdp_cookie; server { listen 1; proxy_pass 10.0.0.1:1; access_log /a f; }"));
    assert!(prereads(
        "log_format f $status; server { listen 1; proxy_pass 10.0.0.1:1; access_log /a f if=$rdp_cookie_x; }"
    ));
}

#[test]
fn the_cookie_has_a_name() {
    let stream = stream("upstream u { hash $rdp_cookie$RDP_COOKIE_Msts; server 10.0.0.1:1; }");
    let name = |name: &[u8]| Part::Variable(Variable::RdpCookie(name.into()));
    let key = stream.upstreams[0].balance.key.as_ref().unwrap();
    assert_eq!(key.parts(), [name(b"mstshash"), name(b"msts")]);
}

#[test]
fn times_of_a_stream_are_told_apart() {
    let balance = |text: &str| {
        let stream = stream(&format!("upstream u {{ {text} server 10.0.0.1:1; }}"));
        let balance = &stream.upstreams[0].balance;
        (balance.spec.choice("by"), balance.first_sign)
    };
    assert_eq!(balance("least_time connect;"), ("header", FirstSign::Connect));
    assert_eq!(balance("least_time first_byte;"), ("header", FirstSign::FirstByte));
    assert_eq!(balance("least_time last_byte inflight;"), ("last_byte", FirstSign::Connect));
    assert_eq!(balance("random two least_time=first_byte;"), ("header", FirstSign::FirstByte));
    assert_eq!(balance("balance two_choices by=first_byte;"), ("header", FirstSign::FirstByte));
    assert_eq!(balance("two_choices;"), ("least_conn", FirstSign::Connect));
}

#[test]
fn addresses_without_a_socket_share_the_wildcards() {
    let stream = stream(
        "server { listen 127.0.0.1:5000; proxy_pass 10.0.0.1:1; }
         server { listen 5000; proxy_pass 10.0.0.1:2; }
         server { listen 127.0.0.2:5000 backlog=9; proxy_pass 10.0.0.1:3; }
         server { listen [::1]:5000; listen unix:/s; proxy_pass 10.0.0.1:4; }",
    );
    let shown: Vec<String> = stream
        .listens
        .iter()
        .map(|listen| {
            let servers = listen.groups.iter().map(|group| {
                let StreamTarget::Fixed(upstream) = group.default_server.target else { panic!("a fixed target") };
                format!("{} {upstream}", group.local.map_or("*".into(), |local| local.to_string()))
            });
            format!("{:?} {}", listen.address, servers.collect::<Vec<_>>().join(", "))
        })
        .collect();
    assert_eq!(
        shown,
        [
            "Unix(\"/s\") * 3",
            "Inet(127.0.0.2:5000) * 2",
            "Inet(0.0.0.0:5000) 127.0.0.1:5000 0, * 1",
            "Inet([::1]:5000) * 3"
        ]
    );
}

#[test]
fn http_and_stream_have_their_own_names() {
    let config = config(
        "events { }
         http { upstream u { server 10.0.0.1; } log_format f $uri; server { listen 80; location / { proxy_pass http://u; } } }
         stream { upstream u { server 10.0.0.2:5; } log_format f $status; server { listen 81; proxy_pass u; } }",
    );
    assert_eq!((config.http.upstreams.len(), config.stream.upstreams.len()), (1, 1));
    let addresses: Vec<String> = config.sockets().map(|(address, ..)| format!("{address:?}")).collect();
    assert_eq!(addresses, ["Inet(0.0.0.0:80)", "Inet(0.0.0.0:81)"]);
}

/// NGINX has no `sticky` for sessions of TCP and UDP: there `hash` keeps a client on its server.
#[test]
fn sessions_cannot_be_sticky() {
    let text =
        "events { } stream { upstream u { server 10.0.0.2:5; sticky cookie a; } server { listen 81; proxy_pass u; } }";
    let (config, problems) = load(&bundle(text), &options());
    assert!(config.is_none());
    let problems = format!("{problems:?}");
    assert!(problems.contains("\\\"sticky\\\" directive is not allowed here"), "{problems}");
}
