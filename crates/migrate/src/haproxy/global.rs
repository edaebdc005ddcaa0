//! `global`.

use super::bind;
use super::lines::{Line, Section};
use super::nginx::{Node, Tree};
use super::notes::Notes;

/// Lines that need no counterpart.
const NEEDLESS: [&str; 26] = [
    "daemon",
    "nbproc",
    "chroot",
    "cpu-map",
    "stats",
    "spread-checks",
    "ulimit-n",
    "maxpipes",
    "noepoll",
    "nosplice",
    "quiet",
    "zero-warning",
    "hard-stop-after",
    "external-check",
    "insecure-fork-wanted",
    "presetenv",
    "setenv",
    "unsetenv",
    "localpeer",
    "description",
    "node",
    "maxsslconn",
    "maxconnrate",
    "set-dumpable",
    "expose-experimental-directives",
    "numa-cpu-mapping",
];

/// Reads it.
pub fn read(section: &Section, tree: &mut Tree, notes: &mut Notes) {
    let mut threads = None;
    let mut most = None;
    for line in &section.lines {
        match line.word(0) {
            "nbthread" => threads = line.word(1).parse::<u64>().ok(),
            "maxconn" => most = line.word(1).parse::<u64>().ok(),
            "pidfile" => tree.main.push(Node::line(format!("pid {}", line.word(1)))),
            "user" | "group" | "uid" | "gid" => {
                notes.add(line, "write \"user NAME;\" if the worker needs this account")
            }
            "log" => log(line, tree, notes),
            "log-tag" | "log-send-hostname" => {}
            "ssl-default-bind-options" => {
                let least = line.words.iter().skip_while(|word| *word != "ssl-min-ver").nth(1);
                tree.http.extend(least.and_then(|least| bind::protocols(least)).map(Node::Line));
            }
            "ssl-default-bind-ciphers" => tree.http.push(Node::line(format!("ssl_ciphers {}", line.word(1)))),
            "ssl-default-bind-ciphersuites"
            | "ssl-default-server-options"
            | "ssl-default-server-ciphers"
            | "ssl-default-server-ciphersuites"
            | "ssl-dh-param-file"
            | "ssl-server-verify" => {}
            "ca-base" | "crt-base" => {
                notes.add(line, "write the files of \"crt\" and \"ca-file\" with their directory")
            }
            word if word.starts_with("tune.") || NEEDLESS.contains(&word) => {}
            _ => notes.add(line, "has no counterpart"),
        }
    }
    if let Some(threads) = threads {
        tree.main.push(Node::line(format!("worker_processes {threads}")));
    }
    // A request needs a connection to the client and one to the server; the limit is that of one thread.
    tree.connections = most.map(|most| most.saturating_mul(2).div_ceil(threads.unwrap_or(1)).clamp(16, 1_000_000));
}

/// `log ADDRESS [format …] FACILITY`: the access log.
fn log(line: &Line, tree: &mut Tree, notes: &mut Notes) {
    let target = match line.word(1) {
        "stdout" | "fd@1" => "/dev/stdout".to_string(),
        "stderr" | "fd@2" => "/dev/stderr".to_string(),
        text if text.contains(['@', '$']) => return notes.add(line, "write \"access_log syslog:server=ADDRESS;\""),
        text => {
            let server = if text.starts_with('/') { format!("unix:{text}") } else { text.to_string() };
            let facility = line.from(2).iter().find(|word| word.starts_with("local") || *word == "daemon");
            let facility = facility.map(|name| format!(",facility={name}")).unwrap_or_default();
            format!("syslog:server={server}{facility},tag=balanza")
        }
    };
    tree.http.push(Node::line(format!("access_log {target}")));
}
