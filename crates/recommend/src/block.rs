//! An `upstream` block of nginx.conf: what it says, and the change that an answer is.

use std::ops::Range;

use balanza_balancing::registry::{self, Key};

use crate::candidates::Candidate;
use crate::log::KeyOf;
use crate::setting::{Current, Server};

/// A directive with its place in the file's text.
#[derive(Clone, Debug)]
pub struct Directive {
    /// The name and the arguments.
    pub words: Vec<String>,
    /// From the name to the last argument.
    pub place: Range<usize>,
}

/// An `upstream` block.
#[derive(Clone, Debug)]
pub struct Block {
    /// Its name.
    pub name: String,
    /// The file's name, for the diff.
    pub file: String,
    /// The whole text of the file.
    pub text: String,
    /// From `upstream` to the name.
    pub head: Range<usize>,
    /// What stands in it.
    pub directives: Vec<Directive>,
}

/// How nginx.conf spells a method in more than one word, and what the registry calls it.
const SPELLINGS: [(&str, &str); 7] = [
    ("random two least_time=header", "two_choices by=header"),
    ("random two least_time=last_byte", "two_choices by=last_byte"),
    ("random two least_conn", "two_choices"),
    ("random two", "two_choices"),
    ("least_time header", "least_time by=header"),
    ("least_time last_byte", "least_time by=last_byte"),
    ("balance", ""),
];

/// The method of a directive of an upstream, as after `balance`, and its key; `None` if it is no method.
fn method(words: &[String]) -> Option<(String, Option<String>)> {
    let line = words.join(" ");
    let (text, rest) =
        match SPELLINGS.iter().find(|(spelled, _)| line == *spelled || line.starts_with(&format!("{spelled} "))) {
            Some((spelled, known)) => ((*known).to_string(), line[spelled.len()..].trim().to_string()),
            None => (words[0].clone(), words[1..].join(" ")),
        };
    let text = format!("{text} {rest}").trim().to_string();
    let name = text.split_whitespace().next()?;
    let entry = registry::find(name)?;
    let is_spelled =
        words[0] == *"balance" || entry.nginx.is_some_and(|nginx| nginx.split(' ').next() == Some(&words[0]));
    if !is_spelled && !words[0].eq(entry.name) {
        return None;
    }
    let mut key = None;
    let mut kept: Vec<&str> = Vec::new();
    for (index, word) in text.split_whitespace().enumerate() {
        if let Some(value) = word.strip_prefix("key=") {
            key = Some(value.to_string());
        } else if index == 1 && entry.key == Key::Any && word.contains('$') {
            key = Some(word.to_string());
        } else {
            kept.push(word);
        }
    }
    Some((kept.join(" "), key))
}

impl Block {
    fn method(&self) -> Option<(&Directive, String, Option<String>)> {
        self.directives.iter().find_map(|directive| {
            let (text, key) = method(&directive.words)?;
            Some((directive, text, key))
        })
    }

    fn servers(&self) -> impl Iterator<Item = (&Directive, Server)> {
        self.directives.iter().filter(|directive| directive.words[0] == "server" && directive.words.len() > 1).map(
            |directive| {
                let mut server = Server::new(&address(&directive.words[1]));
                for word in &directive.words[2..] {
                    let Some((name, value)) = word.split_once('=') else {
                        server.backup |= word == "backup";
                        continue;
                    };
                    let number = || value.parse::<u32>().ok();
                    match name {
                        "weight" => server.weight = number().unwrap_or(1).max(1),
                        "max_conns" => server.max_conns = number().unwrap_or(0),
                        "max_fails" => server.max_fails = number().unwrap_or(1),
                        "fail_timeout" => {
                            let seconds = value.trim_end_matches('s').parse().ok();
                            server.fail_timeout = seconds.unwrap_or(10.0);
                        }
                        _ => {}
                    }
                }
                (directive, server)
            },
        )
    }

    /// What is in operation.
    pub fn current(&self) -> Current {
        let algorithm = self.method().map(|(_, text, _)| text);
        let default = Current::default();
        Current {
            algorithm: algorithm.unwrap_or(default.algorithm),
            assumed: false,
            servers: self.servers().map(|(_, server)| server).collect(),
        }
    }

    /// What requests are balanced by.
    pub fn key(&self) -> KeyOf {
        match self.method() {
            Some((_, _, Some(key))) if key.contains("uri") => KeyOf::Uri,
            _ => KeyOf::Client,
        }
    }

