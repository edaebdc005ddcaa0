//! Accepts what NGINX accepts, and refuses the rest in its words.
//!
//! The cases are in `data/cases.txt`. One test compares each with the NGINX of this machine (it says so and passes when
//! there is none); the other compares what Balanza says with the recorded answers.

use std::fmt::Write;
use std::path::Path;
use std::process::Command;

use balanza_config::{FileSystem, Options, Severity, load};

struct Case {
    text: String,
    judged: bool,
    shown: &'static str,
}

fn cases() -> Vec<Case> {
    let lines = include_str!("data/cases.txt").lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let (context, body) = line.split_once(' ').unwrap_or((line, ""));
            let body = body.replace("\\n", "\n").replace("\\\\", "\\");
            let text = match context {
                "file" | "strict-file" => body,
                "http" | "only" => format!("events {{ }} http {{ {body} }}"),
                "stream" | "only-stream" => format!("events {{ }} stream {{ {body} }}"),
                "server" => format!("events {{ }} http {{ server {{ listen 18080; {body} }} }}"),
                other => panic!("unknown context {other}"),
            };
            Case { text, judged: !matches!(context, "only" | "only-stream" | "strict-file"), shown: line }
        })
        .collect()
}

/// Problems as "emerg 1: message".
fn ours(directory: &Path, text: &str) -> (bool, Vec<String>) {
    let file = directory.join("nginx.conf");
    std::fs::write(&file, text).unwrap();
    let (config, problems) = load(&FileSystem, &Options::new(directory, &file).with_process());
    let lines = problems
        .iter()
        .map(|problem| {
            let level = if problem.severity == Severity::Error { "emerg" } else { "warn" };
            let line = problem.place.as_ref().map_or(0, |place| place.line);
            format!("{level} {line}: {}", problem.message.replace(&format!("{}/", directory.display()), ""))
        })
        .collect();
    (config.is_some(), lines)
}

/// Debian's package libnginx-mod-stream.
const STREAM_MODULE: &str = "/usr/lib/nginx/modules/ngx_stream_module.so";

/// The same from NGINX.
fn theirs(directory: &Path, text: &str) -> (bool, Vec<String>) {
    let file = directory.join("nginx.conf");
    std::fs::write(&file, text).unwrap();
    let module = if text.contains("stream {") { format!("load_module {STREAM_MODULE};") } else { String::new() };
    let globals = format!("{module} pid logs/nginx.pid;");
    let output = Command::new("nginx")
        .args(["-t", "-e", "stderr", "-g", &globals, "-p"])
        .arg(directory)
        .arg("-c")
        .arg(&file)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let mut lines = Vec::new();
    for line in text.lines() {
        for level in ["emerg", "warn"] {
            // "nginx: [emerg] …", or "2026/11/21 21:01:23 [emerg] 25577#25577: …".
            let Some((_, message)) = line.split_once(&format!("[{level}] ")) else { continue };
            let message = match message.split_once("#") {
                Some((pid, rest)) if pid.bytes().all(|b| b.is_ascii_digit()) => {
                    rest.split_once(": ").map_or(rest, |(_, message)| message)
                }
                _ => message,
            };
            let (message, number) = match message.rsplit_once(" in ") {
                Some((message, place)) if place.starts_with(&*file.to_string_lossy()) => {
                    (message, place.rsplit(':').next().unwrap_or("0"))
                }
                _ => (message, "0"),
            };
            lines.push(format!("{level} {number}: {}", message.replace(&format!("{}/", directory.display()), "")));
        }
    }
    (output.status.success(), lines)
}

fn directory() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    std::fs::create_dir(directory.path().join("logs")).unwrap();
    directory
}

/// NGINX gives no place, or the end of a directive or block, where Balanza marks the culprit.
fn without_line(line: &str) -> &str {
    line.split_once(": ").map_or(line, |(_, message)| message)
}

#[test]
fn nginx_agrees() {
    if Command::new("nginx").arg("-v").output().is_err() {
        eprintln!("there is no nginx on this machine: nothing is compared");
        return;
    }
    let directory = directory();
    let mut differences = String::new();
    let has_stream = Path::new(STREAM_MODULE).exists();
    if !has_stream {
        eprintln!("this nginx has no stream module: that block is not compared");
    }
    for case in cases().iter().filter(|case| case.judged && (has_stream || !case.text.contains("stream {"))) {
        let (they_accept, their_lines) = theirs(directory.path(), &case.text);
        let (we_accept, our_lines) = ours(directory.path(), &case.text);
        let said = their_lines.iter().all(|line| {
            let number = line.split([' ', ':']).nth(1).unwrap_or("0");
            our_lines.iter().any(|our| {
                if number == "0" || case.text.contains('\n') {
                    without_line(our) == without_line(line)
                } else {
                    our == line
                }
            })
        });
        if they_accept != we_accept || !said {
            let _ = writeln!(
                differences,
                "{}\n  nginx:   {they_accept} {their_lines:?}\n  balanza: {we_accept} {our_lines:?}",
                case.shown
            );
        }
    }
    assert!(differences.is_empty(), "{differences}");
}

#[test]
fn answers_are_as_recorded() {
    let directory = directory();
    let mut answers = String::new();
    for case in cases() {
        let (accepted, lines) = ours(directory.path(), &case.text);
        let _ = writeln!(answers, "{}\n  {}", case.shown, if accepted { "accepted" } else { "refused" });
        for line in lines {
            let _ = writeln!(answers, "  {line}");
        }
    }
    insta::assert_snapshot!(answers);
}
