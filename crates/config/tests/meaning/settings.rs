//! What a location inherits, and what it has by default.

use super::*;

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
    let default = [PathBuf::from("/srv/logs/access.log")];
    assert_eq!(super::http("server { listen 1; }").access_log_files, default);
    assert!(super::http("access_log off; server { listen 1; }").access_log_files.is_empty());
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
    let Table::Map(table) = &map.table else { panic!("no map") };
    assert_eq!(map.source.parts(), [Part::Variable(Variable::Host)]);
    assert_eq!(table.default, Some(literal("a")));
    assert_eq!(table.exact[&b"exact"[..]], literal("e"));
    assert_eq!(table.exact[&b"~tilde"[..]], literal("f"));
    let wildcards = table.wildcards.as_ref().unwrap();
    assert_eq!(wildcards.find(b"a.example.org"), Some(&literal("b")));
    assert_eq!(wildcards.find(b"www.com"), Some(&literal("c")));
    assert_eq!(table.regexes.len(), 1);
    assert_eq!((http.maps[0].volatile, http.maps[1].volatile), (false, true));
    assert_eq!(http.maps[1].source.parts(), [Part::Variable(Variable::Map(0))]);
    assert_eq!(http.user_slots, 2);
    let server = &http.listens[0].groups[0].default_server;
    let location = server.locations.find(b"/", &mut Captures::new()).unwrap().unwrap();
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
