//! Conditions of single values: `acl NAME FETCH FLAGS VALUES`, as maps.

use std::net::{IpAddr, Ipv4Addr};

use super::format;
use super::nginx::{Node, quoted};

/// One declaration: what is compared, and with what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Test {
    /// A text, by expressions of which one has to match.
    Text {
        /// The variable.
        variable: String,
        /// The expressions, with "~" or "~*".
        patterns: Vec<String>,
    },
    /// The client's address.
    Source(Vec<String>),
    /// Always or never.
    Constant(bool),
}

/// How a value is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Match {
    Exact,
    Begin,
    End,
    Part,
    Directory,
    Domain,
    Regex,
    Found,
}

impl Match {
    fn named(name: &str) -> Option<Match> {
        Some(match name {
            "str" => Match::Exact,
            "beg" => Match::Begin,
            "end" => Match::End,
            "sub" => Match::Part,
            "dir" => Match::Directory,
            "dom" => Match::Domain,
            "reg" => Match::Regex,
            "found" => Match::Found,
            _ => return None,
        })
    }

    /// The expression for a value; in a list, for one of the values between commas.
    fn pattern(self, value: &str, is_list: bool) -> String {
        let value_escaped = escaped(value.trim_matches(if self == Match::Directory { '/' } else { '\0' }));
        let (from, to) = if is_list { (r"(^|,)\s*", r"\s*(,|$)") } else { ("^", "$") };
        match self {
            Match::Exact => format!("{from}{value_escaped}{to}"),
            Match::Begin => format!("{from}{value_escaped}"),
            Match::End => format!("{value_escaped}{to}"),
            Match::Part => value_escaped,
            Match::Directory => format!("({from}|/){value_escaped}(/|{to})"),
            Match::Domain => format!("({from}|[.:/?]){}({to}|[.:/?])", escaped(value.trim_matches('.'))),
            Match::Regex => value.to_string(),
            Match::Found => ".".to_string(),
        }
    }
}

/// A text as an expression that matches it.
pub fn escaped(text: &str) -> String {
    let mut out = String::new();
    for char in text.chars() {
        if "\\^$.|?*+()[]{}".contains(char) {
            out.push('\\');
        }
        out.push(char);
    }
    out
}

/// A value of the request, as an acl names it.
struct Fetch {
    variable: String,
    /// The comparison that the name includes: "path_beg" is "path" with "beg".
    kind: Match,
    /// Each of the values between commas is compared. "fhdr" is the whole field.
    is_list: bool,
}

fn fetch(name: &str) -> Option<Fetch> {
    let (base, argument) = name.split_once('(').map_or((name, ""), |(base, _)| (base, &name[base.len()..]));
    let (variable, base, kind) = match format::variable(name) {
        Some(variable) => (variable, base, Match::Exact),
        None => {
            let (base, kind) = base.rsplit_once('_')?;
            (format::variable(&format!("{base}{argument}"))?, base, Match::named(kind)?)
        }
    };
    // A host has no commas.
    let is_list = ["hdr", "req.hdr", "res.hdr", "shdr"].contains(&base) && variable != "$http_host";
    Some(Fetch { variable, kind, is_list })
}

/// Whether a line compares values between commas with a regular expression, which cannot be told to look at one of them.
pub fn matches_values(words: &[String]) -> bool {
    let sets_kind = words.windows(2).any(|pair| pair[0] == "-m" && pair[1] == "reg");
    words.iter().filter_map(|word| fetch(word)).any(|it| it.is_list && (sets_kind || it.kind == Match::Regex))
}

/// Fetches whose values are numbers.
const NUMBERS: [&str; 3] = ["dst_port", "src_port", "status"];

/// An address or a network as NGINX reads it; none if it is neither.
fn network(text: &str) -> Option<String> {
    let Some((address, mask)) = text.split_once('/') else {
        return text.parse::<IpAddr>().ok().map(|_| text.to_string());
    };
    let most = if address.parse::<IpAddr>().ok()?.is_ipv4() { 32 } else { 128 };
    let length = match mask.parse::<Ipv4Addr>() {
        Ok(mask) if most == 32 => {
            let bits = u32::from(mask);
            (bits.leading_ones() + bits.trailing_zeros() >= 32).then_some(bits.leading_ones())?
        }
        _ => mask.parse().ok()?,
    };
    (length <= most).then(|| format!("{address}/{length}"))
}

