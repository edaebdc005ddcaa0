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
    assert_eq!(format!("{:?}", named.balance.spec), "hash consistent=on balance_factor=0");
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

fn upstream(text: &str) -> Arc<Upstream> {
    http(&format!("upstream u {{ {text} }}")).upstreams[0].clone()
}

/// NGINX's directive and `balance` with the same parameters are the same algorithm with the same key.
#[test]
fn two_spellings_are_one_algorithm() {
    for (nginx, own) in [
        ("", "balance round_robin;"),
        ("least_conn;", "balance least_conn;"),
        ("ip_hash;", "balance ip_hash;"),
        ("random;", "balance random;"),
        ("hash $uri$args;", "balance hash key=$uri$args;"),
        ("hash $uri consistent;", "balance hash consistent key=$uri;"),
        ("hash $uri consistent;", "balance hash key=$uri consistent=on;"),
        ("hash \"a b$uri\";", "balance hash \"key=a b$uri\";"),
        ("random two;", "balance two_choices;"),
        ("random two;", "two_choices;"),
        ("random two least_conn;", "balance p2c choices=2;"),
        ("random two least_time=header;", "two_choices by=header choices=2;"),
        ("random two least_time=last_byte;", "balance two_choices by=last_byte;"),
        ("least_time header;", "balance least_time;"),
        ("least_time last_byte inflight;", "balance least_time inflight by=last_byte;"),
        ("least_time last_byte inflight;", "balance least_time inflight=on by=last_byte;"),
    ] {
        let [theirs, ours] = [nginx, own].map(|text| upstream(&format!("{text} server 10.0.0.1;")));
        assert_eq!(format!("{:?}", theirs.balance), format!("{:?}", ours.balance), "{nginx} {own}");
    }
}

#[test]
fn sticky_sessions() {
    let sticky = |text: &str| upstream(&format!("{text} server 10.0.0.1;")).sticky.clone().unwrap();
    let Sticky::Cookie(cookie) = sticky("sticky cookie srv;") else { panic!("no cookie") };
    assert_eq!((&*cookie.name, cookie.expires), (&b"srv"[..], CookieExpires::Session));
    assert!(cookie.domain.is_none() && cookie.path.is_none() && cookie.samesite.is_none());
    assert!(!cookie.httponly && !cookie.secure);
    let text = "sticky cookie srv expires=1h domain=.$host path=/$a httponly secure samesite=Lax;";
    let Sticky::Cookie(cookie) = sticky(text) else { panic!("no cookie") };
    assert_eq!(cookie.expires, CookieExpires::After(Duration::from_secs(3600)));
    assert_eq!(cookie.domain.unwrap().parts(), [Part::Literal(b"."[..].into()), Part::Variable(Variable::Host)]);
    // A path has no variables in NGINX.
    assert_eq!(cookie.path.as_deref(), Some(&b"/$a"[..]));
    assert_eq!(cookie.samesite, Some(literal("Lax")));
    assert!(cookie.httponly && cookie.secure);
    let Sticky::Cookie(cookie) = sticky("sticky cookie srv expires=max;") else { panic!("no cookie") };
    assert_eq!(cookie.expires, CookieExpires::Max);

    let Sticky::Route(route) = sticky("sticky route $cookie_route $arg_route;") else { panic!("no route") };
    let variables: Vec<&[Part]> = route.iter().map(Template::parts).collect();
    assert_eq!(
        variables,
        [[Part::Variable(Variable::Cookie(b"route"[..].into()))], [Part::Variable(Variable::Arg(b"route"[..].into()))]]
    );

    let text = "sticky learn create=$upstream_cookie_a create=$sent_http_x lookup=$cookie_a zone=s:1m;";
    let Sticky::Learn(learn) = sticky(text) else { panic!("no table") };
    assert_eq!((learn.create.len(), learn.lookup.len(), learn.zone.as_str()), (2, 1, "s"));
    // NGINX counts about 8000 sessions in a megabyte.
    assert_eq!((learn.entries, learn.timeout, learn.header), (8192, Duration::from_secs(600), false));
    let Sticky::Learn(learn) = sticky(&text.replace("1m;", "32k timeout=90s header;")) else { panic!("no table") };
    assert_eq!((learn.entries, learn.timeout, learn.header), (256, Duration::from_secs(90), true));
}

#[test]
fn parameters_of_servers() {
    let group = upstream(
        "sticky cookie a; priority 1 max_conns=20; load_report agent port=8081;
         server 10.0.0.1 slow_start=1m30s max_conns=9 soft_max_conns=7 route=one report=10.0.0.9:99;
         server two.example priority=1 drain; server 10.0.0.4 backup slow_start=500ms;",
    );
    let first = &group.servers[0];
    assert_eq!(first.slow_start, Duration::from_secs(90));
    assert_eq!((first.max_conns, first.soft_max_conns, first.route.as_deref()), (9, 7, Some("one")));
    assert_eq!(first.report, Some(ServerAddress::Inet("10.0.0.9:99".parse().unwrap())));
    assert_eq!((first.priority, first.draining), (0, false));
    assert!(group.servers[1..4].iter().all(|server| server.priority == 1 && server.draining && !server.down));
    assert!(group.servers[4].backup && group.servers[4].slow_start == Duration::from_millis(500));
    assert_eq!(group.groups, [Group { priority: 1, max_conns: 20 }]);
    let plain = &upstream("server 10.0.0.1:80;").servers[0];
    let defaults = UpstreamServer::new("10.0.0.1:80".into(), plain.address.clone());
    assert_eq!(format!("{plain:?}"), format!("{defaults:?}"));
}

