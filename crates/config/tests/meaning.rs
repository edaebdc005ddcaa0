//! What configurations mean: defaults, inheritance, sockets, upstreams.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use balanza_config::model::*;
use balanza_config::regex::Captures;
use balanza_config::template::{Part, Template, Variable};
use balanza_config::{Bundle, Options, Recorder, load};

fn bundle(text: &str) -> Bundle {
    let mut files = Bundle::default();
    files.add_file("/etc/balanza/n.conf", text);
    files.add_host(
        "two.example",
        vec!["10.0.0.1".parse().unwrap(), "::1".parse().unwrap(), "10.0.0.2".parse().unwrap()],
    );
    files.add_host("localhost", vec!["127.0.0.1".parse().unwrap(), "::1".parse().unwrap()]);
    files
}

fn options() -> Options {
    Options::new("/srv", "/etc/balanza/n.conf")
}

fn config(text: &str) -> Config {
    let (config, problems) = load(&bundle(text), &options());
    config.unwrap_or_else(|| panic!("{text}: {problems:?}"))
}

fn http(text: &str) -> Http {
    config(&format!("events {{ }} http {{ {text} }}")).http
}

fn server(text: &str) -> Arc<Server> {
    http(&format!("server {{ listen 8080; {text} }}")).listens[0].groups[0].default_server.clone()
}

/// The location that serves a URI.
fn location(text: &str, uri: &str) -> Arc<Location> {
    let server = server(text);
    server.locations.find(uri.as_bytes(), &mut Captures::new()).unwrap_or(&server.root).clone()
}

fn literal(text: &str) -> Template {
    Template::literal(text.as_bytes())
}

#[test]
fn core_defaults() {
    let core = config("events { }").core;
    assert_eq!(core.user, Account { user: "nobody".into(), group: None });
    assert_eq!((core.worker_processes, core.worker_connections), (Some(1), 512));
    assert_eq!((core.worker_rlimit_nofile, core.worker_shutdown_timeout), (None, None));
    assert_eq!((core.daemon, core.master_process), (true, true));
    assert_eq!(core.pid, Some("/srv/logs/nginx.pid".into()));
    let log = ErrorLog { target: LogTarget::File("/srv/logs/error.log".into()), level: Level::Error };
    assert_eq!(core.error_log, [log]);
}

#[test]
fn core_settings() {
    let core = config(
        "user www www-data; worker_processes auto; worker_rlimit_nofile 4096; worker_shutdown_timeout 1m30s; pid off;
         error_log stderr notice; error_log /var/log/e.log; daemon off; master_process off;
         events { worker_connections 2048; }",
    )
    .core;
    assert_eq!(core.user, Account { user: "www".into(), group: Some("www-data".into()) });
    assert_eq!((core.worker_processes, core.worker_connections), (None, 2048));
    assert_eq!(core.worker_rlimit_nofile, Some(4096));
    assert_eq!(core.worker_shutdown_timeout, Some(Duration::from_secs(90)));
    assert_eq!((core.daemon, core.master_process, core.pid), (false, false, None));
    assert_eq!(core.error_log[0], ErrorLog { target: LogTarget::Stderr, level: Level::Notice });
    assert_eq!(core.error_log[1].target, LogTarget::File("/var/log/e.log".into()));
}

#[test]
fn globals_of_the_command_line() {
    let mut options = options();
    options.globals = Some("daemon off; worker_processes 3;".into());
    let (config, _) = load(&bundle("events { }"), &options);
    let core = config.unwrap().core;
    assert_eq!((core.daemon, core.worker_processes), (false, Some(3)));
    let (config, problems) = load(&bundle("daemon on; events { }"), &options);
    assert!(config.is_none());
    assert_eq!(problems[0].to_string(), "balanza: [emerg] \"daemon\" directive is duplicate in /etc/balanza/n.conf:1");
    options.globals = Some("daemon off".into());
    let (_, problems) = load(&bundle("events { }"), &options);
    assert_eq!(
        problems[0].to_string(),
        "balanza: [emerg] unexpected end of parameter, expecting \";\" in command line:1"
    );
}