    /// The block's text with a candidate in place of what is there.
    fn changed(&self, candidate: &Candidate, servers: &[String]) -> String {
        let current = self.method();
        let line = spelled(&candidate.algorithm, current.as_ref().and_then(|(_, _, key)| key.as_deref()));
        let mut edits: Vec<(Range<usize>, String)> = Vec::new();
        match (&current, line) {
            (Some((directive, text, _)), Some(line)) if *text != candidate.algorithm => {
                edits.push((directive.place.clone(), line))
            }
            // NGINX's default has no directive.
            (Some((directive, text, _)), None) if *text != candidate.algorithm => {
                let end = directive.place.end + self.text[directive.place.end..].find(';').map_or(0, |at| at + 1);
                edits.push((self.whole_lines(directive.place.start..end), String::new()));
            }
            (None, Some(line)) => {
                if let Some(first) = self.directives.first() {
                    let at = first.place.start;
                    edits.push((at..at, format!("{line};\n{}", self.indent(at))));
                }
            }
            _ => {}
        }
        for (directive, server) in self.servers() {
            let Some(weight) = servers.iter().position(|name| *name == server.address).map(|i| candidate.weights[i])
            else {
                continue;
            };
            if weight == server.weight {
                continue;
            }
            let text = &self.text[directive.place.clone()];
            let edit = match text.find(" weight=") {
                Some(at) => {
                    let from = directive.place.start + at;
                    let length = text[at + 1..].find(char::is_whitespace).map_or(text.len() - at, |end| end + 1);
                    (from..from + length, format!(" weight={weight}"))
                }
                None => (directive.place.end..directive.place.end, format!(" weight={weight}")),
            };
            edits.push(edit);
        }
        edits.sort_by_key(|(place, _)| std::cmp::Reverse(place.start));
        let mut text = self.text.clone();
        for (place, with) in edits {
            text.replace_range(place, &with);
        }
        text
    }

    fn indent(&self, at: usize) -> String {
        let line = self.text[..at].rfind('\n').map_or(0, |newline| newline + 1);
        self.text[line..at].chars().take_while(|c| c.is_whitespace()).collect()
    }

    /// The place with the rest of its lines, if nothing else stands there.
    fn whole_lines(&self, place: Range<usize>) -> Range<usize> {
        let start = self.text[..place.start].rfind('\n').map_or(0, |newline| newline + 1);
        let end = self.text[place.end..].find('\n').map_or(self.text.len(), |newline| place.end + newline + 1);
        let blank = |text: &str| text.trim().is_empty();
        if blank(&self.text[start..place.start]) && blank(&self.text[place.end..end]) { start..end } else { place }
    }

    /// The change as a unified diff, with three lines around it; empty if nothing changes.
    pub fn diff(&self, candidate: &Candidate, servers: &[String]) -> String {
        let after = self.changed(candidate, servers);
        unified(&self.file, &self.text, &after)
    }

    /// Whether a server of the log is one of the block's.
    pub fn has(&self, address: &str) -> bool {
        self.servers().any(|(_, server)| server.address == address)
    }

    /// The addresses of its servers.
    pub fn addresses(&self) -> Vec<String> {
        self.servers().map(|(_, server)| server.address).collect()
    }
}

/// As the log has it: with a port.
fn address(text: &str) -> String {
    let has_port = match text.rfind(':') {
        Some(colon) => !text[colon..].contains(']'),
        None => false,
    };
    if has_port || text.starts_with("unix:") { text.to_string() } else { format!("{text}:80") }
}

/// The directive of an algorithm in nginx.conf, without its semicolon; `None` for NGINX's default.
pub fn spelled(algorithm: &str, key: Option<&str>) -> Option<String> {
    let entry = registry::find(algorithm.split_whitespace().next()?)?;
    let alone = !algorithm.contains(' ');
    match entry.nginx {
        Some("") if alone => None,
        // Written without arguments in NGINX, too.
        Some(nginx) if alone && nginx == entry.name => Some(nginx.to_string()),
        _ => {
            let key = key.filter(|_| entry.key == Key::Any).map(|key| format!(" key={key}")).unwrap_or_default();
            Some(format!("balance {algorithm}{key}"))
        }
    }
}

