//! Where requests go.

use super::*;

#[test]
fn set_header_replaces_a_default() {
    let location = location("location / { proxy_set_header host $host; proxy_set_header Connection upgrade; }", "/");
    let headers = &location.settings.proxy.set_headers;
    assert_eq!(headers.iter().filter(|h| h.name.eq_ignore_ascii_case(b"host")).count(), 1);
    assert_eq!(headers[0].value.parts(), [Part::Variable(Variable::Host)]);
    assert_eq!(headers.iter().find(|h| &*h.name == b"Connection").unwrap().value, literal("upgrade"));
}

fn pass(text: &str) -> (ProxyTarget, Vec<String>) {
    let location = location(&format!("location /api/ {{ {text} }}"), "/api/x");
    let redirects = location
        .settings
        .proxy
        .redirects
        .iter()
        .map(|rule| match &rule.pattern {
            RedirectPattern::Prefix(prefix) => format!(
                "{} -> {}",
                String::from_utf8_lossy(prefix.as_literal().unwrap()),
                String::from_utf8_lossy(rule.replacement.as_literal().unwrap())
            ),
            RedirectPattern::Regex(regex) => regex.pattern().to_string(),
        })
        .collect();
    let Location { handler: Handler::Proxy(pass), auto_redirect: true, .. } = Arc::into_inner(location).unwrap() else {
        panic!("no proxy")
    };
    (pass.target, redirects)
}

#[test]
fn proxy_pass_targets() {
    let fixed = |text: &str| match pass(text) {
        (ProxyTarget::Fixed { host, port, uri, .. }, redirects) => {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            (text(&host), port, uri.map(|uri| text(&uri)), redirects)
        }
        _ => panic!("not fixed"),
    };
    let table = [
        ("proxy_pass http://127.0.0.1;", "127.0.0.1", 80, None, "http://127.0.0.1/ -> /"),
        ("proxy_pass http://127.0.0.1:80/;", "127.0.0.1", 80, Some("/"), "http://127.0.0.1:80/ -> /api/"),
        ("proxy_pass http://127.0.0.1:81/v1/;", "127.0.0.1:81", 81, Some("/v1/"), "http://127.0.0.1:81/v1/ -> /api/"),
        ("proxy_pass http://[::1]:81;", "[::1]:81", 81, None, "http://[::1]:81/ -> /"),
        ("proxy_pass http://unix:/a.sock:/v/;", "localhost", 0, Some("/v/"), "http://unix:/a.sock:/v/ -> /api/"),
    ];
    for (text, host, port, uri, redirect) in table {
        let wanted = (host.to_string(), port, uri.map(ToString::to_string), vec![redirect.to_string()]);
        assert_eq!(fixed(text), wanted, "{text}");
    }
    assert_eq!(fixed("proxy_pass http://127.0.0.1; proxy_redirect off;").3, Vec::<String>::new());
    assert_eq!(
        fixed("proxy_pass http://127.0.0.1/v/; proxy_redirect http://a/ /b/; proxy_redirect ~*^x /y; proxy_redirect default;").3,
        ["http://a/ -> /b/", "^x", "http://127.0.0.1/v/ -> /api/"]
    );
    let (target, redirects) = pass("proxy_pass http://$arg_to;");
    assert!(matches!(target, ProxyTarget::Dynamic(_)) && redirects.is_empty());
}

#[test]
fn groups_of_addresses() {
    let http = http(
        "server { listen 1; location /a { proxy_pass http://named; } location /b { proxy_pass http://10.0.0.9:81; }
           location /c { proxy_pass http://10.0.0.9:81/x; } location /d { proxy_pass http://10.0.0.9; }
           location /e { proxy_pass http://two.example; } }
         upstream named { zone z 64k; server two.example:81 weight=3; server unix:/a max_fails=0 down;
           server 10.0.0.3 backup max_conns=5 fail_timeout=1m; keepalive 7; keepalive_timeout 5s; hash $uri consistent; }",
    );
    let names: Vec<&str> = http.upstreams.iter().map(|upstream| upstream.name.as_str()).collect();
    assert_eq!(names, ["named", "10.0.0.9:81", "10.0.0.9", "two.example"]);
    let named = &http.upstreams[0];
    let servers: Vec<(&str, ServerAddress, u32)> =
        named.servers.iter().map(|server| (server.name.as_str(), server.address.clone(), server.weight)).collect();
    let inet = |text: &str| ServerAddress::Inet(text.parse::<SocketAddr>().unwrap());
    assert_eq!(
        servers,
        [
            ("two.example:81", inet("10.0.0.1:81"), 3),
            ("two.example:81", inet("[::1]:81"), 3),
            ("two.example:81", inet("10.0.0.2:81"), 3),
            ("unix:/a", ServerAddress::Unix("/a".into()), 1),
            ("10.0.0.3", inet("10.0.0.3:80"), 1),
        ]
    );
    assert_eq!((named.servers[3].max_fails, named.servers[3].down), (0, true));
    let last = &named.servers[4];
    assert_eq!((last.backup, last.max_conns, last.fail_timeout), (true, 5, Duration::from_secs(60)));
    assert_eq!(format!("{:?}", named.balance.spec), "hash consistent=on");
    assert_eq!(named.balance.key.as_ref().unwrap().parts(), [Part::Variable(Variable::Uri)]);
    let keepalive = &named.keepalive;
    assert_eq!((keepalive.connections, keepalive.local, keepalive.timeout), (7, false, Duration::from_secs(5)));
    let implied = &http.upstreams[3];
    assert_eq!((implied.implicit, implied.servers.len(), implied.keepalive.connections), (true, 3, 32));
    assert_eq!(implied.servers[0].name, "10.0.0.1:80");
}

#[test]
fn algorithms() {
    let spec = |text: &str| {
        let http = http(&format!("upstream u {{ {text} server 10.0.0.1; }}"));
        format!("{:?}", http.upstreams[0].balance.spec)
    };
    let table = [
        ("", "round_robin"),
        ("least_conn;", "least_conn"),
        ("ip_hash;", "ip_hash"),
        ("hash $uri;", "hash consistent=off"),
        ("random;", "random"),
        ("random two;", "two_choices by=least_conn"),
        ("random two least_time=last_byte;", "two_choices by=last_byte"),
        ("least_time header;", "least_time by=header inflight=off"),
        ("least_time last_byte inflight;", "least_time by=last_byte inflight=on"),
    ];
    for (text, wanted) in table {
        assert!(spec(text).starts_with(wanted), "{text}: {}", spec(text));
    }
    let keepalive = http("upstream u { server 10.0.0.1; }").upstreams[0].keepalive;
    assert_eq!((keepalive.connections, keepalive.local, keepalive.requests), (32, true, 1000));
}
