//! Logs in files: compressed, with retries, in formats of other programs.
#![allow(missing_docs, reason = "tests")]

use std::io::Write as _;
use std::path::PathBuf;

use balanza_recommend::Error;
use balanza_recommend::format::Escape;
use balanza_recommend::log::Log;
use balanza_recommend::read::{Candidate, Input, read};

/// A file that is removed at the end of the test.
struct Temporary(PathBuf);

impl Temporary {
    fn new(name: &str, bytes: &[u8]) -> Temporary {
        let path = std::env::temp_dir().join(format!("balanza-recommend-{}-{name}", std::process::id()));
        std::fs::write(&path, bytes).unwrap();
        Temporary(path)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn format(text: &str) -> Vec<Candidate> {
    vec![Candidate { name: "own".into(), text: text.into(), escape: Escape::Default }]
}

fn log(files: &[&Temporary], formats: Vec<Candidate>) -> Result<Log, Error> {
    let files = files.iter().map(|file| file.0.clone()).collect();
    read(&Input { files, formats, ..Input::default() }, &Default::default())
}

const OWN: &str = "$msec $request_method $uri $upstream_addr $upstream_response_time $upstream_status";

#[test]
fn retries_are_attempts_one_after_the_other() {
    let text = "100.500 GET /a 10.0.0.1:80, 10.0.0.2:80 0.100, 0.200 502, 200\n\
                100.600 GET /a/7 10.0.0.2:80 0.050 200\n\
                100.700 GET / - - -\n\
                100.800 POST /b?x upstreams - -\n\
                101.000 GET /a 10.0.0.1:80 : 10.0.0.2:80 0.010 : 0.020 200 : 503\n";
    let file = Temporary::new("retries", text.as_bytes());
    let log = log(&[&file], format(OWN)).unwrap();
    assert_eq!((log.requests, log.elsewhere, log.strange, log.retries, log.exact), (3, 2, 0, 1, true));
    assert_eq!(log.servers, ["10.0.0.1:80", "10.0.0.2:80"]);
    assert_eq!(log.classes, ["GET /a"]);
    let seen: Vec<_> =
        log.attempts.iter().map(|a| (a.begin / 1_000, a.time / 1_000, a.server, a.is_first(), a.failed())).collect();
    assert_eq!(
        seen,
        [
            (100_200, 100, 0, true, true),
            (100_300, 200, 1, false, false),
            (100_550, 50, 1, true, false),
            (100_970, 10, 0, true, false),
            (100_980, 20, 1, false, true),
        ]
    );
    assert_eq!(log.attempts[0].total, 300_000);
}

#[test]
fn several_files_and_gzip() {
    let line = |at: u64| format!("{at}.000 GET /a 10.0.0.1:80 0.100 200\n");
    let plain = Temporary::new("plain", line(200).as_bytes());
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    (100..150).for_each(|at| gzip.write_all(line(at).as_bytes()).unwrap());
    let mut bytes = gzip.finish().unwrap();
    // A log that was appended to: two members.
    let mut second = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    second.write_all(line(150).as_bytes()).unwrap();
    bytes.extend(second.finish().unwrap());
    let compressed = Temporary::new("compressed", &bytes);
    let log = log(&[&plain, &compressed], format(OWN)).unwrap();
    assert_eq!(log.requests, 52);
    assert!(log.attempts.is_sorted_by_key(|attempt| attempt.begin));
}

#[test]
fn seconds_are_spread_in_the_order_of_the_log() {
    let text = "$time_local $upstream_addr $upstream_response_time";
    let line = |second: u32| format!("14/Nov/2023:22:13:{second} +0000 10.0.0.1:80 0.000\n");
    let file = Temporary::new("seconds", (0..8).map(|i| line(20 + i / 4)).collect::<String>().as_bytes());
    let log = log(&[&file], format(text)).unwrap();
    let begins: Vec<u64> = log.attempts.iter().map(|attempt| attempt.begin % 10_000_000 / 1_000).collect();
    assert_eq!(begins, [125, 375, 625, 875, 1_125, 1_375, 1_625, 1_875]);
    assert!(!log.exact);
}

#[test]
fn json_needs_no_format() {
    let line = r#"{"msec":"100.5","upstream_addr":"10.0.0.1:80","upstream_response_time":"0.100","status":"200","request":"GET /a HTTP/1.1"}"#;
    let file = Temporary::new("json", format!("{line}\n{line}\n").as_bytes());
    let log = log(&[&file], Vec::new()).unwrap();
    assert_eq!((log.requests, log.classes[0].as_str(), log.attempts[0].failed()), (2, "GET /a", false));
}

#[test]
fn what_does_not_help_is_refused() {
    let combined = "1.2.3.4 - - [14/Nov/2023:22:13:20 +0000] \"GET / HTTP/1.1\" 200 5 \"-\" \"x\"\n";
    let file = Temporary::new("combined", combined.repeat(3).as_bytes());
    let said = log(&[&file], Vec::new()).unwrap_err().to_string();
    assert!(said.contains("log_format upstreams") && said.contains("--format"), "{said}");
    let short = format("$remote_addr - $remote_user [$time_local] \"$request\" $status $body_bytes_sent");
    let said = log(&[&file], short).unwrap_err().to_string();
    assert!(said.contains("log_format own") && said.contains("lacks $upstream_addr"), "{said}");
    let empty = Temporary::new("empty", b"\n");
    assert!(matches!(log(&[&empty], format(OWN)), Err(Error::Empty)));
    let none = Temporary::new("none", b"100.700 GET / - - -\n");
    assert!(matches!(log(&[&none], format(OWN)), Err(Error::NoServers)));
}