#[test]
fn location_defaults() {
    let location = location("", "/");
    let s = &location.settings;
    assert!(matches!(&s.root, Root::Root(root) if *root == literal("/srv/html")));
    assert_eq!(s.index, [literal("index.html")]);
    assert_eq!((&*s.default_type, s.types["html"].as_ref()), ("text/plain", "text/html"));
    assert_eq!((s.keepalive_timeout, s.keepalive_header), (Duration::from_secs(75), None));
    assert_eq!((s.keepalive_requests, s.keepalive_time), (1000, Duration::from_secs(3600)));
    assert_eq!((s.client_body_buffer_size, s.client_max_body_size), (16384, 1 << 20));
    assert_eq!(s.access_logs.len(), 1);
    assert_eq!(s.access_logs[0].format.name, "combined");
    assert!(matches!(&s.access_logs[0].target, AccessLogTarget::File(f) if f.as_os_str() == "/srv/logs/access.log"));
    assert_eq!(s.error_log.len(), 1);
    let p = &s.proxy;
    assert_eq!(p.http_version, HttpVersion::Http11);
    assert_eq!(p.next_upstream, NextUpstream { error: true, timeout: true, ..NextUpstream::default() });
    assert_eq!((p.connect_timeout, p.read_timeout), (Duration::from_secs(60), Duration::from_secs(60)));
    assert_eq!((p.buffering, p.buffers, p.max_temp_file_size), (true, None, 1 << 30));
    let fields: Vec<&str> = p.set_headers.iter().map(|h| std::str::from_utf8(&h.name).unwrap()).collect();
    assert_eq!(fields, ["Host", "Connection", "TE", "Keep-Alive", "Expect", "Upgrade"]);
    assert_eq!(p.set_headers[0].value.parts(), [Part::Variable(Variable::ProxyHost)]);
    assert!(p.set_headers[1..].iter().all(|header| header.value == Template::default()));
    assert_eq!(p.hide_headers.len(), 8);
    let connection = &server("").connection;
    assert_eq!((connection.client_header_buffer_size, connection.large_client_header_buffers), (1024, (4, 8192)));
    assert_eq!((connection.max_headers, connection.ignore_invalid_headers), (1000, true));
}

#[test]
fn lists_are_inherited_whole() {
    let above = "add_header A 1; proxy_set_header X 1; error_page 404 /a; deny 10.0.0.1; index a; types { t/a a; }
                 proxy_hide_header H;";
    let inherits = location(&format!("{above} location / {{ }}"), "/").settings.clone();
    assert_eq!(&*inherits.add_headers[0].name, b"A");
    assert_eq!(&*inherits.proxy.set_headers[0].name, b"X");
    assert_eq!((inherits.error_pages[0].status, inherits.access.len()), (404, 1));
    assert_eq!(inherits.types.len(), 1);
    assert!(inherits.proxy.hide_headers.iter().any(|name| **name == *b"h"));
    let own = location(
        &format!(
            "{above} location / {{ add_header B 2; proxy_set_header Y 2; error_page 500 /b; allow all; index b;
             types {{ }} proxy_hide_header I; proxy_pass_header Server; }}"
        ),
        "/",
    );
    let own = &own.settings;
    assert_eq!(own.add_headers.iter().map(|h| &*h.name).collect::<Vec<_>>(), [b"B"]);
    assert_eq!(&*own.proxy.set_headers[0].name, b"Y");
    assert_eq!(own.proxy.set_headers.len(), 7);
    assert_eq!(own.error_pages.iter().map(|page| page.status).collect::<Vec<_>>(), [500]);
    assert_eq!((own.access.len(), own.types.len(), &own.index), (1, 0, &vec![literal("b")]));
    assert!(!own.proxy.hide_headers.iter().any(|name| **name == *b"h" || **name == *b"server"));
    // A directive behind a block holds in the block.
    let later = location("location / { } add_header A 1;", "/");
    assert_eq!(later.settings.add_headers.len(), 1);
}

#[test]
fn inheritance_of_added_fields_can_be_changed() {
    let names = |text: &str| -> Vec<String> {
        let location = location(&format!("add_header A 1; {text}"), "/");
        location.settings.add_headers.iter().map(|h| String::from_utf8_lossy(&h.name).into_owned()).collect()
    };
    assert_eq!(names("location / { add_header B 2; }"), ["B"]);
    assert_eq!(names("location / { add_header B 2; add_header_inherit merge; }"), ["A", "B"]);
    assert_eq!(names("add_header_inherit merge; location / { add_header B 2; }"), ["A", "B"]);
    assert_eq!(names("location / { add_header_inherit off; }"), Vec::<String>::new());
}

