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
    default-server inter 5s fall 2
    server a 10.0.0.1:80 cookie a weight 3 check
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
        "location /stats/api {",
        "dashboard api=/stats/api;",
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
fn servers_that_are_filled_have_a_limit_each() {
    // Neither a comment nor the blanks of the line change it.
    for line in ["balance first", "balance first # fill", "balance\tfirst"] {
        let text =
            format!("listen app\n mode http\n bind :80\n {line}\n server a 10.0.0.1:80\n server b 10.0.0.2:80\n");
        let migration = migrated(&text);
        assert_eq!(lines(&migration, "server 10.").len(), 2);
        assert!(
            lines(&migration, "server 10.").iter().all(|it| it.ends_with(" max_conns=65535;")),
            "{line}\n{}",
            migration.text
        );
    }
}

#[test]
fn keys_with_names_that_no_variable_has_are_noted() {
    let of = |algorithm: &str| {
        migrated(&format!("listen app\n mode http\n bind :80\n balance {algorithm}\n server a 10.0.0.1:80\n"))
    };
    // "$http_x.y" would be the field X and a text, and "$http_x_y" is the field X-Y.
    for algorithm in ["hdr(X.Y)", "hdr(X_Y)", "hdr", "url_param a-b", "url_param", "hash hdr(X.Y)"] {
        let migration = of(algorithm);
        assert_eq!(migration.notes.iter().map(|note| note.line).collect::<Vec<_>>(), [4], "{algorithm}");
        assert!(!code(&migration).contains("hash "), "{algorithm}\n{}", migration.text);
    }
    for (argument, expected) in [("", "$rdp_cookie"), ("(mstshash)", "$rdp_cookie"), ("(A-b)", "$rdp_cookie_a_b")] {
        let text =
            format!("listen ts\n mode tcp\n bind :3389\n balance rdp-cookie{argument}\n server a 10.0.0.1:3389\n");
        let migration = migrated(&text);
        assert_eq!(lines(&migration, "hash "), [format!("hash {expected};")]);
        assert!(migration.notes.is_empty(), "{:?}", migration.notes);
    }
    let migration = migrated("listen ts\n mode tcp\n bind :3389\n balance rdp-cookie(a.b)\n server a 10.0.0.1:3389\n");
    assert_eq!(migration.notes.iter().map(|note| note.line).collect::<Vec<_>>(), [4]);
    assert!(!code(&migration).contains("hash "), "{}", migration.text);
    for (algorithm, expected) in [("hdr(X-Y)", "hash $http_x_y;"), ("url_param a_b check_post", "hash $arg_a_b;")] {
        let migration = of(algorithm);
        assert!(migration.text.contains(expected) && migration.notes.is_empty(), "{}", migration.text);
    }
}

#[test]
fn an_expression_for_one_of_several_values_is_noted() {
    let of = |condition: &str| shop(&format!(" http-request deny if {{ {condition} }}\n"), "");
    for condition in ["hdr_reg(x-role) ^a$", "hdr(x-role) -m reg ^a$", "hdr_reg(x-role) -i ^a$"] {
        let migration = of(condition);
        assert!(migration.notes.len() == 1 && code(&migration).contains("^a$"), "{condition}\n{}", migration.text);
    }
    for condition in ["hdr_reg(host) ^a$", "req.fhdr_reg(x-role) ^a$", "hdr(x-role) a", "path_reg ^/a$"] {
        assert!(of(condition).notes.is_empty(), "{condition}");
    }
}

