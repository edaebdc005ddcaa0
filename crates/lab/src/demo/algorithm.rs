//! How the demo's user names an algorithm.

use std::fmt::{self, Display};
use std::path::Path;
use std::str::FromStr;

use balanza_balancing::registry::{self, Entry, Host, PROBE, PROGRAM, Share};

use super::server::CONCURRENCY;
use crate::target::{LOAD_FIELD, LOAD_PATH};

/// What `balance external` runs in the demo.
pub(super) const CHOOSER: &str = "#!/bin/sh
# Chooses the server with the fewest requests in flight. One line for each request comes in:
#   pick ID KEY INDEX:WEIGHT:IN_FLIGHT:NAME ...
# and the line \"ID INDEX\" is the answer.
while read -r _ id _ servers; do
    best='' least=''
    for server in $servers; do
        in_flight=${server#*:*:}
        in_flight=${in_flight%%:*}
        if [ -z \"$best\" ] || [ \"$in_flight\" -lt \"$least\" ]; then
            best=${server%%:*} least=$in_flight
        fi
    done
    echo \"$id $best\"
done
";

/// A balancing algorithm, as the user named it: a name of the registry with parameters (`bounded_hash $uri
/// balance_factor=150`), or a directive of nginx.conf without the semicolon (`hash $request_uri consistent`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Algorithm(String);

impl FromStr for Algorithm {
    type Err = String;

    /// Takes any directive of one line: whether it exists, the balancer says best, with the place in the file.
    fn from_str(text: &str) -> Result<Self, String> {
        let named = text.trim().trim_end_matches(';').trim_end();
        if named.is_empty() {
            return Err("an algorithm is missing, as in least_conn".into());
        }
        if named.contains(['{', '}', ';', '#', '\n', '\r']) {
            return Err("one algorithm is meant, as in 'hash $request_uri consistent'".into());
        }
        Ok(Self(named.to_owned()))
    }
}

impl Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Algorithm {
    /// The algorithm of the registry, if it is one.
    pub(super) fn entry(&self) -> Option<&'static Entry> {
        registry::find(self.0.split_ascii_whitespace().find(|word| *word != "balance")?)
    }

    /// The directives of the `upstream` block, a line each without the semicolon; none for round robin. `directory` has
    /// the program of `external`.
    pub(super) fn directives(&self, directory: &Path) -> Vec<String> {
        let Some(entry) = self.entry() else { return vec![self.0.clone()] };
        let mut words: Vec<String> = self.0.split_ascii_whitespace().map(str::to_owned).collect();
        if words.len() == 1 && entry.nginx == Some("") {
            return Vec::new();
        }
        if !is_nginx(entry, &words) {
            complete(entry, &mut words, directory);
        }
        let mut directives = vec![words.join(" ")];
        if entry.host == Host::Reports {
            directives.push(format!("load_report header {LOAD_FIELD}"));
        }
        directives
    }

    /// What each `server` needs besides its address.
    pub(super) fn parameters(&self) -> String {
        match self.entry() {
            // It leaves a server only when that is full.
            Some(entry) if entry.share == Share::Order => format!(" max_conns={CONCURRENCY}"),
            _ => String::new(),
        }
    }
}

/// Whether the words are a whole directive of NGINX's: `random two least_conn`, but not `least_time` or `hash key=$uri`.
fn is_nginx(entry: &Entry, words: &[String]) -> bool {
    let mut spelling = entry.nginx.unwrap_or_default().split_ascii_whitespace();
    if spelling.next() != Some(words[0].as_str()) {
        return false;
    }
    match words.get(1) {
        None => spelling.next().is_none(),
        // Parameters of the registry have a "=", what NGINX expects first has none, unless it is a key.
        Some(word) => word.starts_with(['$', '"']) || !word.contains('='),
    }
}

/// Brings the words to `balance NAME key=… parameter=…` and adds what the algorithm cannot do without.
fn complete(entry: &Entry, words: &mut Vec<String>, directory: &Path) {
    if words[0] != "balance" {
        words.insert(0, "balance".into());
    }
    for word in &mut words[2..] {
        if word.starts_with('$') {
            word.insert_str(0, "key=");
        }
    }
    let mut need = |parameter: &str, value: String| {
        let given = |word: &String| word.trim_start_matches('"').split('=').next() == Some(parameter);
        if !words.iter().any(given) {
            words.push(value);
        }
    };
    if entry.needs_key {
        need("key", "key=$request_uri".into());
    }
    match entry.host {
        Host::Probes => need(PROBE, format!("{PROBE}={LOAD_PATH}")),
        Host::Program => need(PROGRAM, format!("\"{PROGRAM}=sh {}/chooser.sh\" timeout=50ms", directory.display())),
        Host::Any | Host::Idleness | Host::Reports => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directives(text: &str) -> Vec<String> {
        text.parse::<Algorithm>().unwrap().directives(Path::new("/demo"))
    }

    #[test]
    fn names_become_balance() {
        for (named, directive) in [
            ("peak_ewma", "balance peak_ewma"),
            ("least_time", "balance least_time"),
            ("least_time inflight=on", "balance least_time inflight=on"),
            ("hash", "balance hash key=$request_uri"),
            ("hash consistent=on", "balance hash consistent=on key=$request_uri"),
            ("bounded_hash $uri balance_factor=150", "balance bounded_hash key=$uri balance_factor=150"),
            ("maglev key=$uri", "balance maglev key=$uri"),
            ("prequal", "balance prequal probe=/balanza-load"),
            ("balance prequal probe=/x;", "balance prequal probe=/x"),
            ("external", "balance external \"program=sh /demo/chooser.sh\" timeout=50ms"),
            ("external program=/bin/cat", "balance external program=/bin/cat"),
        ] {
            assert_eq!(directives(named), [directive], "{named}");
        }
        assert_eq!(directives("least_load"), ["balance least_load", "load_report header x-load"]);
        assert_eq!("first".parse::<Algorithm>().unwrap().parameters(), " max_conns=16");
    }

    #[test]
    fn directives_of_nginx_stay_as_they_are() {
        for text in [
            "least_conn",
            "ip_hash",
            "random",
            "random two least_time=header",
            "hash $request_uri consistent",
            "hash $a=b",
            "least_time last_byte inflight",
            "no_such_algorithm",
        ] {
            assert_eq!(directives(text), [text]);
        }
        assert!(directives(" round_robin; ").is_empty());
    }

    #[test]
    fn more_than_one_directive_is_refused() {
        for text in ["", ";", "least_conn; server 1.2.3.4", "ip_hash }", "random # two", "a\nb"] {
            assert!(text.parse::<Algorithm>().is_err(), "{text}");
        }
    }

    /// The program of `external` answers by its own rule.
    #[test]
    fn the_chooser_takes_the_least_busy() {
        let question = "pick 7 - 0:1.0000:5:a:1 1:0.5000:2:b:2 2:1.0000:3:c:3\npick 8 k 2:1.0000:0:c:3\n";
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("chooser.sh");
        std::fs::write(&path, CHOOSER).unwrap();
        std::fs::write(directory.path().join("questions"), question).unwrap();
        let questions = std::fs::File::open(directory.path().join("questions")).unwrap();
        let done = std::process::Command::new("sh").arg(path).stdin(questions).output().unwrap();
        assert_eq!(String::from_utf8(done.stdout).unwrap(), "7 1\n8 2\n");
    }
}
