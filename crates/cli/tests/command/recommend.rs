//! `balanza recommend`.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn recommend(directory: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_balanza"))
        .arg("recommend")
        .args(arguments)
        .current_dir(directory)
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// A directory with the sample, and a configuration that wrote it.
fn directory() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let sample = recommend(directory.path(), &["--sample"]);
    assert!(sample.status.success());
    std::fs::write(directory.path().join("access.log"), &sample.stdout).unwrap();
    let format = r#"'$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent "$http_referer" "$http_user_agent" '
        '$msec $request_time "$upstream_addr" "$upstream_response_time" "$upstream_header_time" "$upstream_status"'"#;
    let conf = format!(
        "http {{\n    log_format plain '$remote_addr $status';\n    log_format servers {format};\n    perl_modules x;\n    upstream \
         other {{\n        server 10.9.9.9:80;\n    }}\n    upstream api {{\n        server 10.0.0.1:8080;\n        server \
         10.0.0.2:8080;\n        server 10.0.0.3:8080;\n    }}\n}}\n"
    );
    std::fs::write(directory.path().join("nginx.conf"), conf).unwrap();
    directory
}

// With fewer, the intervals are too wide for an answer.
const SHORT: [&str; 2] = ["--replications", "8"];

#[test]
fn an_answer_with_its_diff_and_its_report() {
    let directory = directory();
    let arguments = [&["-c", "nginx.conf", "access.log", "--worth", "1", "--out", "report"], &SHORT[..]].concat();
    let output = recommend(directory.path(), &arguments);
    let (said, wrong) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{wrong}");
    for part in ["Model check", "Recommended: ", "What would change this:", "50 % more load", "10.0.0.3:8080", "@@ "] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(said.contains("\n--- ") && said.contains("nginx.conf"), "{said}");
    assert!(!said.contains("No configuration was given"), "{said}");
    // A progress bar is for terminals.
    assert!(wrong.starts_with("balanza: the report is ") && wrong.lines().count() == 1, "{wrong}");
    let page = std::fs::read_to_string(directory.path().join("report/report.html")).unwrap();
    assert!(page.contains("<svg") && page.contains("Model and log") && page.contains("@@ "));
    let json: Value =
        serde_json::from_str(&std::fs::read_to_string(directory.path().join("report/results.json")).unwrap()).unwrap();
    assert!(json["verdict"]["answer"]["change"].is_u64(), "{}", json["verdict"]);
    let slow = json["servers"].as_array().unwrap().iter().find(|server| server["name"] == "10.0.0.3:8080").unwrap();
    assert_eq!(slow["parallel"], 4, "{slow}");
}

#[test]
fn what_cannot_be_answered_is_refused() {
    let directory = directory();
    let failure = |arguments: &[&str]| {
        let output = recommend(directory.path(), arguments);
        assert!(!output.status.success() && output.stdout.is_empty());
        text(&output.stderr).to_string()
    };
    std::fs::write(
        directory.path().join("combined.log"),
        "1.2.3.4 - - [14/Nov/2023:22:13:20 +0000] \"GET / HTTP/1.1\" 200 5 \"-\" \"x\"\n",
    )
    .unwrap();
    let said = failure(&["combined.log"]);
    assert!(said.contains("log_format upstreams '$remote_addr"), "{said}");
    let said = failure(&["--format", "$remote_addr $status", "combined.log"]);
    assert!(said.contains("lacks $msec") && said.contains("$upstream_addr"), "{said}");
    let said = failure(&["-c", "nginx.conf", "--upstream", "apo", "access.log"]);
    assert!(said.contains("no upstream \"apo\": did you mean api?"), "{said}");
    assert!(failure(&["missing.log"]).contains("missing.log: No such file"));
    assert!(failure(&["--goal", "servers", "access.log"]).contains("--target"));
    assert!(failure(&["--current", "least_con", "access.log"]).contains("least_con"));
    let text = std::fs::read_to_string(directory.path().join("access.log")).unwrap();
    let few: String = text.lines().take(300).map(|line| format!("{line}\n")).collect();
    std::fs::write(directory.path().join("few.log"), few).unwrap();
    assert!(failure(&["few.log"]).contains("300 requests are too few"));
}
