//! What it does without serving.

use std::process::{Command, Output};

use crate::support::{Place, answering, free_port};

fn balanza(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_balanza")).args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn a_right_configuration_passes() {
    let place = Place::new(&answering(free_port(), "x"));
    let file = place.path("nginx.conf").display().to_string();
    for (arguments, expected) in [
        (
            &["-t"][..],
            format!(
                "balanza: the configuration file {file} syntax is ok\n\
                 balanza: configuration file {file} test is successful\n"
            ),
        ),
        (&["-tq"], String::new()),
        (&["-q", "-t"], String::new()),
    ] {
        let output = place.run(arguments);
        assert_eq!(output.status.code(), Some(0));
        assert_eq!(text(&output.stderr), expected);
        assert!(output.stdout.is_empty());
    }
    assert!(!place.path("test.pid").exists());
}

#[test]
fn a_port_in_use_does_not_fail_a_test() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let place = Place::new(&answering(taken.local_addr().unwrap().port(), "x"));
    assert!(place.run(&["-t"]).status.success());
    // An address that is not this machine's does.
    place.write("nginx.conf", "error_log error.log; events { } http { server { listen 192.0.2.1:8080; } }");
    let output = place.run(&["-t"]);
    assert_eq!(output.status.code(), Some(1));
    let first = "balanza: [emerg] bind() to 192.0.2.1:8080 failed (99: Cannot assign requested address) in /";
    assert!(text(&output.stderr).starts_with(first), "{}", text(&output.stderr));
}

