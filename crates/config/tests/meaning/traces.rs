//! `otel_exporter`: where spans go, and how.

use balanza_config::model::discover::Place;

use super::*;

fn exporter(lines: &str) -> Arc<Exporter> {
    http(&format!("otel_exporter {{ {lines} }}")).exporter.unwrap_or_else(|| panic!("no exporter: {lines}"))
}

#[test]
fn the_protocol_has_its_port_and_its_path() {
    let of = |endpoint: &str, protocol: &str| {
        let exporter = exporter(&format!("endpoint {endpoint}; {protocol}"));
        let path = match &exporter.protocol {
            ExporterProtocol::Grpc => "grpc".to_owned(),
            ExporterProtocol::Http { path } => path.clone(),
        };
        (exporter.endpoint.place.clone(), exporter.endpoint.authority.clone(), path)
    };
    let expected = |host: &str, port, authority: &str, path: &str| {
        (Place::Host(host.into(), port), authority.to_owned(), path.to_owned())
    };
    assert_eq!(of("a.test", ""), expected("a.test", 4317, "a.test:4317", "grpc"));
    assert_eq!(of("http://a.test/", "protocol grpc;"), expected("a.test", 4317, "a.test:4317", "grpc"));
    let http = |endpoint: &str| of(endpoint, "protocol http/protobuf;");
    assert_eq!(http("a.test"), expected("a.test", 4318, "a.test:4318", "/v1/traces"));
    assert_eq!(http("HTTP://a.test:80"), expected("a.test", 80, "a.test:80", "/v1/traces"));
    assert_eq!(http("http://[::1]/in/x"), expected("::1", 4318, "[::1]:4318", "/in/x"));
    // A path that is given is used as it is.
    assert_eq!(http("http://a.test:9/"), expected("a.test", 9, "a.test:9", "/"));
    assert_eq!(http("a.test:9/a@b?c=d"), expected("a.test", 9, "a.test:9", "/a@b?c=d"));
    assert_eq!(http("a.test?c=d"), expected("a.test", 4318, "a.test:4318", "/v1/traces?c=d"));
    // A query may have a key.
    let shown = exporter("endpoint http://a.test/in?key=b; protocol http/protobuf;").to_string();
    assert_eq!(shown, "http://a.test:4318/in");
    for text in ["unix:/run/o.sock", "http://unix:/run/o.sock"] {
        let unix = (Place::Unix("/run/o.sock".into()), "localhost:4318".to_owned(), "/v1/traces".to_owned());
        assert_eq!(http(text), unix, "{text}");
    }
}

#[test]
fn mistakes_have_hints() {
    let hint = |lines: &str| {
        let text = format!("events {{ }} http {{ otel_exporter {{ {lines} }} }}");
        let (config, mut problems) = load(&bundle(&text), &options());
        assert!(config.is_none() && problems.len() == 1, "{lines}: {problems:?}");
        problems.remove(0).hint.unwrap_or_default()
    };
    assert_eq!(hint("endpoint a/v1; protocol http;"), "write grpc or http/protobuf");
    assert!(hint("endpoint http://a/v1/traces;").ends_with("write: protocol http/protobuf;"));
    assert!(hint("endpoint http:///v1/traces; protocol http/protobuf;").contains("with a path"));
    assert!(hint("endpoint \"http://a/b c\"; protocol http/protobuf;").starts_with("percent-encode it"));
    assert!(hint("endpoint http://a/b; protocol http/protobuf; trusted_certificate /c;").starts_with("write https://"));
    assert!(!hint("endpoint grpc://a;").contains("with a path"));
}
