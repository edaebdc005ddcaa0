//! Whole configurations, which Balanza's own reader accepts.

use balanza_config::{Bundle, Options, load};

use crate::haproxy;

/// The result of a configuration that has to be one for Balanza.
fn migrated(text: &str) -> crate::Migration {
    let migration = haproxy(text, "haproxy.cfg");
    let mut files = Bundle::default();
    files.add_file("/nginx.conf", migration.text.clone());
    let (config, problems) = load(&files, &Options::new("/", "/nginx.conf"));
    assert!(config.is_some(), "{:?}\n{}", problems, migration.text);
    migration
}

const SHOP: &str = "
global
    log /dev/log local0
    maxconn 20000
    nbthread 4
    user haproxy
defaults
    mode http
    timeout connect 5s
    timeout client 50s
    timeout server 50000
    option forwardfor
frontend web
    bind *:8080
    acl is_api path_beg /api
    acl is_static path_end -i .jpg .css
    acl is_admin hdr(host) -i admin.example.com
    acl office src 10.0.0.0/8 192.168.1.7
    http-request deny if is_admin !office
    http-request redirect scheme https code 301 if { hdr(X-Proto) -m found } !{ path /health }
    http-request set-header X-Client %[src]
    use_backend api if is_api or is_admin
    use_backend files if is_static
    default_backend app
backend app
    balance leastconn
    cookie SRV insert indirect nocache
    option httpchk GET /health
    server a 10.0.0.1:80 cookie a weight 3 check inter 5s fall 2
    server b 10.0.0.2:80 cookie b check maxconn 50
    server c 10.0.0.3:80 cookie c check backup
backend api
    balance uri
    hash-type consistent
    timeout server 5m
    server a 10.0.1.1:8080
    server b 10.0.1.2:8080 weight 0
backend files
    server only 10.0.2.1
listen postgres
    mode tcp
    bind 127.0.0.1:5432
    balance source
    server p1 10.0.3.1:5432 check
    server p2 10.0.3.2:5432 check
listen stats
    bind :8404
    stats enable
    stats uri /stats
    stats admin if TRUE
    http-request use-service prometheus-exporter if { path /metrics }
";

#[test]
fn a_configuration_is_carried_over() {
    let migration = migrated(SHOP);
    for part in [
        "worker_processes 4;",
        "worker_connections 10000;",
        "access_log syslog:server=unix:/dev/log,facility=local0,tag=balanza;",
        "least_conn;",
        "server 10.0.0.1:80 route=a weight=3;",
        "server 10.0.0.3:80 route=c backup;",
        "sticky cookie SRV path=/;",
        "queue 10000 timeout=5s;",
        "hash $request_path consistent;",
        "server 10.0.1.2:8080 drain;",
        "server 10.0.2.1:80;",
        "health_check interval=5s fails=2 passes=2 uri=/health;",
        "proxy_read_timeout 5m;",
        "proxy_set_header X-Client $remote_addr;",
        "return 301 https://$host$request_uri;",
        "return 403;",
        "hash $remote_addr;",
        "api write=on;",
        "dashboard;",
        "metrics;",
    ] {
        assert!(migration.text.contains(part), "{part}\n{}", migration.text);
    }
    let notes: Vec<_> = migration.notes.iter().map(|note| note.text.as_str()).collect();
    assert_eq!(notes, ["user haproxy"], "{:?}", migration.notes);
}