/// NGINX refuses it beside these methods; here it means the same with all of them.
#[test]
fn slow_start_goes_with_every_method() {
    for method in ["", "hash $uri;", "hash $uri consistent;", "ip_hash;", "random;", "least_conn;"] {
        let group = upstream(&format!("{method} server 10.0.0.1 slow_start=30s; server 10.0.0.2;"));
        assert_eq!(group.servers[0].slow_start, Duration::from_secs(30), "{method}");
    }
}

#[test]
fn load_reports() {
    let report = |text: &str| upstream(&format!("load_report {text}; server 10.0.0.1;")).reports[0].clone();
    let times = |report: &LoadReport| (report.interval.as_millis(), report.timeout.as_millis(), report.stale);
    let agent = report("agent port=8081");
    assert_eq!(agent.source, LoadSource::Agent { port: 8081, send: Vec::new() });
    assert_eq!((times(&agent), agent.max_age()), ((5000, 1000, 3), Duration::from_secs(15)));
    let agent = report("agent port=1 \"send=load\\n\" interval=500ms stale=2");
    assert_eq!(agent.source, LoadSource::Agent { port: 1, send: b"load\n".to_vec() });
    // The time for an answer is never longer than the interval.
    assert_eq!(times(&agent), (500, 500, 2));
    let oid = vec![1, 3, 6, 1, 4, 1, 2021, 10, 1, 3, 1];
    let LoadSource::Snmp { port, community, oid: found, full } = report("snmp").source else { panic!("no SNMP") };
    assert_eq!((port, community.as_str(), found, full), (161, "public", oid, 1.0));
    let LoadSource::Snmp { port, community, oid, full } =
        report("snmp port=1161 community=secret oid=.1.3.6 full=4.5").source
    else {
        panic!("no SNMP")
    };
    assert_eq!((port, community.as_str(), oid, full), (1161, "secret", vec![1, 3, 6], 4.5));
    let header = report("header X-Load");
    assert_eq!(header.source, LoadSource::Header { name: b"X-Load"[..].into(), full: 100.0 });
    assert_eq!(header.max_age(), Duration::from_secs(15));
    let header = report("header X-Load full=8 stale_after=2s");
    assert_eq!(header.source, LoadSource::Header { name: b"X-Load"[..].into(), full: 8.0 });
    assert_eq!(header.max_age(), Duration::from_secs(2));
    let program = report("program \"/usr/bin/loads -v  x\" interval=1m timeout=2s");
    let argv = ["/usr/bin/loads", "-v", "x"].map(str::to_string).to_vec();
    assert_eq!((program.source.clone(), times(&program)), (LoadSource::Program { argv }, (60_000, 2000, 3)));
    let both = upstream("load_report agent port=1; load_report header X-Load; server 10.0.0.1;");
    assert_eq!(both.reports.len(), 2);
}

#[test]
fn files_with_servers_have_directives_or_addresses() {
    let read = |text: &str| balanza_config::read_servers(&bundle(""), text.as_bytes(), membership::Protocol::Http);
    let text = "# a comment\n\nserver 10.0.0.1:8080 weight=2; # one\n10.0.0.2\n\t10.0.0.3:8081 weight=3 backup # three\n::1\n[::2]:82\n";
    let servers: Vec<String> = read(text)
        .unwrap()
        .iter()
        .map(|server| format!("{} {} {}", server.address, server.weight, server.backup))
        .collect();
    let expected = [
        "10.0.0.1:8080 2 false",
        "10.0.0.2:80 1 false",
        "10.0.0.3:8081 3 true",
        "[::1]:80 1 false",
        "[::2]:82 1 false",
    ];
    assert_eq!(servers, expected);
    let wrong = |text: &str| read(text).unwrap_err();
    assert_eq!(wrong("\n10.0.0.1 wieght=2\n"), "line 2: invalid parameter \"wieght=2\"");
    // A host's name alone may be anything: an error page is no list of servers.
    let possible = "only lines \"server ADDRESS ...;\" and \"IP-ADDRESS[:PORT] ...\" are possible";
    assert_eq!(wrong("10.0.0.1\n<html>\n"), format!("line 2: {possible}"));
    assert_eq!(wrong("10.0.0.1; 10.0.0.2\n"), format!("line 1: {possible}"));
    assert_eq!(wrong("10.0.0.1 } upstream x {\n"), format!("line 1: {possible}"));
}