/// A test that needs no declaration.
pub fn predefined(name: &str) -> Option<Test> {
    let method = |names: &str| Some(text("$request_method", vec![format!("~^({names})$")]));
    match name {
        "TRUE" | "always_true" => Some(Test::Constant(true)),
        "FALSE" | "always_false" => Some(Test::Constant(false)),
        "HTTP" => Some(Test::Constant(true)),
        "LOCALHOST" => Some(Test::Source(vec!["127.0.0.0/8".into(), "::1".into()])),
        "METH_GET" => method("GET|HEAD"),
        "METH_POST" => method("POST"),
        "METH_PUT" => method("PUT"),
        "METH_DELETE" => method("DELETE"),
        "METH_HEAD" => method("HEAD"),
        "METH_OPTIONS" => method("OPTIONS"),
        "METH_CONNECT" => method("CONNECT"),
        _ => None,
    }
}

fn text(variable: &str, patterns: Vec<String>) -> Test {
    Test::Text { variable: variable.into(), patterns }
}

/// Reads a declaration without its name: a fetch, flags and values.
///
/// # Errors
/// What has no counterpart.
pub fn read(words: &[String]) -> Result<Test, String> {
    let name = words.first().ok_or("a condition is missing")?;
    match name.as_str() {
        "always_true" => return Ok(Test::Constant(true)),
        "always_false" => return Ok(Test::Constant(false)),
        // "on" with TLS.
        "ssl_fc" => return Ok(text("$https", vec!["~^on$".into()])),
        _ => {}
    }
    let (name, lower) = match name.strip_suffix(",lower").or_else(|| name.strip_suffix(",lower()")) {
        Some(name) => (name, true),
        None => (name.as_str(), false),
    };
    let (mut ignore_case, mut kind_set) = (lower, None);
    let mut rest = words[1..].iter();
    let mut values: Vec<&String> = Vec::new();
    while let Some(word) = rest.next() {
        match word.as_str() {
            "-i" => ignore_case = true,
            "-n" | "-u" => {}
            "-m" => {
                let kind = rest.next().map(String::as_str).unwrap_or_default();
                if name == "src" && kind == "ip" {
                    continue;
                }
                kind_set = Some(Match::named(kind).ok_or(format!("\"-m {kind}\" has no counterpart"))?);
            }
            "-f" => return Err("values in a file: write them into the map".into()),
            "-M" => return Err("a map has to be written as \"map\"".into()),
            "--" => values.extend(rest.by_ref()),
            _ => values.push(word),
        }
    }
    if name == "src" {
        // An address or a network, for `geo`.
        if kind_set.is_some() || values.is_empty() {
            return Err("addresses as text have no counterpart".into());
        }
        let networks = values.iter().map(|text| network(text)).collect::<Option<Vec<_>>>();
        return networks.map(Test::Source).ok_or("addresses by name have no counterpart".into());
    }
    let Fetch { variable, kind, is_list } =
        fetch(name).ok_or(format!("the condition \"{name}\" has no counterpart"))?;
    let kind = kind_set.unwrap_or(kind);
    let numeric = ["eq", "ge", "gt", "le", "lt"].iter().any(|operator| values.first().is_some_and(|it| it == operator));
    if numeric {
        return Err("comparisons of numbers have no counterpart".into());
    }
    if values.is_empty() && kind != Match::Found {
        return Err(format!("\"{name}\" without a value"));
    }
    // Values that are numbers or addresses are compared as such, which expressions cannot do.
    if kind == Match::Exact && NUMBERS.contains(&name) && !values.iter().all(|value| value.parse::<u16>().is_ok()) {
        return Err(format!("\"{name}\" with ranges has no counterpart"));
    }
    if kind == Match::Exact && name == "dst" && !values.iter().all(|value| value.parse::<Ipv4Addr>().is_ok()) {
        return Err("only \"src\" can be compared with networks".into());
    }
    let mark = if ignore_case { "~*" } else { "~" };
    let patterns = match kind {
        Match::Found => vec![format!("~{}", kind.pattern("", is_list))],
        _ => values.iter().map(|value| format!("{mark}{}", kind.pattern(value, is_list))).collect(),
    };
    Ok(Test::Text { variable, patterns })
}

impl Test {
    /// The block that gives a variable "1" if the test succeeds, else "0": its head without the variable, and its
    /// lines.
    pub fn block(&self) -> (String, Vec<Node>) {
        let zero = Node::line("default 0");
        match self {
            Test::Text { variable: of, patterns } => {
                let lines = patterns.iter().map(|pattern| Node::line(format!("{} 1", quoted(pattern))));
                (format!("map {of}"), [zero].into_iter().chain(lines).collect())
            }
            Test::Source(networks) => {
                let lines = networks.iter().map(|network| Node::line(format!("{network} 1")));
                ("geo".into(), [zero].into_iter().chain(lines).collect())
            }
            Test::Constant(value) => ("map \"\"".into(), vec![Node::line(format!("default {}", u8::from(*value)))]),
        }
    }
}

