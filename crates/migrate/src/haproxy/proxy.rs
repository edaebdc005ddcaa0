//! A section that takes requests, sends them to servers, or both.

use std::collections::BTreeMap;

use super::acl::{self, Acl};
use super::condition::{self, Condition, Variables};
use super::ignored;
use super::lines::{Line, Section};
use super::nginx;
use super::notes::Notes;
use super::rules::{self, Rule};
use super::time;

/// The kind of a section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Frontend,
    Backend,
    Listen,
}

/// What is understood of the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Tcp,
    Http,
}

/// A page with statistics.
#[derive(Debug, Clone, Default)]
pub struct Stats {
    /// The first line about it.
    pub line: Line,
    pub uri: Option<String>,
    /// All users who see the page may change something.
    pub admin: bool,
    pub auth: bool,
    /// Rules that are not carried over say who may see the page.
    pub guarded: bool,
}

/// A check of servers.
#[derive(Debug, Clone, Default)]
pub struct Check {
    /// `option httpchk`.
    pub http: bool,
    pub uri: Option<String>,
    /// The statuses that are right.
    pub status: Option<String>,
    /// A text in the body, as an expression.
    pub body: Option<String>,
}

/// A section with its defaults.
#[derive(Debug, Clone)]
pub struct Proxy {
    pub kind: Kind,
    pub name: String,
    /// Its name in nginx.conf, which no other section has.
    pub own: String,
    pub head: Line,
    pub mode: Mode,
    pub binds: Vec<Line>,
    pub acls: Vec<Acl>,
    pub rules: Vec<(Line, Rule, Option<Condition>)>,
    pub use_backends: Vec<(Line, String, Option<Condition>)>,
    pub default_backend: Option<(Line, String)>,
    /// `balance`, `hash-type` and `hash-balance-factor`.
    pub balance: Option<Line>,
    pub hash_type: Option<Line>,
    pub hash_factor: Option<String>,
    pub default_server: Vec<String>,
    pub servers: Vec<Line>,
    /// `ssl-server-verify none` of `global`: without `verify` certificates of servers are not verified.
    pub trusts_servers: bool,
    pub cookie: Option<Line>,
    pub check: Check,
    /// By name, in milliseconds.
    pub timeouts: BTreeMap<String, u64>,
    pub forwarded_for: Option<Line>,
    pub stats: Option<Stats>,
    pub metrics: Option<String>,
    pub compression: Option<Vec<String>>,
    pub retries: Option<u64>,
    pub stick: Option<Line>,
    pub monitor: Option<String>,
}

