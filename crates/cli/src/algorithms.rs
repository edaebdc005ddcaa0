//! `balanza algorithms`: the registry of algorithms as text and as JSON.

use std::fmt::Write as _;

use balanza_balancing::registry::{self, Entry, Host, Key, Kind, Share};
use balanza_simulator::advice::Table;
use clap::Args;
use serde_json::{Value, json};

use crate::output::print;

mod advice;
#[cfg(test)]
mod documents;

/// List the balancing algorithms, or explain one of them.
///
/// For each algorithm: what it does, when to use it and when not, its parameters,
/// the cost of a choice among n servers, and its source. --advise compares them.
///
///   balanza algorithms
///   balanza algorithms two_choices
///   balanza algorithms --advise
///   balanza algorithms --json
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub struct Options {
    /// Name of an algorithm, or another name for it [default: all]
    name: Option<String>,

    /// Compare all algorithms in simulated situations, such as a slow server or many balancers
    #[arg(long, conflicts_with = "name")]
    advise: bool,

    /// Print JSON: an array of all algorithms, or one object
    #[arg(long)]
    json: bool,
}

/// Prints what was asked for.
pub fn run(options: &Options) -> anyhow::Result<()> {
    let text = match &options.name {
        _ if options.advise => advice::of(&Table::ready()?, options.json),
        Some(name) => {
            let entry = registry::find(name).ok_or_else(|| registry::unknown(name))?;
            if options.json { pretty(&in_json(entry)) } else { in_full(entry) }
        }
        None if options.json => pretty(&registry::entries().iter().map(in_json).collect()),
        None => list(),
    };
    print(&text)
}

fn pretty(value: &Value) -> String {
    format!("{value:#}\n")
}

fn list() -> String {
    let width = registry::entries().iter().map(|entry| entry.name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for entry in registry::entries() {
        let _ = writeln!(text, "{:width$}  {}", entry.name, entry.summary);
        let parameters: Vec<_> = entry.parameters.iter().map(|p| format!("{}={}", p.name, values(p.kind))).collect();
        if !parameters.is_empty() {
            let _ = writeln!(text, "{:width$}    parameters: {}", "", parameters.join(" "));
        }
        let _ = writeln!(text, "{:width$}    cost: {}", "", entry.cost);
        let _ = writeln!(text, "{:width$}    source: {}", "", entry.source);
    }
    text.push_str("\n\"balanza algorithms NAME\" explains one algorithm.\n");
    text
}

/// The directive of nginx.conf that selects it, if NGINX has one.
fn spelling(entry: &Entry) -> Option<&'static str> {
    match entry.nginx {
        Some("") => Some("(the default, without a directive)"),
        other => other,
    }
}

/// The statement of an `upstream` that selects it, with its parameters.
fn statement(entry: &Entry) -> String {
    let mut text = format!("balance {}", entry.name);
    for parameter in entry.parameters {
        let _ = write!(text, " [{}={}]", parameter.name, values(parameter.kind));
    }
    match entry.key {
        Key::Any if entry.needs_key => text.push_str(" key=TEMPLATE"),
        Key::Any => text.push_str(" [key=TEMPLATE]"),
        Key::None | Key::ClientAddress => {}
    }
    text.push(';');
    text
}

/// The algorithm's key.
fn key(entry: &Entry) -> Option<&'static str> {
    match entry.key {
        Key::None => None,
        Key::ClientAddress => Some("the client's address"),
        Key::Any if entry.needs_key => Some("text with variables"),
        Key::Any => Some("text with variables; by default the client's address"),
    }
}

fn host(entry: &Entry) -> Option<&'static str> {
    match entry.host {
        Host::Any => None,
        Host::Idleness => Some("notice of servers that become idle; known within one process"),
        Host::Reports => Some("the servers' reported load (load_report)"),
        Host::Probes => Some("probes of the servers"),
        Host::Program => Some("a program that keeps running"),
    }
}