/// A declaration in a section.
#[derive(Debug, Clone)]
pub struct Acl {
    /// Its name; several of one name are alternatives.
    pub name: String,
    /// What it tests, or why it has no counterpart.
    pub test: Result<Test, String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<(String, Vec<String>), String> {
        match read(&text.split(' ').map(str::to_string).collect::<Vec<_>>())? {
            Test::Text { variable, patterns } => Ok((variable, patterns)),
            Test::Source(networks) => Ok(("src".into(), networks)),
            Test::Constant(value) => Ok((value.to_string(), vec![])),
        }
    }

    #[test]
    fn declarations_are_variables_and_expressions() {
        for (text, variable, patterns) in [
            ("path_beg /api /v1.0", "$request_path", &["~^/api", r"~^/v1\.0"][..]),
            ("path_end -i .JPG", "$request_path", &[r"~*\.JPG$"]),
            ("path -m beg /x", "$request_path", &["~^/x"]),
            ("path /x", "$request_path", &["~^/x$"]),
            ("path_dir /img/", "$request_path", &["~(^|/)img(/|$)"]),
            ("path_reg ^/a[0-9]+$", "$request_path", &["~^/a[0-9]+$"]),
            ("hdr(host) -i shop.example.com", "$http_host", &[r"~*^shop\.example\.com$"]),
            ("hdr_beg(host) -i api.", "$http_host", &[r"~*^api\."]),
            ("hdr_dom(host) example.com", "$http_host", &[r"~(^|[.:/?])example\.com($|[.:/?])"]),
            ("req.hdr(host),lower api", "$http_host", &["~*^api$"]),
            ("hdr(X-Key) -m found", "$http_x_key", &["~."]),
            ("hdr(x-role) admin", "$http_x_role", &[r"~(^|,)\s*admin\s*(,|$)"]),
            ("hdr_beg(x-role) -i a.", "$http_x_role", &[r"~*(^|,)\s*a\."]),
            ("hdr(x-role) -m end b", "$http_x_role", &[r"~b\s*(,|$)"]),
            ("hdr_sub(x-role) b", "$http_x_role", &["~b"]),
            ("hdr_dir(x-role) b", "$http_x_role", &[r"~((^|,)\s*|/)b(/|\s*(,|$))"]),
            ("req.fhdr(x-role) admin", "$http_x_role", &["~^admin$"]),
            ("url_param(v) 2", "$arg_v", &["~^2$"]),
            ("req.cook(sid) -m sub a", "$cookie_sid", &["~a"]),
            ("ssl_fc", "$https", &["~^on$"]),
            ("src 10.0.0.0/8 ::1", "src", &["10.0.0.0/8", "::1"]),
            ("req.ssl_sni -i a.test", "$ssl_preread_server_name", &[r"~*^a\.test$"]),
            ("method POST", "$request_method", &["~^POST$"]),
            ("src 10.0.0.0/255.0.0.0 10.1.2.3", "src", &["10.0.0.0/8", "10.1.2.3"]),
            ("dst_port 80 443", "$server_port", &["~^80$", "~^443$"]),
            ("dst 10.0.0.1", "$server_addr", &[r"~^10\.0\.0\.1$"]),
        ] {
            let (found, list) = of(text).unwrap_or_else(|why| panic!("{text}: {why}"));
            assert_eq!(
                (found.as_str(), list),
                (variable, patterns.iter().map(|it| it.to_string()).collect()),
                "{text}"
            );
        }
    }

    #[test]
    fn what_has_no_counterpart_says_so() {
        for text in [
            "path_len gt 10",
            "nbsrv(app) lt 2",
            "path -f /etc/paths",
            "rand(2) 1",
            "src local",
            "path",
            "dst_port gt 80",
            "dst_port 80:90",
            "status 500:599",
            "dst 10.0.0.0/8",
            "dst ::1",
            "src -m sub 10.",
            "src 10.0.0.0/33",
            "src 10.0.0.0/255.0.255.0",
            "src cafe",
            "hdr(host),field(1,:) -i x",
            "hdr_beg(host),field(1,:) -i x",
            "hdr_ip(x-forwarded-for) 10.0.0.0/8",
            "hdr_ip(x-forwarded-for,-1) 10.0.0.1",
            "hdr(x-a,1) b",
            "url_param(a,;) b",
            "hdr(x.y) b",
            "hdr(x_y) b",
            "req.cook(a-b) c",
        ] {
            assert!(of(text).is_err(), "{text}");
        }
    }
}