#[test]
fn logs_are_inherited() {
    let logs = |text: &str| location(text, "/").settings.access_logs.len();
    assert_eq!(logs("access_log a; access_log b; location / { }"), 2);
    assert_eq!(logs("access_log a; access_log b; location / { access_log c; }"), 1);
    assert_eq!(logs("access_log a; location / { access_log off; }"), 0);
    let http = http(
        "log_format f escape=json '$uri' ' $status'; access_log /a f buffer=1k flush=1s if=$arg_l; server { access_log b; listen 1; }",
    );
    assert_eq!(http.access_log_files, [PathBuf::from("/a"), PathBuf::from("/srv/b")]);
}

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
    assert_eq!((implied.implicit, implied.servers.len(), implied.keepalive.connections), (true, 3, 0));
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
                ListenAddress::Inet(address) => address.to_string(),
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

#[test]
fn error_pages_and_returns() {
    let location = location(
        "location / { error_page 404 =200 /a; error_page 500 502 = @f; error_page 403 http://x/; error_page 497 /t;
         set $a $1x; return 301 https://$host$uri; return 200; return $scheme://x/; }",
        "/",
    );
    let pages: Vec<(u16, Overwrite)> =
        location.settings.error_pages.iter().map(|page| (page.status, page.overwrite)).collect();
    let wanted = [
        (404, Overwrite::Status(200)),
        (500, Overwrite::Handler),
        (502, Overwrite::Handler),
        (403, Overwrite::Keep),
        (497, Overwrite::Status(400)),
    ];
    assert_eq!(pages, wanted);
    let [RewriteOp::Set(0, value), RewriteOp::Return(moved), RewriteOp::Return(plain), RewriteOp::Return(url)] =
        location.rewrite.as_slice()
    else {
        panic!("{:?}", location.rewrite)
    };
    assert_eq!(value.parts(), [Part::Variable(Variable::Capture(1)), Part::Literal((*b"x").into())]);
    assert_eq!((moved.status, moved.text.as_ref().unwrap().parts().len()), (301, 3));
    assert_eq!((plain.status, &plain.text, url.status), (200, &None, 302));
}

#[test]
fn access_rules() {
    let rules = location("deny 10.1.2.3/8; allow 192.168.0.0/255.255.0.0; allow ::/0; allow unix:; deny all;", "/");
    let net = |address: &str, length| AccessWho::Net(address.parse().unwrap(), length);
    let who: Vec<AccessWho> = rules.settings.access.iter().map(|rule| rule.who.clone()).collect();
    assert_eq!(who, [net("10.0.0.0", 8), net("192.168.0.0", 16), net("::", 0), AccessWho::Unix, AccessWho::All]);
}

#[test]
fn roots_and_aliases() {
    let root = |text: &str, uri: &str| match &location(text, uri).settings.root {
        Root::Root(root) => format!("root {}", String::from_utf8_lossy(root.as_literal().unwrap_or(b"$"))),
        Root::Alias(alias) => format!("alias {}", String::from_utf8_lossy(alias.as_literal().unwrap_or(b"$"))),
    };
    assert_eq!(root("root /a/;", "/"), "root /a");
    assert_eq!(root("root a;", "/"), "root /srv/a");
    assert_eq!(root("location /x/ { alias /a/; }", "/x/y"), "alias /a/");
    // The inner location matches "y/" more than the outer one, and the alias replaces what is matched.
    assert_eq!(root("location /x/ { alias /a/; location /x/y/ { } }", "/x/y/z"), "alias /a/y/");
    assert_eq!(root("location /x/ { alias /a/; location /x/y/ { root /b; } }", "/x/y/z"), "root /b");
}