#[test]
fn all_errors_are_reported_at_once() {
    let place = Place::new("events { }\nhttp {\n    bogus on;\n    server { listen 127.0.0.1:x; }\n}\n");
    let output = place.run(&["-t"]);
    assert_eq!(output.status.code(), Some(1));
    let file = place.path("nginx.conf").display().to_string();
    let lines: Vec<_> = text(&output.stderr).lines().collect();
    assert_eq!(lines.len(), 3, "{lines:#?}");
    assert_eq!(lines[0], format!("balanza: [emerg] unknown directive \"bogus\" in {file}:3"));
    assert!(lines[1].ends_with(&format!(" in {file}:4")), "{}", lines[1]);
    assert_eq!(lines[2], format!("balanza: configuration file {file} test failed"));
    // Starting fails in the same way.
    let output = place.run(&[]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(text(&output.stderr).lines().collect::<Vec<_>>(), lines[..2]);
}

#[test]
fn logs_that_cannot_be_opened_fail() {
    let place = Place::new("error_log /nonexistent/error.log; events { }");
    let output = place.run(&["-t"]);
    assert_eq!(output.status.code(), Some(1));
    let line = "balanza: [emerg] open() \"/nonexistent/error.log\" failed (2: No such file or directory)\n";
    assert!(text(&output.stderr).starts_with(line), "{}", text(&output.stderr));
}

#[test]
fn a_dump_has_every_file_in_the_order_of_reading() {
    let place = Place::new("error_log error.log;\npid test.pid;\ninclude z.conf;\ninclude a.conf;\nevents { }\n");
    place.write("z.conf", "worker_processes 2;\n");
    place.write("a.conf", "# nothing\n");
    let output = place.run(&["-T"]);
    assert!(output.status.success());
    let path = |name: &str| place.path(name).display().to_string();
    let expected = format!(
        "# configuration file {}:\n{}\n# configuration file {}:\nworker_processes 2;\n\n# configuration file {}:\n# nothing\n\n",
        path("nginx.conf"),
        place.read("nginx.conf"),
        path("z.conf"),
        path("a.conf")
    );
    assert_eq!(text(&output.stdout), expected);
}

#[test]
fn versions_have_the_lines_that_tools_look_for() {
    let output = balanza(&["-v"]);
    assert!(output.status.success());
    let version = format!("balanza version: balanza/{}\nnginx version: nginx/1.31.4\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(text(&output.stderr), version);
    let output = balanza(&["-V"]);
    assert!(output.status.success());
    let arguments = text(&output.stderr).strip_prefix(&version).expect("the version").to_string();
    assert!(arguments.starts_with("built with rustls "), "{arguments}");
    assert!(arguments.contains("\nTLS SNI support enabled\nconfigure arguments: --prefix="), "{arguments}");
    assert!(arguments.contains(" --with-http_ssl_module "), "{arguments}");
    assert!(arguments.contains(" --with-http_v2_module "), "{arguments}");
    for argument in [" --conf-path=", " --pid-path=", " --without-http_fastcgi_module", " --without-http_uwsgi_module"]
    {
        assert!(arguments.contains(argument), "{arguments}");
    }
    for argument in ["v3_module", "--without-http_proxy_module", "--without-http_upstream_hash_module"] {
        assert!(!arguments.contains(argument), "{arguments}");
    }
}

#[test]
fn help_goes_to_standard_output() {
    for flag in ["-h", "-?", "--help", "help"] {
        let output = balanza(&[flag]);
        assert!(output.status.success());
        let help = text(&output.stdout);
        assert!(help.contains("\n  -t, -T ") && help.contains("\nConfiguration  ") && !help.contains('{'), "{help}");
        // A screen, whose last line is for the prompt.
        assert!(help.lines().count() < 24, "{help}");
    }
    let output = balanza(&["help", "--all"]);
    assert!(output.status.success());
    let help = text(&output.stdout);
    for section in ["SYNOPSIS", "OPTIONS", "SIGNALS", "FILES", "EXIT STATUS", "EXAMPLES"] {
        assert!(help.contains(&format!("\n{section}\n")), "{section}");
    }
    assert!(!help.contains('{'), "a placeholder is left");
    let output = balanza(&["help", "target"]);
    assert!(output.status.success() && text(&output.stdout).contains("--delay"), "{}", text(&output.stdout));
}

#[test]
fn wrong_command_lines_fail() {
    for (arguments, complaint) in [
        (&["-x"][..], "balanza: invalid option: \"x\"\n"),
        (&["-s", "hup"], "balanza: invalid option: \"-s hup\"\n"),
        (&["-c"], "balanza: option \"-c\" requires file name\n"),
        (&["-t", "file"], "balanza: invalid option: \"file\"\n"),
    ] {
        let output = balanza(arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        assert_eq!(text(&output.stderr), complaint);
    }
    // A command's own arguments are another matter.
    assert_eq!(balanza(&["target", "--frobnicate"]).status.code(), Some(2));
}

#[test]
fn commands_that_are_not_there_fail_with_a_hint() {
    for line in [&["no-such-command"][..], &["help", "no-such-command"]] {
        let output = balanza(line);
        assert_eq!(output.status.code(), Some(1));
        let message = text(&output.stderr);
        assert!(message.starts_with("balanza: there is no command \"no-such-command\"; there are: demo, target, "));
        assert!(message.ends_with("\"balanza help\" tells more\n"), "{message}");
    }
    let place = Place::new("events { }");
    let file = place.path("nginx.conf").display().to_string();
    assert!(text(&balanza(&[&file]).stderr).contains(&format!("balanza -c {file}\n")));
}

#[test]
fn quiet_prints_errors_only() {
    let place = Place::new(
        "error_log error.log;\npid test.pid;\nevents { }\nhttp { server { location /a { alias /srv/a/; } location /b { alias /srv/b/; } } }\n",
    );
    assert_eq!(text(&place.run(&["-t"]).stderr).matches("[warn]").count(), 2);
    for line in [&["-tq"][..], &["-q", "-T"]] {
        let output = place.run(line);
        assert!(output.status.success());
        assert_eq!(text(&output.stderr), "");
    }
    place.write("nginx.conf", "events { }\nhttp { server { location /a { alias /srv/a/; } } bogus on; }\n");
    let output = place.run(&["-tq"]);
    assert_eq!(output.status.code(), Some(1));
    let message = text(&output.stderr);
    assert!(message.contains("[emerg] unknown directive \"bogus\"") && !message.contains("[warn]"), "{message}");
}

#[test]
fn a_test_leaves_no_logs_behind() {
    let place = Place::new(&format!(
        "error_log e.log;\npid test.pid;\nevents {{ }}\nhttp {{ access_log a.log; server {{ listen 127.0.0.1:{}; }} }}\n",
        free_port()
    ));
    place.write("a.log", "");
    let output = place.run(&["-t"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(place.path("a.log").exists(), "a log that was there before");
    assert!(!place.path("e.log").exists() && !place.path("test.pid").exists());
}

#[test]
fn a_prefix_without_its_file_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let prefix = directory.path().display().to_string();
    let line = format!("balanza: [emerg] open() \"{prefix}/conf/nginx.conf\" failed (2: No such file or directory)\n");
    for arguments in [&["-t"][..], &["-s", "reload"], &[]] {
        let output = balanza(&[&["-p", &prefix], arguments].concat());
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        assert!(text(&output.stderr).starts_with(&line), "{arguments:?}: {}", text(&output.stderr));
    }
}

#[test]
fn signals_need_a_process() {
    let place = Place::new(&answering(free_port(), "x"));
    let file = place.path("test.pid").display().to_string();
    let complaint = |expected: String| {
        let output = place.run(&["-s", "reload"]);
        assert_eq!(output.status.code(), Some(1));
        assert_eq!(text(&output.stderr), expected);
    };
    let nothing =
        "balanza: [error] no process to signal: Balanza does not run with this configuration and this prefix\n";
    complaint(format!("balanza: [error] open() \"{file}\" failed (2: No such file or directory)\n{nothing}"));
    place.write("test.pid", "\n");
    complaint(format!("balanza: [error] invalid PID number \"\" in \"{file}\"\n"));
    // The largest number that a kernel with default settings for 64 bits gives to no process.
    place.write("test.pid", "4194305\n");
    complaint("balanza: [alert] kill(4194305, 1) failed (3: No such process)\n".to_string());
}

#[test]
fn algorithms_are_listed_and_explained() {
    let said = |arguments: &[&str]| {
        let output = balanza(arguments);
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
        text(&output.stdout).to_string()
    };
    insta::assert_snapshot!("list", said(&["algorithms"]));
    insta::assert_snapshot!("two_choices", said(&["algorithms", "p2c"]));
    insta::assert_snapshot!("hash", said(&["algorithms", "hash"]));
    insta::assert_snapshot!("two_choices_json", said(&["algorithms", "two_choices", "--json"]));
    let advice = said(&["algorithms", "--advise"]);
    assert!(advice.contains("\nleast_conn ") && advice.contains("balanza simulate hung-server"), "{advice}");
    let advice: serde_json::Value = serde_json::from_str(&said(&["algorithms", "--advise", "--json"])).unwrap();
    assert!(advice[0]["scenario"] == "equal-servers" && advice[0]["algorithms"][0]["algorithm"] == "round_robin");
    let all: serde_json::Value = serde_json::from_str(&said(&["algorithms", "--json"])).unwrap();
    assert!(all.as_array().unwrap().iter().any(|entry| entry["name"] == "ip_hash" && entry["nginx"] == "ip_hash"));
    let complaint = |name: &str| {
        let output = balanza(&["algorithms", name]);
        assert!(output.status.code() == Some(1) && output.stdout.is_empty(), "{output:?}");
        text(&output.stderr).to_string()
    };
    assert_eq!(complaint("ip-hash"), "balanza: unknown balancing algorithm \"ip-hash\"; did you mean `ip_hash`?\n");
    assert!(
        complaint("nonsense")
            .starts_with("balanza: unknown balancing algorithm \"nonsense\"; there are: round_robin, ")
    );
}

#[test]
fn ready_scenarios_are_listed_printed_and_run() {
    let list = balanza(&["simulate", "--list"]);
    assert!(list.status.success() && text(&list.stdout).contains("\none-slow-server  "), "{}", text(&list.stdout));

    let printed = balanza(&["simulate", "bhat-2021", "--print"]);
    assert!(text(&printed.stdout).starts_with("name = \"Three servers instead of one"));
    let place = Place::new("");
    place.write("mine.toml", text(&printed.stdout));
    let file = place.path("mine.toml").display().to_string();
    let json = ["--json", "--replications", "2"];
    let numbers = |name: &str| {
        let output = balanza(&[&["simulate", name][..], &json].concat());
        let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        value["points"][0]["runs"][0]["mean_time_in_system"].as_f64().unwrap()
    };
    assert_eq!(numbers("bhat-2021"), numbers(&file));

    let unknown = balanza(&["simulate", "one-slow-serve"]);
    assert_eq!(unknown.status.code(), Some(1));
    assert!(text(&unknown.stderr).contains("did you mean one-slow-server?"), "{}", text(&unknown.stderr));
    let mixed = balanza(&["simulate", "bhat-2021", "--servers", "5"]);
    assert!(text(&mixed.stderr).contains("--servers does not go with a scenario"));
}

#[test]
fn simulations_write_reports() {
    let place = Place::new("");
    for (name, arguments) in [
        ("flags", &["--servers", "5", "--load", "0.5", "--requests", "2000", "--replications", "2"][..]),
        ("scenario", &["bhat-2021-one", "--replications", "2"]),
        ("bins", &["bins", "--requests", "1000", "--replications", "2"]),
    ] {
        let directory = place.path(&format!("reports/{name}"));
        let output = balanza(&[&["simulate"], arguments, &["--out", directory.to_str().unwrap()]].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert!(text(&output.stderr).contains("report.html"));
        let html = std::fs::read_to_string(directory.join("report.html")).unwrap();
        assert!(html.starts_with("<!DOCTYPE html>") && html.contains("<svg") && !html.contains("NaN"), "{name}");
        assert!(std::fs::read_to_string(directory.join("results.csv")).unwrap().starts_with("algorithm,servers,"));
        let json = std::fs::read(directory.join("results.json")).unwrap();
        serde_json::from_slice::<serde_json::Value>(&json).unwrap();
    }
    // Before anything is simulated.
    let taken = place.path("taken");
    place.write("taken", "a file");
    let output = balanza(&["simulate", "--servers", "16000000", "--out", taken.to_str().unwrap()]);
    assert!(text(&output.stderr).starts_with(&format!("balanza: --out {}", taken.display())));
}
