//! What is said of upstreams that make no sense: for each line the marked text, the message and the hint.

use std::fmt::Write;

use balanza_config::{Bundle, Options, Severity, load};

/// What stands in an `upstream`; two servers are added where a line names none.
const CASES: &str = "\
balance;
leastconn;
rendezvous key=$uri;
lest_conn;
balance leest_conn;
balance leastcon;
balance least_conn weight=3;
balance least_conn key=$uri;
balance ip_hash key=$uri;
balance least_time header;
balance least_time By=header;
balance least_time by=heade;
balance least_time by=header inflight by=last_byte;
balance two_choices choices=1 by=x;
balance two_choices choices=3 choices=4;
balance hash;
balance hash key=;
balance hash key=$ur|i;
balance hash key=$uri key=$args;
balance hash key=$uri consistentt;
balance hash consistent=yes key=$uri;
balance hash key=\"$uri x\";
balance hash \"key=$uri x\" consistent;
balance round_robin; least_conn;
least_conn; balance round_robin;
least_conn; random;
balance external;
balance external \"program= \";
balance external program=\"/bin/choose -v\";
balance external \"program=/bin/choose -v\" timeout=20s;
balance external \"program=/bin/choose -v\" timeout=500us key=$uri;
experiment;
zone u 64k; experiment blok=1s; experiment_arm random;
zone u 64k; experiment block=2d washout=1 errors=5 p99_ratio=0 start=yes; experiment_arm random;
zone u 64k; experiment block=1s block=2s; experiment_arm random;
zone u 64k; experiment block=10s washout=6s; experiment_arm random;
zone u 64k; experiment full=50%; experiment_arm random;
zone u 64k; experiment; experiment_arm random; experiment_arm random;
zone u 64k; experiment; experiment_arm round_robin;
zone u 64k; least_conn; experiment; experiment_arm least_conn;
zone u 64k; experiment; experiment_arm lest_conn;
zone u 64k; experiment; experiment_arm hash;
zone u 64k; experiment; experiment_arm least_time hedaer;
zone u 64k; experiment; experiment_arm least_load;
zone u 64k; experiment; experiment_arm external \"program=/bin/choose\";
zone u 64k; experiment; experiment_arm ip_hash; server 10.0.0.1; server 10.0.0.2 backup;
zone u 64k; experiment; experiment_arm last_server mode=strict; sticky cookie a;
zone u 64k; experiment_arm random;
shadow;
shadow lest_conn;
shadow maglev kay=$uri;
shadow hash;
shadow two_choices choices=17;
shadow external \"program=/bin/choose\";
shadow prequal probe=/load;
shadow prequal;
shadow round_robin; shadow wrr;
shadow round_robin; shadow maglev; shadow random; shadow hash key=$uri; shadow least_conn;
shadow least_load;
shadow least_load; load_report header X-Load;
shadow first;
shadow ip_hash; server 10.0.0.1; server 10.0.0.2 backup;
shadow maglev; sticky cookie a; balance least_conn;
sticky cookie a; shadow last_server mode=strict;
balance first;
balance first; server 10.0.0.1 max_conns=3; server 10.0.0.2;
balance first; server 10.0.0.1; server 10.0.0.2 priority=1; priority 0 max_conns=3;
balance least_load;
balance weighted_load;
balance least_load; load_report header X-Load;
load_report header X-Load;
balance least_conn; load_report snmp;
balance prequal probe=load;
balance prequal \"probe=/load now\";
balance prequal probe=/load?x=1 age=2h;
balance prequal probe=/load?x=1;
balance last_server mode=strict; sticky cookie a;
balance last_server mode=lax; sticky cookie a;
balance hashed_ip strict; sticky cookie a;
balance hashed_ip mode=strict; sticky route $arg_a;
balance last_server timeout=0;
balance last_server; server 10.0.0.1 soft_max_conns=4; server 10.0.0.2;
two_choices choices=17;
two_choices; two_choices;
two_choices three;
hash $uri consistent balance_factor=x;
hash $uri consistent balance_factor=100;
hash $uri consistent balance_factor=125;
hash $uri balance_factor=125 consistent;
balance maglev table=1 tabel=2 table=3 key=$uri;
hash $uri inconsistent;
hash $uri consistent consistent;
balance ip_hash; server 10.0.0.1; server 10.0.0.2 backup;
sticky;
sticky cookie;
sticky cookies a;
sticky cookie \"\";
sticky cookie a expire=1h;
sticky cookie a expires=1h expires=2h;
sticky cookie a expires=later;
sticky cookie a domain=;
sticky cookie a path= httponly httponly secure secure;
sticky cookie a domain=$host domain=x path=/ path=/a;
sticky cookie a samesite=strict samesite=lax;
sticky cookie a samesite=maybe;
sticky cookie a samesite=;
sticky cookie a samesite=$arg_a domain=.$arg_b;
sticky cookie a domain=${x;
sticky route route;
sticky route $arg_route $cookie_route route;
sticky route $arg_a$arg_b;
sticky route $;
sticky learn create=$upstream_cookie_a lookup=$cookie_a;
sticky learn create=$upstream_cookie_a zone=s:1m;
sticky learn lookup=$cookie_a zone=s:1m;
sticky learn create=a lookup=b zone=s;
sticky learn create=$upstream_cookie_a lookup=$cookie_a zone=:1m;
sticky learn create=$upstream_cookie_a lookup=$cookie_a zone=s:1x;
sticky learn create=$upstream_cookie_a lookup=$cookie_a zone=s:4k;
sticky learn create=$upstream_cookie_a lookup=$cookie_a zone=s:1m zone=t:1m;
sticky learn create=$upstream_cookie_a lookup=$cookie_a zone=s:1m timeout=0;
sticky learn create=$upstream_cookie_a lookup=$cookie_a zone=s:1m timeout=1m timeout=2m headers;
sticky learn create=$upstream_cookie_a lookup=$cookie_a zone=s:1m; zone s 1m;
sticky cookie a; sticky route $arg_a;
sticky cookie a; least_conn;
sticky cookie a; balance random;
server 10.0.0.1 weight=2 drian;
server 10.0.0.1 drain down; server 10.0.0.2;
server 10.0.0.1 route=; server 10.0.0.2;
server 10.0.0.1 route=0123456789abcdef0123456789abcdef0; server 10.0.0.2; sticky cookie a;
server 10.0.0.1 route=a; server 10.0.0.2;
server 10.0.0.1 slow_start=soon; server 10.0.0.2;
server 10.0.0.1 slow_start=30s;
server one.example slow_start=30s;
server 10.0.0.1 max_conns=3 soft_max_conns=4; server 10.0.0.2; sticky cookie a;
server 10.0.0.1 max_conns=4 soft_max_conns=3; server 10.0.0.2;
server 10.0.0.1 soft_max_conns=0; server 10.0.0.2; sticky cookie a;
server 10.0.0.1 priority=-1; server 10.0.0.2;
server 10.0.0.1; server 10.0.0.2 backup priority=2;
priority 1;
priority x max_conns=5;
priority 0 limit=5;
priority 0 max_conns=0;
priority 0 max_conns=5; priority 0 max_conns=6;
server 10.0.0.1 priority=1; server 10.0.0.2; priority 2 max_conns=5;
load_report;
load_report agnet port=1;
load_report agent;
load_report agent port=0;
load_report agent port=8081 full=3;
load_report agent port=8081 port=8082;
load_report agent port=8081 interval=0;
load_report agent port=8081 interval=1s timeout=2s;
load_report agent port=8081 stale=0;
load_report agent port=8081; load_report agent port=8082;
load_report agent port=8081; load_report header X-Load;
load_report agent port=8081; server unix:/run/app; server 10.0.0.1;
load_report snmp oid=1.3.x full=none community=;
load_report snmp oid=1;
load_report header;
load_report header \"X Load\";
load_report header X-Load full=0;
load_report header X-Load interval=5s;
load_report header X-Load stale_after=0;
load_report program;
load_report program \" \";
load_report program \"/usr/bin/loads -v\" full=1;
load_report header X-Load; server 10.0.0.1 report=10.0.0.9:1; server 10.0.0.2;
load_report agent port=1; load_report snmp; server 10.0.0.1 report=10.0.0.9:1; server 10.0.0.2;
load_report agent port=1; server 10.0.0.1 report=10.0.0.9; server 10.0.0.2;
load_report agent port=1; server 10.0.0.1 report=unix:/a; server 10.0.0.2;
";

fn judged(text: &str) -> String {
    let named = text.split("; ").any(|directive| directive.starts_with("server "));
    let servers = if named { "" } else { "server 10.0.0.1; server 10.0.0.2;" };
    // A new line keeps the columns of the marks apart from what stands around.
    let mut files = Bundle::default();
    files.add_file("/n.conf", format!("events {{ }} http {{ upstream u {{\n{text}\n{servers} }} }}"));
    files.add_host("one.example", vec!["10.0.0.1".parse().unwrap()]);
    let (config, problems) = load(&files, &Options::new("/", "/n.conf"));
    let mut out = format!("{text}\n");
    if config.is_some() {
        out.push_str("  accepted\n");
    }
    for problem in problems {
        let kind = if problem.severity == Severity::Error { "error" } else { "warning" };
        let place = problem.place.unwrap();
        let from = place.column - 1 - place.skipped;
        let marked = &place.source[from..from + place.length];
        let _ = writeln!(out, "  {kind} at `{marked}`: {}", problem.message);
        if let Some(hint) = problem.hint {
            let _ = writeln!(out, "    hint: {hint}");
        }
    }
    out
}

#[test]
fn senseless_upstreams_are_refused_with_a_reason() {
    let answers: String = CASES.lines().map(judged).collect();
    insta::assert_snapshot!(answers);
}

/// Where no name is near, all are listed.
#[test]
fn unknown_algorithms_are_told_which_there_are() {
    let said = judged("balance nothing_like_it;");
    assert!(
        said.contains("unknown balancing algorithm \"nothing_like_it\"\n    hint: there are: round_robin, "),
        "{said}"
    );
    for entry in balanza_balancing::registry::entries() {
        assert!(said.contains(&format!("{},", entry.name)) || said.ends_with(&format!("{}\n", entry.name)), "{said}");
    }
}

#[test]
fn priorities_are_bounded() {
    let servers = |count: u32| (0..count).map(|n| format!("server 10.0.0.1 priority={n}; ")).collect::<String>();
    assert!(judged(&servers(254)).ends_with("  accepted\n"));
    assert!(judged(&servers(255)).contains("  error at `priority=254`: more than 254 priorities\n"));
}

/// A zone of sessions belongs to one upstream.
#[test]
fn zones_of_sessions_are_not_shared() {
    let learn = "sticky learn create=$upstream_cookie_a lookup=$cookie_a zone=s:1m;";
    for (other, message) in [
        (learn, "sticky zone \"s\" is already used in upstream \"u\""),
        (
            &learn.replace("1m", "2m"),
            "the size 2097152 of shared memory zone \"s\" conflicts with already declared size 1048576",
        ),
        ("zone s 1m;", "the shared memory zone \"s\" is already declared for a different use"),
        ("zone s;", "the shared memory zone \"s\" is already declared for a different use"),
    ] {
        let text = format!("{learn} server 10.0.0.1; }} upstream v {{ {other}");
        let said = judged(&format!("{text} server 10.0.0.1;"));
        assert!(said.contains(message) && !said.contains("accepted"), "{said}");
    }
}

/// The seed from which the fuzzer makes such upstreams is right, so that small changes make small mistakes.
#[test]
fn the_seed_of_the_fuzzer_is_accepted() {
    let mut files = Bundle::default();
    files.add_file("/n.conf", include_str!("../../../fuzz/corpus/config/balance.conf"));
    let (config, problems) = load(&files, &Options::new("/", "/n.conf"));
    assert!(config.is_some() && problems.is_empty(), "{problems:?}");
}