#[test]
fn maps_and_variables() {
    let http = http(
        "map $host $backend { hostnames; default a; .example.org b; www.* c; ~^x(?<n>.)$ d$n; EXACT e; \\~tilde f; }
         map $backend $again { volatile; a $uri; }
         server { listen 1; location / { set $mine $again; return 200 \"$Mine ${arg_A}-$http_x_y $cookie_Z\"; } }",
    );
    let map = &http.maps[0];
    assert_eq!(map.source.parts(), [Part::Variable(Variable::Host)]);
    assert_eq!(map.table.default, Some(literal("a")));
    assert_eq!(map.table.exact[&b"exact"[..]], literal("e"));
    assert_eq!(map.table.exact[&b"~tilde"[..]], literal("f"));
    let wildcards = map.table.wildcards.as_ref().unwrap();
    assert_eq!(wildcards.find(b"a.example.org"), Some(&literal("b")));
    assert_eq!(wildcards.find(b"www.com"), Some(&literal("c")));
    assert_eq!(map.table.regexes.len(), 1);
    assert_eq!((http.maps[0].volatile, http.maps[1].volatile), (false, true));
    assert_eq!(http.maps[1].source.parts(), [Part::Variable(Variable::Map(0))]);
    assert_eq!(http.user_slots, 2);
    let server = &http.listens[0].groups[0].default_server;
    let location = server.locations.find(b"/", &mut Captures::new()).unwrap();
    let RewriteOp::Return(answer) = &location.rewrite[1] else { panic!("no return") };
    let RewriteOp::Set(mine, value) = &location.rewrite[0] else { panic!("no set") };
    assert_eq!(value.parts(), [Part::Variable(Variable::Map(1))]);
    let variables: Vec<&Part> =
        answer.text.as_ref().unwrap().parts().iter().filter(|part| matches!(part, Part::Variable(_))).collect();
    let wanted = [
        Variable::User(*mine),
        Variable::Arg((*b"a").into()),
        Variable::Http((*b"x_y").into()),
        Variable::Cookie((*b"z").into()),
    ]
    .map(Part::Variable);
    assert_eq!(variables, wanted.iter().collect::<Vec<_>>());
}

#[test]
fn a_variable_of_a_family_name_can_be_set() {
    let location = location("location / { return 200 $http_x$http_y; set $http_x 1; }", "/");
    let RewriteOp::Return(answer) = &location.rewrite[0] else { panic!("no return") };
    let wanted = [Variable::User(0), Variable::Http((*b"y").into())].map(Part::Variable);
    assert_eq!(answer.text.as_ref().unwrap().parts(), wanted);
}

#[test]
fn files_are_included() {
    let mut files = bundle("events { } http { include types.conf; include sites/*.conf; }");
    files.add_file("/etc/balanza/types.conf", "types { include more.types; a/b c; }");
    files.add_file("/etc/balanza/more.types", "d/e f;");
    files.add_file("/etc/balanza/sites/1.conf", "server { listen 1; }");
    files.add_file("/etc/balanza/sites/2.conf", "server { listen 2; }");
    let sites = ["/etc/balanza/sites/1.conf", "/etc/balanza/sites/2.conf"].map(PathBuf::from).to_vec();
    files.add_glob("/etc/balanza/sites/*.conf", sites);
    let (config, problems) = load(&files, &options());
    let http = config.unwrap_or_else(|| panic!("{problems:?}")).http;
    assert_eq!(http.listens.len(), 2);
    assert_eq!(http.listens[0].groups[0].default_server.root.settings.types.len(), 2);
    files.add_file("/etc/balanza/sites/2.conf", "include sites/1.conf; include n.conf;");
    let (config, problems) = load(&files, &options());
    assert!(config.is_none());
    let text = problems.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert!(
        text.contains(&"balanza: [emerg] files are included too deeply in /etc/balanza/sites/2.conf:1".to_string()),
        "{text:?}"
    );
}

#[test]
fn a_recording_means_the_same() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    std::fs::write(path("n.conf"), "events { } http { types { a/b c; } include *.site; }").unwrap();
    std::fs::write(path("a.site"), "server { listen 1; location / { proxy_pass http://localhost:9; } }").unwrap();
    std::fs::write(path("b.site"), "server { listen 2; }").unwrap();
    let options = Options::new(directory.path(), path("n.conf"));
    let recorder = Recorder::new(balanza_config::FileSystem);
    let (first, problems) = load(&recorder, &options);
    let first = first.unwrap_or_else(|| panic!("{problems:?}"));
    let bundle = recorder.into_bundle();
    assert_eq!(bundle.files().count(), 3);
    drop(directory);
    let sent = serde_json::to_string(&(bundle, options)).unwrap();
    let (bundle, options): (Bundle, Options) = serde_json::from_str(&sent).unwrap();
    let (second, problems) = load(&bundle, &options);
    assert!(problems.is_empty(), "{problems:?}");
    assert!(format!("{first:?}") == format!("{:?}", second.unwrap()));
}

#[test]
fn ten_thousand_servers_load_quickly() {
    let servers: String = (0..10_000).map(|i| format!("server 10.{}.{}.1:80;", i / 256, i % 256)).collect();
    let start = std::time::Instant::now();
    let http = http(&format!("upstream u {{ {servers} }} server {{ listen 1-2000; }}"));
    assert_eq!((http.upstreams[0].servers.len(), http.listens.len()), (10_000, 2000));
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
}
