//! What requests are counted for, pairs, and what shows the state of what runs.

use super::*;

#[test]
fn requests_are_counted_for_a_zone_of_their_server() {
    let zones = |text: &str| http(text).status_zones;
    assert_eq!(zones("server { listen 80; server_name a b; }"), ["a"]);
    assert_eq!(zones("server { listen 127.0.0.1:81; }"), ["127.0.0.1:81"]);
    assert_eq!(
        zones("server { listen 80; server_name a; status_zone x; } server { listen 81; status_zone x; }"),
        ["x"]
    );
    let text = "events { } stream { server { listen 5000; status_zone s; proxy_pass 127.0.0.1:1; } }";
    assert_eq!(config(text).stream.status_zones, ["s"]);
}

#[test]
fn a_location_has_the_zone_of_the_one_around() {
    let text = "location /a/ { status_zone x; location /a/b/ { } location /a/c/ { status_zone off; }
                location /a/d/ { status_zone y; if ($arg_z) { status_zone z; } } }";
    let zone = |uri: &str| location(text, uri).settings.location_zone;
    assert_eq!((zone("/a/b/"), zone("/a/c/"), zone("/a/d/"), zone("/e")), (Some(0), None, Some(1), None));
    assert_eq!(http(&format!("server {{ {text} }}")).location_zones, ["x", "y", "z"]);
}

#[test]
fn the_api_is_read_only_unless_told() {
    let handler = |text: &str| location(&format!("location / {{ {text} }}"), "/").handler.clone();
    assert!(matches!(handler("api;"), Handler::Api { write: false }));
    assert!(matches!(handler("api write=off;"), Handler::Api { write: false }));
    assert!(matches!(handler("api write=on;"), Handler::Api { write: true }));
    assert!(matches!(handler("metrics;"), Handler::Metrics));
    assert!(http("server { location / { metrics; } }").is_controlled);
    assert!(!http("server { location / { stub_status; } }").is_controlled);
}

#[test]
fn the_dashboard_asks_at_a_path_of_its_site() {
    let handler = |text: &str| location(&format!("location / {{ {text} }}"), "/").handler.clone();
    assert!(matches!(handler("dashboard;"), Handler::Dashboard { api } if &*api == "/api"));
    assert!(matches!(handler("dashboard api=/status/api/;"), Handler::Dashboard { api } if &*api == "/status/api"));
}

#[test]
fn an_upstream_that_the_api_fills_may_be_empty() {
    assert!(http("upstream u { zone u 64k; }").upstreams[0].servers.is_empty());
}

#[test]
fn pairs_have_a_zone() {
    let http = http(
        "keyval $uri $target zone=late; keyval $remote_addr $kind zone=ips; map $kind $x { default $target; }
         keyval_zone zone=ips:32k type=ip; keyval_zone zone=late:64k state=pairs timeout=90s type=prefix;
         server { return 200 $x; }",
    );
    let [late, ips] = &http.keyval_zones[..] else { panic!("{:?}", http.keyval_zones) };
    assert_eq!((late.name.as_str(), late.size, late.kind), ("late", 65536, KeyvalKind::Prefix));
    assert_eq!((late.timeout, late.state.is_some()), (Some(Duration::from_secs(90)), true));
    assert_eq!((ips.name.as_str(), ips.kind, ips.timeout, &ips.state), ("ips", KeyvalKind::Ip, None, &None));
    assert!(matches!(http.maps[0].table, Table::Keyval(0)) && matches!(http.maps[1].table, Table::Keyval(1)));
}

#[test]
fn what_is_wrong_is_reported() {
    let problem = |text: &str| {
        let (config, problems) = load(&bundle(&format!("events {{ }} http {{ {text} }}")), &options());
        assert!(config.is_none(), "{text}");
        problems[0].message.clone()
    };
    assert_eq!(problem("server { location / { api write=maybe; } }"), "invalid parameter \"write=maybe\"");
    assert_eq!(problem("server { location / { api; api; } }"), "\"api\" directive is duplicate");
    assert_eq!(problem("server { location / { dashboard at=/x; } }"), "invalid parameter \"at=/x\"");
    let outside = "invalid path \"//evil.test\": it must begin with one \"/\"";
    assert_eq!(problem("server { location / { dashboard api=//evil.test/; } }"), outside);
    assert_eq!(problem("server { status_zone off; }"), "\"status_zone off\" is possible in a location only");
    assert_eq!(problem("keyval $uri $x zone=z;"), "zero size shared memory zone \"z\"");
    assert_eq!(problem("keyval $uri x zone=z;"), "invalid variable name \"x\"");
    assert_eq!(problem("keyval $uri $x z;"), "invalid parameter \"z\"");
    assert_eq!(problem("keyval_zone zone=z:32k type=name;"), "invalid parameter \"type=name\"");
    assert_eq!(problem("keyval_zone zone=z:1k;"), "zone \"zone=z:1k\" is too small");
    assert_eq!(problem("keyval_zone zone=z:32k timeout=x;"), "invalid timeout \"timeout=x\"");
    assert_eq!(problem("keyval_zone zone=z:32k; keyval_zone zone=z:32k;"), "duplicate zone \"z\"");
}