#[test]
fn the_text_that_a_check_expects_is_no_expression() {
    let migration = shop("", " option httpchk\n http-check expect string \"<ok> (a.b) c-d\"\n default-server check\n");
    assert_eq!(lines(&migration, "body"), [r#"body ~ "<ok> \\(a\\.b\\) c-d";"#]);
    assert!(migration.notes.is_empty(), "{:?}", migration.notes);
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
fn each_backend_has_a_name_of_its_own() {
    let servers = ["a-1", "a_1", "A.1", "a_1_2"]
        .iter()
        .enumerate()
        .map(|(number, name)| format!("backend {name}\n mode http\n server one 10.0.0.{number}:80\n"));
    let front = "frontend web\n mode http\n bind :80\n use_backend a_1 if { path_beg /one }\n \
                 use_backend A.1 if { path_beg /two }\n use_backend a_1_2 if { path_beg /three }\n default_backend a-1\n";
    let text = migrated(&(servers.collect::<String>() + front)).text;
    for (number, own) in ["a_1", "a_1_2", "A_1_3", "a_1_2_2"].iter().enumerate() {
        let (_, block) = text.split_once(&format!("upstream {own} {{")).unwrap_or_else(|| panic!("{own}: {text}"));
        assert!(block.split('}').next().unwrap().contains(&format!("server 10.0.0.{number}:80")), "{text}");
        assert_eq!(text.matches(&format!("proxy_pass http://{own};")).count(), 1, "{own}: {text}");
    }
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
    assert!(of("").text.contains("        deny all;\n"));
    for rule in ["if office { dst_port 1 }", "if { src 10.0.0.0/8 } office"] {
        let migration = of(rule);
        assert!(migration.notes.len() == 1 && !migration.text.contains("    deny "), "{rule}\n{}", migration.text);
    }
}

#[test]
fn rules_of_connections_keep_their_order() {
    let of = |rules: &str| {
        let text =
            format!("listen db\n mode tcp\n bind :5432\n acl office src 10.0.0.0/8\n{rules} server a 10.0.0.1:5432\n");
        let migration = migrated(&text);
        let lines =
            migration.text.lines().map(str::trim).filter(|it| it.starts_with("allow ") || it.starts_with("deny "));
        let lines = lines.collect::<Vec<_>>().join(" ");
        (lines, migration.notes.iter().map(|note| note.line).collect::<Vec<_>>())
    };
    let reject = " tcp-request connection reject";
    let content = " tcp-request content";
    for (rules, expected, notes) in [
        // All addresses that are rejected come before those that are allowed alone.
        (
            format!("{reject} unless office\n{reject} if {{ src 10.1.0.0/16 }}\n"),
            "deny 10.1.0.0/16; allow 10.0.0.0/8; deny all;",
            vec![],
        ),
        (
            format!("{reject} unless office\n{reject} unless {{ src 10.1.0.0/16 }}\n"),
            "allow 10.0.0.0/8; deny all;",
            vec![6],
        ),
        (
            format!("{content} accept if office\n{content} reject if {{ src 10.1.0.0/16 }}\n{content} reject\n"),
            "allow 10.0.0.0/8; deny 10.1.0.0/16; deny all;",
            vec![],
        ),
        // Those of connections are the first.
        (
            format!("{content} accept if office\n{content} reject\n{reject} if {{ src 10.1.0.0/16 }}\n"),
            "deny 10.1.0.0/16; allow 10.0.0.0/8; deny all;",
            vec![],
        ),
        // What is accepted is not known, so the rest is not rejected without a word.
        (format!("{content} accept if {{ req.ssl_hello_type 1 }}\n{content} reject\n"), "", vec![5, 6]),
        (format!("{content} accept if {{ req.ssl_hello_type 1 }}\n"), "", vec![]),
    ] {
        assert_eq!(of(&rules), (expected.to_string(), notes), "{rules}");
    }
}

/// A frontend with these lines, and a backend with those.
fn shop(front: &str, back: &str) -> crate::Migration {
    migrated(&format!(
        "frontend app\n mode http\n bind :80\n{front} default_backend app\nbackend app\n mode http\n{back} server a 10.0.0.1:80\n"
    ))
}

/// The result without comments.
fn code(migration: &crate::Migration) -> String {
    migration.text.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join("\n")
}

/// The lines that begin with a word.
fn lines<'a>(migration: &'a crate::Migration, word: &str) -> Vec<&'a str> {
    migration.text.lines().map(str::trim).filter(|line| line.starts_with(word)).collect()
}

#[test]
fn a_field_that_is_reset_stays_reset() {
    let migration = shop(
        " http-request del-header X-User\n http-request set-header Host shop.test\n",
        " http-request set-header x-user %[ssl_c_s_dn] if { ssl_fc }\n",
    );
    assert!(migration.notes.is_empty(), "{:?}", migration.notes);
    assert!(
        migration.text.contains("map $b_app_test $set_x_user_9 {\n        default \"\";\n        1 $ssl_client_s_dn;")
    );
    assert_eq!(lines(&migration, "proxy_set_header X-User"), ["proxy_set_header X-User $set_x_user_9;"]);
    assert_eq!(lines(&migration, "proxy_set_header Host"), ["proxy_set_header Host shop.test;"]);
    // A rule that reads what another has changed would read what the client sent.
    let migration = shop(
        " http-request del-header X-Role\n http-request redirect location /a if { hdr(x-role) a }\n use_backend app if { hdr(x-role) a }\n",
        "",
    );
    assert_eq!(migration.notes.iter().map(|note| note.line).collect::<Vec<_>>(), [5, 6]);
}

#[test]
fn declarations_of_one_name_are_kept_apart() {
    let migration = shop(
        " acl is-api path /a\n acl is_api path /b\n http-request deny if is-api\n http-request deny if is_api\n",
        " acl is-api path /c\n http-request deny if is-api\n",
    );
    for (variable, path) in [("$f_app_is_api", "a"), ("$f_app_is_api_2", "b"), ("$b_app_is_api", "c")] {
        let map = format!("map $request_path {variable} {{\n        default 0;\n        ~^/{path}$ 1;");
        assert!(migration.text.contains(&map), "{}", migration.text);
        assert!(migration.text.contains(&format!("if ({variable})")));
    }
}

#[test]
fn statistics_open_no_more_than_before() {
    let of = |rest: &str| shop(&format!(" stats uri /stats\n{rest}"), "");
    let migration = of(" stats admin if LOCALHOST\n");
    assert!(code(&migration).contains("api;") && !code(&migration).contains("write=on"));
    assert_eq!(migration.notes.len(), 1);
    assert!(migration.text.contains("location /stats/api {") && !code(&migration).contains("location /api"));
    assert!(of(" stats admin if TRUE\n").text.contains("api write=on;"));
    let migration = of(" stats http-request deny unless { src 10.0.0.0/8 }\n");
    assert!(!code(&migration).contains("dashboard") && migration.notes.len() == 1);
    let migration = shop(" stats uri /?stats\n", "");
    assert!(migration.text.contains("proxy_pass") && migration.notes.len() == 1, "{}", migration.text);
    // A condition that also asks for something else is not forgotten.
    let metrics = " http-request use-service prometheus-exporter if { path /metrics }";
    assert_eq!(shop(&format!("{metrics}\n"), "").notes.len(), 0);
    assert_eq!(shop(&format!("{metrics} {{ src 10.0.0.1 }}\n"), "").notes.len(), 1);
}

#[test]
fn the_address_of_a_header_of_the_proxy_protocol_is_the_clients() {
    for (mode, expected) in [("http", "real_ip_header proxy_protocol;"), ("tcp", "set_real_ip_from 0.0.0.0/0;")] {
        let migration = migrated(&format!("listen a\n mode {mode}\n bind :80 accept-proxy\n server a 10.0.0.1:80\n"));
        assert!(migration.text.contains(expected) && migration.notes.is_empty(), "{}", migration.text);
        assert!(migration.text.contains("set_real_ip_from ::/0;"));
    }
    let rule = "tcp-request connection reject if { src 10.0.0.0/8 }";
    let migration = migrated(&format!("listen a\n mode tcp\n bind :80 accept-proxy\n {rule}\n server a 10.0.0.1:80\n"));
    assert!(migration.notes.len() == 1 && !code(&migration).contains("deny"));
}

#[test]
fn certificates_of_servers_are_verified_unless_told_otherwise() {
    let of = |global: &str, servers: &str| {
        haproxy(&format!("global\n{global}\nlisten a\n mode http\n bind :80\n{servers}"), "haproxy.cfg")
    };
    let server = " server a 10.0.0.1:443 ssl ca-file /ca.pem";
    let migration = of("", &format!("{server} sni str(app.test)\n"));
    for line in [
        "proxy_ssl_verify on;",
        "proxy_ssl_trusted_certificate /ca.pem;",
        "proxy_ssl_name app.test;",
        "proxy_ssl_server_name on;",
    ] {
        assert!(migration.text.contains(line), "{line}\n{}", migration.text);
    }
    assert!(migration.notes.is_empty(), "{:?}", migration.notes);
    for (global, rest) in [("", "verify none"), (" ssl-server-verify none", "")] {
        let migration = of(global, &format!("{server} {rest}\n"));
        assert!(migration.text.contains("https://a;") && !migration.text.contains("proxy_ssl_"), "{}", migration.text);
        assert!(migration.notes.is_empty());
    }
    for (rest, name, notes) in [
        ("verifyhost app.test", "proxy_ssl_name app.test;", 0),
        ("verifyhost other.test sni req.hdr(host)", "proxy_ssl_name $http_host;", 0),
        ("sni req.hdr(host),field(1,:)", "proxy_ssl_name $host;", 0),
        ("sni var(txn.name)", "proxy_ssl_verify on;", 1),
        ("", "proxy_ssl_verify on;", 1),
    ] {
        let migration = of("", &format!("{server} {rest}\n"));
        assert!(migration.text.contains(name), "{rest}\n{}", migration.text);
        assert_eq!(migration.notes.len(), notes, "{rest} {:?}", migration.notes);
    }
}

#[test]
fn servers_that_differ_are_noted() {
    let of = |first: &str, second: &str| {
        migrated(&format!(
            "listen a\n mode http\n bind :80\n server a 10.0.0.1:80 {first}\n server b 10.0.0.2:80 {second}\n"
        ))
    };
    let none = "ssl verify none";
    for (first, second) in [
        (none, ""),
        ("check", ""),
        ("check port 1", "check port 2"),
        ("check inter 1s", "check inter 2s"),
        ("send-proxy", ""),
    ] {
        for (first, second) in [(first, second), (second, first)] {
            let migration = of(first, second);
            assert!(
                migration.notes.iter().any(|note| note.line == 5 && note.why.contains("differs")),
                "{first} {second}"
            );
        }
    }
    assert!(of("", none).text.contains("https://a;"));
    assert!(of("inter 5s", "").notes.is_empty() && of("check", "check").notes.is_empty());
    // One server of `stream` has one of each, too.
    let text = "frontend f\n mode tcp\n bind :443\n use_backend a if { req.ssl_sni a.test }\n default_backend b\n\
                backend a\n mode tcp\n server a 10.0.0.1:443 send-proxy\nbackend b\n mode tcp\n server b 10.0.0.2:443 check\n";
    let migration = migrated(text);
    assert_eq!(migration.notes.iter().map(|note| note.line).collect::<Vec<_>>(), [1, 6]);
}

#[test]
fn nothing_vanishes_without_a_word() {
    for line in [
        "monitor fail if { nbsrv(app) lt 1 }",
        "maxconn 10",
        "rate-limit sessions 10",
        "http-request set-header X-A %[hdr(host),regsub(a,b)]",
        "tcp-request content reject",
    ] {
        let migration = shop(&format!(" {line}\n"), "");
        assert_eq!(migration.notes.iter().map(|note| note.line).collect::<Vec<_>>(), [4], "{line}");
    }
    assert_eq!(shop("", " stats enable\n").notes.len(), 1);
    let text = "listen a\n mode http\n bind :80\n balance random2\n server a 10.0.0.1:80\n";
    assert_eq!(migrated(text).notes[0].line, 4);
}

#[test]
fn defaults_have_the_lines_of_those_they_are_from() {
    let text = "defaults a\n mode http\n timeout server 7s\ndefaults b from a\n timeout connect 3s\n\
                listen x\n bind :80\n server a 10.0.0.1:80\ndefaults c\n mode tcp\n\
                listen y from b\n bind :81\n server a 10.0.0.1:80\n";
    let migration = migrated(text);
    assert_eq!(lines(&migration, "proxy_read_timeout 7s;").len(), 2, "{}", migration.text);
    assert!(migration.notes.is_empty() && !migration.text.contains("stream {"));
    assert_eq!(migrated("listen y from b\n mode http\n bind :81\n server a 10.0.0.1:80\n").notes.len(), 1);
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
