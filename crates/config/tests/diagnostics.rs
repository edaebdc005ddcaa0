//! What the user reads when something is wrong.

use balanza_config::{Bundle, Options, load};

fn problems(text: &str) -> (bool, String, String) {
    let mut files = Bundle::default();
    files.add_file("/etc/n.conf", text);
    let (config, problems) = load(&files, &Options::new("/", "/etc/n.conf"));
    let long: String = problems.iter().map(|problem| problem.render(false)).collect();
    let short: Vec<String> = problems.iter().map(ToString::to_string).collect();
    (config.is_some(), long, short.join("\n"))
}

const BROKEN: &str = "\
user www-data;
worker_procesess auto;
events { worker_connections 1024; }
http {
\tgzip on;
\tsendfile on;
\tlog_format main '$remote_addr $statsu';
\tupstream backend {
\t\tleast_con;
\t\tserver nosuch.invalid:9001 weigth=2;
\t}
\tserver {
\t\tlisten 8080 default_srever ssl;
\t\tserver_name exämple.org
\t\troot /srv;
\t\tlocation / { proxy_pass backend; }
\t\tlocation ~ (\\.php$ { return 403; }
\t\tlocation ~ x$ { proxy_pass http://127.0.0.1/y; }
\t\tlocation /a { set $host x; return 200 \"$remote_adr\" }
\t\tlocation /a { proxy_next_upstream error http_50; }
\t\tssl_certificate /etc/x.pem;
\t\tserver_tokens of;
\t\tworker_connections 5;
\t}
}
";

#[test]
fn all_errors_of_a_file_are_shown() {
    let (usable, long, short) = problems(BROKEN);
    assert!(!usable);
    insta::assert_snapshot!("long", long);
    insta::assert_snapshot!("short", short);
}

#[test]
fn warnings_do_not_stop() {
    let (usable, long, _) = problems(
        "events { use epoll; } http { http2_push on; ssl_certificate_compression off; ssl_certificate_compression on; sendfile on; }",
    );
    assert!(usable);
    insta::assert_snapshot!("warnings", long);
}

#[test]
fn hints_are_for_users() {
    let hint = |text: &str| {
        let mut files = Bundle::default();
        files.add_file("/n.conf", format!("events {{ }} {text}"));
        let (_, mut problems) = load(&files, &Options::new("/", "/n.conf"));
        assert_eq!(problems.len(), 1, "{problems:?}");
        problems.remove(0).hint.unwrap_or_default()
    };
    for (text, expected) in [
        ("http { proxy_pass http://a; }", "it belongs in location; this is http"),
        ("http { server { worker_processes 1; } }", "it belongs outside all blocks; this is server"),
        ("gzip on;", "it belongs in http, server or location; this is outside all blocks"),
        (
            "http { server { if_modified_since off; ssl_preread on; } }",
            "it belongs in stream or a server of stream; this is server",
        ),
        ("http { break; }", "it belongs in server or location; this is http"),
        ("http { upstream u { server 127.0.0.1; listen 80; } }", "it belongs in server; this is upstream"),
    ] {
        assert_eq!(hint(text), expected, "{text}");
    }
    // No context's internal name in any hint.
    for directive in balanza_config::directives() {
        let mut files = Bundle::default();
        for place in ["x;", "events { x; }", "http { x; }", "http { upstream u { server 127.0.0.1; x; } }"] {
            files.add_file("/n.conf", place.replace('x', directive.name));
            for problem in load(&files, &Options::new("/", "/n.conf")).1 {
                let hint = problem.hint.unwrap_or_default();
                assert!(!hint.contains("-if") && !hint.contains("-server") && !hint.contains("-upstream"), "{hint}");
            }
        }
    }
}

#[test]
fn directives_of_nginx_plus_are_known_as_such() {
    let (_, _, short) = problems(
        "events { } http { upstream u { server 127.0.0.1; sticky_cookie_insert a; } session_log_zone zone=a:32k; }",
    );
    let expected = |name| {
        format!(
            "balanza: [emerg] \"{name}\" is a directive of NGINX Plus that Balanza does not have yet in /etc/n.conf:1"
        )
    };
    assert_eq!(short, [expected("sticky_cookie_insert"), expected("session_log_zone")].join("\n"));
}

#[test]
fn the_file_of_debian_loads() {
    let text = include_str!("data/debian-12.conf");
    let (usable, _, short) = problems(text);
    assert!(usable && !short.contains("[emerg]"), "{short}");
    for name in ["sendfile", "tcp_nopush", "types_hash_max_size"] {
        assert!(text.contains(name) && !short.contains(name), "{short}");
    }
    let warning = "Balanza does not have TLSv1 and TLSv1.1: ";
    assert!(short.contains(&format!("[warn] {warning}")), "{short}");
}

#[test]
fn colours_only_on_request() {
    let mut files = Bundle::default();
    files.add_file("/n.conf", "events { } foo;");
    let (_, problems) = load(&files, &Options::new("/", "/n.conf"));
    assert!(!problems[0].render(false).contains('\x1b'));
    assert!(problems[0].render(true).contains("\x1b[1;31merror\x1b[0m"));
}

#[test]
fn a_missing_main_file_has_no_place() {
    let (config, problems) = load(&Bundle::default(), &Options::new("/srv", "conf/nginx.conf"));
    assert!(config.is_none());
    let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
    assert_eq!(lines, ["balanza: [emerg] open() \"/srv/conf/nginx.conf\" failed (2: No such file or directory)"]);
    assert!(problems[0].render(false).contains("hint: the option -c sets the configuration file"));
}

#[test]
fn messages_are_one_line_of_text() {
    let (_, long, short) = problems("events { } \"fo\no\u{1b}[31m\" \u{1}x;");
    assert_eq!(short, "balanza: [emerg] unknown directive \"fo?o?[31m\" in /etc/n.conf:1");
    assert!(!long.contains('\x1b'));
}

#[test]
fn maps_in_a_circle_are_refused() {
    let (usable, _, short) =
        problems("events { } http { map $a $b { x $c; } map $b $c { y z; } map $c $a { default 1; } }");
    assert!(!usable);
    assert_eq!(short.lines().count(), 3);
    assert!(short.contains("cycle while evaluating variable \"b\" in /etc/n.conf:1"), "{short}");
}

mod any {
    use super::*;
    use proptest::prelude::*;

    /// Words of the dialect in any order, so that contexts nest and directives get wrong arguments.
    fn soup() -> impl Strategy<Value = String> {
        let words = balanza_config::directives().iter().map(|directive| directive.name).collect::<Vec<_>>();
        let word = prop_oneof![
            4 => proptest::sample::select(words),
            4 => proptest::sample::select(vec![
                "{", "}", ";", ";", "{", "}", "on", "off", "1", "8k", "30s", "$uri", "$x", "~", "=", "/", "/a", "@a",
                "http://127.0.0.1", "http://$x/", "127.0.0.1:80", "unix:/a", "\"\"", "'a b'", "#\n", "http { server {",
                "events { }", "location / {", "upstream u {", "server 127.0.0.1;", "map $uri $x {", "\\", "$", "${",
                "*.example.org", "~^(?<n>.*)$", "backup", "weight=2",
                "cookie", "learn", "route", "create=$x", "lookup=$uri", "zone=z:1m", "expires=max", "priority=1",
                "max_conns=3", "drain", "route=a", "least_conn", "key=$uri", "agent", "port=1", "report=127.0.0.1:1", "default_server", "all", "stderr", "combined",
            ]),
        ];
        proptest::collection::vec(word, 0..60).prop_map(|words| words.join(" "))
    }

    fn holds(text: &[u8]) {
        let mut files = Bundle::default();
        files.add_file("/n.conf", text);
        let (config, problems) = load(&files, &Options::new("/", "/n.conf"));
        let errors = problems.iter().any(|problem| problem.severity == balanza_config::Severity::Error);
        assert_eq!(config.is_some(), !errors);
        for problem in problems {
            assert!(!problem.render(true).is_empty() && problem.to_string().starts_with("balanza: ["));
        }
    }

    #[test]
    fn seeds_of_the_fuzzer_are_judged() {
        let seeds = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/config");
        let mut count = 0;
        for seed in std::fs::read_dir(seeds).unwrap() {
            holds(&std::fs::read(seed.unwrap().path()).unwrap());
            count += 1;
        }
        assert!(count >= 6);
    }

    proptest! {
        #[test]
        fn any_bytes_are_judged(text in proptest::collection::vec(any::<u8>(), 0..300)) {
            holds(&text);
        }

        #[test]
        fn any_words_are_judged(text in soup()) {
            holds(text.as_bytes());
            holds(format!("events {{ }} http {{ server {{ {text}").as_bytes());
        }
    }
}