fn in_full(entry: &Entry) -> String {
    let mut text = format!("{}: {}\n\n{}\n\n", entry.name, entry.summary, wrapped(entry.what));
    for (heading, paragraph) in [("when to use it", entry.when), ("when not to use it", entry.when_not)] {
        let _ = write!(text, "{heading}\n{}\n", indented(&wrapped_to(78, paragraph)));
    }
    let row = |text: &mut String, name: &str, value: &str| {
        let _ = writeln!(text, "{name:<13}{value}");
    };
    row(&mut text, "statement", &statement(entry));
    row(&mut text, "in NGINX", spelling(entry).unwrap_or("not available"));
    if !entry.aliases.is_empty() {
        row(&mut text, "also called", &entry.aliases.join(", "));
    }
    if let Some(key) = key(entry) {
        row(&mut text, "key", key);
    }
    if let Some(host) = host(entry) {
        row(&mut text, "needs", host);
    }
    row(&mut text, "backup", if entry.backup { "allowed" } else { "not allowed" });
    if !entry.parameters.is_empty() {
        text.push_str("\nparameters\n");
    }
    for parameter in entry.parameters {
        let (name, summary, default) = (parameter.name, parameter.summary, parameter.default);
        let _ = writeln!(text, "  {name}={}  [{default}]\n      {summary}", values(parameter.kind));
    }
    text.push('\n');
    row(&mut text, "cost", entry.cost);
    row(&mut text, "source", entry.source);
    let _ = write!(text, "\nexample\n{}", indented(&example(entry)));
    text
}

/// Lines of at most 80 columns; an empty line separates paragraphs.
fn wrapped(text: &str) -> String {
    wrapped_to(80, text)
}

fn wrapped_to(width: usize, text: &str) -> String {
    let paragraphs = text.split("\n\n").map(|paragraph| {
        let mut text = String::new();
        let mut column = 0;
        for word in paragraph.split_whitespace() {
            let length = word.chars().count();
            if column > 0 && column + 1 + length > width {
                text.push('\n');
                column = 0;
            } else if column > 0 {
                text.push(' ');
                column += 1;
            }
            text.push_str(word);
            column += length;
        }
        text
    });
    paragraphs.collect::<Vec<_>>().join("\n\n")
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("  {line}\n")).collect()
}

/// An `upstream` that uses it, every parameter with its default.
fn example(entry: &Entry) -> String {
    let mut statement = format!("balance {}", entry.name);
    for parameter in entry.parameters {
        let value = match parameter.kind {
            Kind::Program => "/usr/local/bin/choose",
            _ => parameter.default,
        };
        if !value.is_empty() {
            let _ = write!(statement, " {}={value}", parameter.name);
        }
    }
    if entry.key == Key::Any {
        let _ = write!(statement, " key=$request_uri");
    }
    let (one, two) = match entry.share {
        Share::Order => (" max_conns=100", " max_conns=100"),
        Share::Groups => (" priority=1", " priority=2"),
        Share::Ignores(_) => ("", ""),
        Share::Weights | Share::Key | Share::Load => (" weight=2", ""),
    };
    let report = if entry.host == Host::Reports { "    load_report agent port=8081;\n" } else { "" };
    format!(
        "upstream app {{\n    {statement};\n{report}    server 10.0.0.1:8080{one};\n    \
         server 10.0.0.2:8080{two};\n}}\n"
    )
}

fn values(kind: Kind) -> String {
    match kind {
        Kind::Choice(words) => words.join("|"),
        Kind::Switch => "on|off".to_string(),
        Kind::Number(least, most) => format!("{least}..{most}"),
        Kind::Limit(least, most) => format!("0|{least}..{most}"),
        Kind::Time(..) => "TIME".to_string(),
        Kind::Path => "PATH".to_string(),
        Kind::Program => "COMMAND".to_string(),
    }
}

fn in_json(entry: &Entry) -> Value {
    let parameters: Vec<Value> = entry
        .parameters
        .iter()
        .map(|parameter| {
            json!({
                "name": parameter.name,
                "summary": parameter.summary,
                "values": values(parameter.kind),
                "default": parameter.default,
            })
        })
        .collect();
    json!({
        "name": entry.name,
        "aliases": entry.aliases,
        "summary": entry.summary,
        "what": entry.what,
        "when": entry.when,
        "when_not": entry.when_not,
        "nginx": entry.nginx,
        "parameters": parameters,
        "key": key(entry),
        "needs": host(entry),
        "cost": entry.cost,
        "linear": entry.linear,
        "source": entry.source,
        "backup": entry.backup,
        "example": example(entry),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptions_are_wrapped() {
        let text = wrapped(&format!("{} end.\n\nSecond\nparagraph.", "word ".repeat(40)));
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
        assert!(text.ends_with("end.\n\nSecond paragraph."), "{text}");
    }
}