/// A diff of one hunk: what is equal in front and behind is cut off, three lines of it are shown.
fn unified(file: &str, before: &str, after: &str) -> String {
    if before == after {
        return String::new();
    }
    let (old, new): (Vec<&str>, Vec<&str>) = (before.lines().collect(), after.lines().collect());
    let front = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
    let rest = old.len().min(new.len()) - front;
    let back = old.iter().rev().zip(new.iter().rev()).take(rest).take_while(|(a, b)| a == b).count();
    let from = front.saturating_sub(3);
    let tail = back.min(3);
    let (old_end, new_end) = (old.len() - back, new.len() - back);
    let mut text = format!(
        "--- {file}\n+++ {file}\n@@ -{},{} +{},{} @@\n",
        from + 1,
        old_end + tail - from,
        from + 1,
        new_end + tail - from
    );
    let mut add = |sign: char, lines: &[&str]| lines.iter().for_each(|line| text.push_str(&format!("{sign}{line}\n")));
    add(' ', &old[from..front]);
    add('-', &old[front..old_end]);
    add('+', &new[front..new_end]);
    add(' ', &old[old_end..old_end + tail]);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(text: &str) -> Block {
        let mut directives = Vec::new();
        let open = text.find('{').unwrap();
        let mut at = open + 1;
        while let Some(end) = text[at..].find(';').map(|end| at + end) {
            let start = at + text[at..end].len() - text[at..end].trim_start().len();
            let words = text[start..end].split_whitespace().map(String::from).collect();
            directives.push(Directive { words, place: start..end });
            at = end + 1;
        }
        let name = "api".to_string();
        Block { name, file: "nginx.conf".into(), text: text.into(), head: 0..open - 1, directives }
    }

    fn candidate(algorithm: &str, weights: &[u32]) -> Candidate {
        Candidate { algorithm: algorithm.into(), weights: weights.into(), fitted: false }
    }

    #[test]
    fn what_a_block_says() {
        let said = block("upstream api {\n    random two;\n    server 10.0.0.1 weight=3 max_fails=0;\n    server [::1]:81 backup;\n}\n").current();
        assert_eq!((said.algorithm.as_str(), said.assumed), ("two_choices", false));
        let first = Server { weight: 3, max_fails: 0, ..Server::new("10.0.0.1:80") };
        assert_eq!(said.servers, [first, Server { backup: true, ..Server::new("[::1]:81") }]);
        for (line, algorithm, key) in [
            ("least_conn", "least_conn", KeyOf::Client),
            ("hash $request_uri consistent", "hash consistent", KeyOf::Uri),
            ("balance maglev key=$remote_addr table=65537", "maglev table=65537", KeyOf::Client),
            ("ip_hash", "ip_hash", KeyOf::Client),
            ("least_time header inflight", "least_time by=header inflight", KeyOf::Client),
            ("keepalive 8", "round_robin", KeyOf::Client),
        ] {
            let block = block(&format!("upstream api {{\n    {line};\n    server a:80;\n}}\n"));
            assert_eq!((block.current().algorithm.as_str(), block.key()), (algorithm, key), "{line}");
        }
    }

    #[test]
    fn a_change_is_a_diff() {
        let names = ["10.0.0.1:80".to_string(), "10.0.0.2:80".to_string()];
        let plain = block("upstream api {\n    server 10.0.0.1:80;\n    server 10.0.0.2:80 weight=2;\n}\n");
        assert_eq!(
            plain.diff(&candidate("least_conn", &[1, 2]), &names),
            "--- nginx.conf\n+++ nginx.conf\n@@ -1,4 +1,5 @@\n upstream api {\n+    least_conn;\n     server 10.0.0.1:80;\n     \
             server 10.0.0.2:80 weight=2;\n }\n"
        );
        assert_eq!(
            plain.diff(&candidate("round_robin", &[3, 1]), &names),
            "--- nginx.conf\n+++ nginx.conf\n@@ -1,4 +1,4 @@\n upstream api {\n-    server 10.0.0.1:80;\n-    server 10.0.0.2:80 \
             weight=2;\n+    server 10.0.0.1:80 weight=3;\n+    server 10.0.0.2:80 weight=1;\n }\n"
        );
        assert_eq!(plain.diff(&candidate("round_robin", &[1, 2]), &names), "");
        let other = block("upstream api {\n    least_conn;\n    server 10.0.0.1:80;\n}\n");
        assert!(other.diff(&candidate("round_robin", &[1]), &names).contains("\n-    least_conn;\n     server"));
        let three = other.diff(&candidate("two_choices choices=3", &[1]), &names);
        assert!(three.contains("-    least_conn;\n+    balance two_choices choices=3;\n"), "{three}");
    }
}
