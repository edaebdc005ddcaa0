//! The requests of logs, as the lab sends them again.
#![allow(missing_docs, reason = "tests")]

use std::io::Write as _;

use balanza_recommend::Error;
use balanza_recommend::format::Escape;
use balanza_recommend::read::{Candidate, Input};
use balanza_recommend::requests::{Requests, requests};

fn read(text: &str, format: Option<&str>) -> Result<Requests, Error> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    let candidate = |text: &str| Candidate { name: "own".into(), text: text.to_string(), escape: Escape::Default };
    let formats = format.map(candidate).into_iter().collect();
    requests(&Input { files: vec![file.path().into()], formats, ..Input::default() })
}

/// Milliseconds since the first one, what is asked for, and the client.
fn seen(log: &Requests) -> Vec<(u64, String, u32)> {
    let first = log.requests[0].begin;
    let asked = |asked: u32| format!("{} {}", log.asked[asked as usize].method, log.asked[asked as usize].uri);
    log.requests.iter().map(|request| ((request.begin - first) / 1_000, asked(request.asked), request.client)).collect()
}

#[test]
fn a_request_begins_when_it_ended_less_the_time_that_it_took() {
    let text = "100.500 0.400 10.0.0.1 \"GET /slow?a=1 HTTP/1.1\"\n\
                100.200 0.050 10.0.0.2 \"POST /form HTTP/1.1\"\n\
                100.600 0.100 10.0.0.1 \"GET /slow?a=1 HTTP/1.1\"\n";
    let log = read(text, Some("$msec $request_time $remote_addr \"$request\"")).unwrap();
    let expected = [(0, "GET /slow?a=1", 0), (50, "POST /form", 1), (400, "GET /slow?a=1", 0)];
    assert_eq!(seen(&log), expected.map(|(time, asked, client)| (time, asked.to_string(), client)));
    assert_eq!((log.asked.len(), log.exact), (2, true));
}

#[test]
fn ordinary_access_logs_will_do() {
    // combined, in whole seconds; what a browser cannot send is left out, and said.
    let line = |second: u32, request: &str| {
        format!("10.0.0.9 - - [24/Nov/2026:21:53:{second:02} +0000] \"{request}\" 200 612 \"-\" \"curl/8\"\n")
    };
    let text = [
        line(10, "GET / HTTP/1.1"),
        line(10, "HEAD /a HTTP/1.1"),
        line(11, "GET /\\xC3\\xA4 HTTP/1.1"),
        line(11, "CONNECT example.test:443 HTTP/1.1"),
        line(11, "\\x16\\x03\\x01"),
        line(12, "-"),
        "no line of this log\n".to_string(),
    ];
    let log = read(&text.concat(), None).unwrap();
    let expected = [(0, "GET /", 0), (500, "HEAD /a", 0), (1_250, "GET /%C3%A4", 0)];
    assert_eq!(seen(&log), expected.map(|(time, asked, client)| (time, asked.to_string(), client)));
    assert_eq!((log.unsendable, log.strange, log.exact), (3, 1, false));

    let json = r#"{"time_iso8601":"2026-11-24T21:53:30+00:00","request_method":"GET","request_uri":"/x"}"#;
    assert_eq!(seen(&read(json, None).unwrap()), [(0, "GET /x".to_string(), 0)]);
}

#[test]
fn logs_that_have_no_requests() {
    let error = |text: &str, format: Option<&str>| read(text, format).unwrap_err().to_string();
    assert!(error("", None).contains("empty"));
    assert!(error("100.5 -\n", Some("$msec \"$status\"")).contains("lacks $request"), "{}", error("", None));
    let none = error("1.5 \"-\"\n", Some("$msec \"$request\""));
    assert!(none.contains("no line of the log has a request"), "{none}");
}