#[test]
fn all_algorithms_have_a_counterpart() {
    for (algorithm, expected) in [
        ("roundrobin", "zone app 256k;\n        server"),
        ("static-rr", "zone app 256k;\n        server"),
        ("leastconn", "least_conn;"),
        ("first", "balance first;"),
        ("source", "hash $remote_addr;"),
        ("uri", "hash $request_path;"),
        ("uri whole", "hash $request_uri;"),
        ("url_param user", "hash $arg_user;"),
        ("hdr(X-Key)", "hash $http_x_key;"),
        ("hash hdr(X-Key)", "hash $http_x_key;"),
        ("random", "random two least_conn;"),
        ("random(1)", "random;"),
        ("random(4)", "balance two_choices choices=4;"),
    ] {
        let text = format!(
            "listen app\n mode http\n bind :80\n balance {algorithm}\n server a 10.0.0.1:80\n server b 10.0.0.2:80\n"
        );
        let migration = migrated(&text);
        assert!(migration.text.contains(expected), "{algorithm}\n{}", migration.text);
        assert!(migration.notes.is_empty(), "{:?}", migration.notes);
    }
    let text = "listen ts\n mode tcp\n bind :3389\n balance rdp-cookie\n server a 10.0.0.1:3389\n";
    assert!(migrated(text).text.contains("hash $rdp_cookie;"));
}

#[test]
fn what_is_missing_is_a_comment_with_its_line() {
    let migration = migrated(
        "listen app\n mode http\n bind :80\n filter spoe engine x\n http-request lua.x\n server a 10.0.0.1:80 track b/c\n",
    );
    let notes: Vec<_> = migration.notes.iter().map(|note| note.line).collect();
    assert_eq!(notes, [4, 5, 6]);
    assert!(migration.text.contains("#   line 4: filter spoe engine x\n"));
}

#[test]
fn names_of_tls_choose_the_backend() {
    let text = "
frontend tls
    mode tcp
    bind :443
    tcp-request inspect-delay 5s
    tcp-request content accept if { req.ssl_hello_type 1 }
    use_backend a if { req.ssl_sni -i a.test }
    default_backend b
backend a
    mode tcp
    server one 10.0.0.1:443
backend b
    mode tcp
    server two 10.0.0.2:443
";
    let migration = migrated(text);
    assert!(migration.text.contains("ssl_preread on;") && migration.notes.is_empty(), "{}", migration.text);
}

#[test]
fn rejected_addresses_are_denied() {
    let of = |rule: &str| {
        let text = format!(
            "listen db\n mode tcp\n bind :5432\n acl office src 10.0.0.0/8\n tcp-request connection reject {rule}\n server a 10.0.0.1:5432\n"
        );
        migrated(&text)
    };
    for rule in ["if { src 10.0.0.0/8 }", "if office", "unless !office"] {
        assert!(of(rule).text.contains("deny 10.0.0.0/8;\n"), "{rule}");
    }
    for rule in ["unless { src 10.0.0.0/8 }", "if !office", "if !{ src 10.0.0.0/8 }", "if ! { src 10.0.0.0/8 }"] {
        let migration = of(rule);
        assert!(migration.text.contains("allow 10.0.0.0/8;\n        deny all;\n"), "{rule}\n{}", migration.text);
    }
    // What cannot be written is a note, and denies no other address.
    for rule in ["if office { dst_port 1 }", "if { src 10.0.0.0/8 } office", ""] {
        let migration = of(rule);
        assert!(migration.notes.len() == 1 && !migration.text.contains("    deny "), "{rule}\n{}", migration.text);
    }
}

#[test]
fn the_backup_of_a_hash_is_noted() {
    let text =
        "listen a\n mode http\n bind :80\n balance source\n server a 10.0.0.1:80\n server b 10.0.0.2:80 backup\n";
    let migration = migrated(text);
    assert!(migration.text.contains("server 10.0.0.2:80 down;") && migration.notes.len() == 1);
}

#[test]
fn no_text_is_too_strange() {
    for text in [
        "",
        "frontend",
        "frontend a\n bind",
        "listen a\n bind :80\n server",
        "backend\n acl",
        "defaults\n mode x\n timeout a b",
        "frontend a\n mode http\n bind :80\n use_backend b if {",
        "listen a\n mode http\n bind :80\n cookie\n balance\n stats\n option\n http-check\n server a b:c weight",
    ] {
        haproxy(text, "x");
    }
}