impl Proxy {
    /// Reads the lines of a section, those of its defaults first.
    pub fn read<'a>(kind: Kind, section: &Section, lines: impl Iterator<Item = &'a Line>, notes: &mut Notes) -> Proxy {
        let mut proxy = Proxy {
            kind,
            name: section.head.word(1).to_string(),
            own: nginx::name(section.head.word(1)),
            head: section.head.clone(),
            mode: Mode::Tcp,
            binds: Vec::new(),
            acls: Vec::new(),
            rules: Vec::new(),
            use_backends: Vec::new(),
            default_backend: None,
            balance: None,
            hash_type: None,
            hash_factor: None,
            default_server: Vec::new(),
            servers: Vec::new(),
            trusts_servers: false,
            cookie: None,
            check: Check::default(),
            timeouts: BTreeMap::new(),
            forwarded_for: None,
            stats: None,
            metrics: None,
            compression: None,
            retries: None,
            stick: None,
            monitor: None,
        };
        // The name of "listen stats 0.0.0.0:8080" of old versions.
        if kind != Kind::Backend && section.head.word(2).contains(':') {
            let text = format!("bind {}", section.head.word(2));
            let words = vec!["bind".to_string(), section.head.word(2).to_string()];
            proxy.binds.push(Line { number: section.head.number, text, words });
        }
        for line in lines {
            proxy.line(line, notes);
        }
        if kind == Kind::Backend {
            for line in section.lines.iter().filter(|line| ["stats", "monitor-uri"].contains(&line.word(0))) {
                notes.add(line, "write it in the frontend");
            }
        }
        proxy
    }

    /// The variables of its declarations.
    pub fn variables(&self) -> Variables<'_> {
        let kind = if self.kind == Kind::Backend { 'b' } else { 'f' };
        Variables::new(kind, &self.name, &self.acls)
    }

    fn line(&mut self, line: &Line, notes: &mut Notes) {
        let condition_from = |nth: usize| condition::read(line.from(nth));
        if acl::matches_values(&line.words) {
            notes.add(
                line,
                "the expression is compared with the whole field; HAProxy compares each value between commas",
            );
        }
        match line.word(0) {
            "mode" if line.word(1) == "http" => self.mode = Mode::Http,
            "mode" if line.word(1) == "tcp" => self.mode = Mode::Tcp,
            "mode" => notes.add(line, "there is no such mode"),
            "bind" => self.binds.push(line.clone()),
            "acl" => {
                let test = acl::read(line.from(2));
                if let Err(why) = &test {
                    notes.add(line, why.clone());
                }
                self.acls.push(Acl { name: line.word(1).into(), test });
            }
            "use_backend" => match condition_from(2) {
                Ok(condition) => self.use_backends.push((line.clone(), line.word(1).into(), condition)),
                Err(why) => notes.add(line, why),
            },
            "default_backend" => self.default_backend = Some((line.clone(), line.word(1).into())),
            "balance" => self.balance = Some(line.clone()),
            "hash-type" => self.hash_type = Some(line.clone()),
            "hash-balance-factor" => self.hash_factor = Some(line.word(1).into()).filter(|factor| factor != "0"),
            "default-server" => self.default_server.extend_from_slice(line.from(1)),
            "server" => self.servers.push(line.clone()),
            "server-template" => self.template(line, notes),
            "cookie" => self.cookie = Some(line.clone()),
            "timeout" => match time::milliseconds(line.word(2)) {
                Some(time) => drop(self.timeouts.insert(line.word(1).into(), time)),
                None => notes.add(line, "a wrong time"),
            },
            "retries" => self.retries = line.word(1).parse().ok(),
            "stick" if line.is(&["stick", "on", "src"]) || line.is(&["stick", "match", "src"]) => {
                self.stick = Some(line.clone());
            }
            // The size and the time of the table are those of the algorithm.
            "stick-table"
                if line.word(1) == "type" && line.word(2).starts_with("ip") && !line.text.contains("store") => {}
            "compression" if line.word(1) == "algo" => drop(self.compression.get_or_insert_default()),
            "compression" if line.word(1) == "type" => {
                self.compression.get_or_insert_default().extend_from_slice(line.from(2));
            }
            "monitor-uri" => self.monitor = Some(line.word(1).into()),
            "stats" => self.stats(line, notes),
            "option" if line.word(1) == "forwardfor" => {
                if line.words.len() > 2 && line.word(2) != "if-none" {
                    notes.add(line, "every request gets X-Forwarded-For");
                }
                self.forwarded_for = Some(line.clone());
            }
            "option" if line.word(1) == "httpchk" => self.httpchk(line, notes),
            "http-check" => self.http_check(line, notes),
            "http-request" if line.word(1) == "use-service" => self.service(line, notes),
            "http-request" | "http-response" | "redirect" | "tcp-request" if !ignored::is_needless(line) => {
                match rules::read(line) {
                    Ok((rule, condition)) => self.rules.push((line.clone(), rule, condition)),
                    Err(why) => notes.add(line, why),
                }
            }
            // They are limits of frontends.
            "maxconn" | "rate-limit" if self.kind == Kind::Backend => {}
            "maxconn" => notes.add(line, "write \"limit_conn\"; the limit of all connections is that of global"),
            "rate-limit" => notes.add(line, "has no counterpart: see \"limit_req\""),
            _ if ignored::is_needless(line) => {}
            _ => notes.add(line, "has no counterpart"),
        }
    }

    /// `server-template PREFIX COUNT FQDN:PORT …`: a name that is resolved again.
    fn template(&mut self, line: &Line, notes: &mut Notes) {
        let mut words = vec!["server".to_string(), line.word(1).to_string()];
        words.extend_from_slice(line.from(3));
        notes.add(
            line,
            "the servers are all addresses of the name when the configuration is loaded; \"resolve\" follows changes",
        );
        self.servers.push(Line { words, ..line.clone() });
    }

    fn stats(&mut self, line: &Line, notes: &mut Notes) {
        let stats = self.stats.get_or_insert_with(|| Stats { line: line.clone(), ..Stats::default() });
        match line.word(1) {
            "enable" | "refresh" | "hide-version" | "show-legends" | "show-node" | "show-desc" | "show-modules"
            | "realm" => {}
            "uri" => stats.uri = Some(line.word(2).into()),
            "admin" => {
                let condition = line.from(2).join(" ");
                stats.admin = ["if TRUE", "if { always_true }", "unless FALSE"].contains(&condition.as_str());
                if !stats.admin {
                    notes.add(
                        line,
                        "the API only reads: \"api write=on\" has no condition; limit it with allow and deny",
                    );
                }
            }
            "http-request" => {
                stats.guarded = true;
                notes.add(line, "page and API are left out: write them with allow, deny and auth_basic");
            }
            "auth" => {
                stats.auth = true;
                // The password is not repeated in the result.
                let shown = Line { text: "stats auth ...".into(), ..line.clone() };
                notes.add(&shown, "write the password: printf 'USER:%s\\n' \"$(openssl passwd -6)\" > stats.htpasswd");
            }
            _ => notes.add(line, "has no counterpart"),
        }
    }

    fn httpchk(&mut self, line: &Line, notes: &mut Notes) {
        self.check.http = true;
        let (method, uri) = match line.words.len() {
            0..=2 => ("GET", None),
            3 => ("GET", Some(line.word(2))),
            _ => (line.word(2), Some(line.word(3))),
        };
        if method != "GET" {
            notes.add(line, "checks are made with GET");
        }
        if line.words.len() > 4 && line.text.contains("Host") {
            notes.add(line, "the check has the Host field of the location's proxy_set_header");
        }
        self.check.uri = uri.map(str::to_string).or(self.check.uri.take());
    }

    fn http_check(&mut self, line: &Line, notes: &mut Notes) {
        let words = line.words.iter().map(String::as_str).collect::<Vec<_>>();
        match words[1..] {
            ["expect", "status", status] => self.check.status = Some(status.replace(',', " ")),
            ["expect", "rstatus", _] => notes.add(line, "write the statuses: status 200-299;"),
            ["expect", "string", text] => self.check.body = Some(text.to_string()),
            ["send", ..] => {
                let mut rest = line.from(2).iter();
                while let Some(word) = rest.next() {
                    match (word.as_str(), rest.next()) {
                        ("uri", Some(uri)) => self.check.uri = Some(uri.clone()),
                        ("meth", Some(method)) if method == "GET" => {}
                        ("ver", _) => {}
                        ("hdr", _) => {
                            rest.next();
                            notes.add(line, "the check has the fields of the location's proxy_set_header");
                        }
                        _ => {
                            notes.add(line, "checks are made with GET, without a body");
                            break;
                        }
                    }
                }
            }
            _ => notes.add(line, "has no counterpart"),
        }
    }

    fn service(&mut self, line: &Line, notes: &mut Notes) {
        let words = line.from(2).iter().map(String::as_str).collect::<Vec<_>>();
        match words[..] {
            ["prometheus-exporter", "if", "{", "path", path, "}"] if self.kind != Kind::Backend => {
                self.metrics = Some(path.into());
            }
            _ => notes.add(line, "has no counterpart"),
        }
    }
}
