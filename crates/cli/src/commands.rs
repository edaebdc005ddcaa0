//! The commands beside serving.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::process::ExitCode;

use balanza_balancing::registry::{self, Entry, Kind};
use clap::{Args, CommandFactory, Parser, Subcommand};
use serde_json::{Value, json};

/// Load balancer that reads nginx.conf.
#[derive(Parser)]
#[command(
    name = "balanza",
    after_help = "Without a command balanza serves; its options are those of NGINX: balanza -h.",
    disable_help_subcommand = true
)]
struct Line {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Demo(balanza_lab::demo::Options),
    Target(balanza_lab::target::Options),
    Algorithms(Algorithms),
}

/// Show the algorithms that choose servers, or one of them.
///
/// For each: what it does, how nginx.conf spells it, its parameters, the cost of
/// a choice among n servers, and where it comes from.
///
///   balanza algorithms
///   balanza algorithms two_choices
///   balanza algorithms --json
#[derive(Args)]
#[command(verbatim_doc_comment)]
struct Algorithms {
    /// Name of an algorithm, or another name for it [default: all]
    name: Option<String>,

    /// As JSON: an array of all, or an object
    #[arg(long)]
    json: bool,
}

/// The names of all commands.
pub fn names() -> Vec<String> {
    Line::command().get_subcommands().map(|command| command.get_name().to_string()).collect()
}

/// Whether this is the name of a command.
pub fn exists(word: &OsStr) -> bool {
    names().iter().any(|name| word == name.as_str())
}

/// Runs the command of this command line, whose first word is the program's name.
pub fn run(arguments: &[OsString]) -> ExitCode {
    let result = match Line::parse_from(arguments).command {
        Command::Demo(options) => balanza_lab::demo::run(options),
        Command::Target(options) => balanza_lab::target::run(options),
        Command::Algorithms(options) => algorithms(&options),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("balanza: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn algorithms(options: &Algorithms) -> anyhow::Result<()> {
    let text = match &options.name {
        Some(name) => {
            let entry = registry::find(name).ok_or_else(|| {
                let names: Vec<_> = registry::entries().iter().map(|entry| entry.name).collect();
                anyhow::anyhow!("there is no algorithm \"{name}\"; there are: {}", names.join(", "))
            })?;
            if options.json { pretty(&in_json(entry)) } else { in_full(entry) }
        }
        None if options.json => pretty(&registry::entries().iter().map(in_json).collect()),
        None => table(),
    };
    match io::stdout().write_all(text.as_bytes()) {
        // Whoever reads the output may stop early: `balanza algorithms | head`.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

fn pretty(value: &Value) -> String {
    format!("{value:#}\n")
}

fn table() -> String {
    let width = registry::entries().iter().map(|entry| entry.name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for entry in registry::entries() {
        text.push_str(&format!("{:width$}  {}\n", entry.name, entry.summary));
    }
    text.push_str("\nbalanza algorithms NAME tells more about one.\n");
    text
}

/// How nginx.conf asks for it.
fn spelling(entry: &Entry) -> Option<&'static str> {
    match entry.nginx {
        Some("") => Some("(the default, without a directive)"),
        other => other,
    }
}

fn in_full(entry: &Entry) -> String {
    let mut text = format!("{}: {}\n\n", entry.name, entry.summary);
    if !entry.aliases.is_empty() {
        text.push_str(&format!("also called  {}\n", entry.aliases.join(", ")));
    }
    text.push_str(&format!("nginx.conf   {}\n", spelling(entry).unwrap_or("(NGINX does not have it)")));
    text.push_str(&format!("cost         {}\n", entry.cost));
    text.push_str(&format!("source       {}\n", entry.source));
    text.push_str(&format!(
        "backup       {}\n",
        if entry.backup { "servers may be backup" } else { "no backup servers" }
    ));
    if !entry.parameters.is_empty() {
        text.push_str("\nparameters\n");
    }
    for parameter in entry.parameters {
        let (name, summary, default) = (parameter.name, parameter.summary, parameter.default);
        text.push_str(&format!("  {name}={}  [{default}]\n      {summary}\n", values(parameter.kind)));
    }
    text
}

fn values(kind: Kind) -> String {
    match kind {
        Kind::Choice(words) => words.join("|"),
        Kind::Switch => "on|off".to_string(),
        Kind::Number(least, most) => format!("{least}..{most}"),
        Kind::Time(least, most) => format!("{least}ms..{most}ms"),
        Kind::Text => "TEXT".to_string(),
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
        "nginx": entry.nginx,
        "parameters": parameters,
        "cost": entry.cost,
        "source": entry.source,
        "backup": entry.backup,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Line::command().debug_assert();
    }

    #[test]
    fn every_algorithm_is_in_every_form() {
        let table = table();
        for entry in registry::entries() {
            assert!(table.contains(entry.name) && table.contains(entry.summary));
            let full = in_full(entry);
            let json = in_json(entry);
            assert_eq!(json["name"], entry.name);
            for parameter in entry.parameters {
                assert!(full.contains(parameter.summary), "{full}");
            }
        }
    }
}
