//! Plans: which there are, and what one does.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use balanza_config::nearest;
use balanza_lab::plan::{Load, Plan};
use balanza_lab::runner;
use balanza_lab::system::Programs;
use clap::Args;

use super::{colour, print};

/// The arguments of `lab show`.
#[derive(Args)]
pub struct Show {
    /// A plan that comes with the program, or a file
    plan: PathBuf,
    /// Print the text of the plan, as a start for your own
    #[arg(long)]
    toml: bool,
    /// Show the plan as --quick runs it
    #[arg(long, conflicts_with = "toml")]
    quick: bool,
}

/// Prints the plans that come with the program.
pub fn list(json: bool) -> anyhow::Result<()> {
    let programs = Programs::find();
    let mut rows = Vec::new();
    for built_in in Plan::built_in() {
        let plan = parse(Path::new(built_in.name), built_in.text)?;
        let time = |plan: &Plan| plan.estimate(&runner::possible(plan, &programs));
        rows.push((built_in.name, time(&plan), time(&plan.quick()), plan.title));
    }
    if json {
        let plans: Vec<_> = rows
            .iter()
            .map(|(name, long, quick, title)| {
                let (seconds, quick_seconds) = (long.as_secs(), quick.as_secs());
                serde_json::json!({ "name": name, "title": title, "seconds": seconds, "quick_seconds": quick_seconds })
            })
            .collect();
        return print(&serde_json::to_string_pretty(&plans)?);
    }
    let mut text = format!("{:14}{:>8}{:>9}  title\n", "plan", "time", "--quick");
    for (name, long, quick, title) in rows {
        let (long, quick) = (minutes(long), minutes(quick));
        let _ = writeln!(text, "{name:14}{long:>8}{quick:>9}  {title}");
    }
    text.push_str("\nDescription of a plan: balanza lab show PLAN. First run: balanza lab run PLAN --quick.");
    print(&text)
}

/// Prints what a plan does.
pub fn show(options: &Show) -> anyhow::Result<()> {
    if options.toml {
        return print(&text(&options.plan)?);
    }
    let plan = find(&options.plan)?;
    print(&describe(&if options.quick { plan.quick() } else { plan }))
}

/// The plan of this name: a file's, or one that comes with the program.
///
/// Errors: all that is wrong with it.
pub fn find(name: &Path) -> anyhow::Result<Plan> {
    parse(name, &text(name)?)
}

fn parse(name: &Path, text: &str) -> anyhow::Result<Plan> {
    Plan::parse_file(name, text).map_err(|error| {
        let colour = std::io::IsTerminal::is_terminal(&std::io::stderr()) && colour();
        anyhow::anyhow!("the plan {} cannot be used\n{}", name.display(), error.render(colour).trim_end())
    })
}

fn text(name: &Path) -> anyhow::Result<String> {
    let shown = name.display().to_string();
    if !name.is_file()
        && let Some(plan) = Plan::built_in().iter().find(|plan| plan.name == shown)
    {
        return Ok(plan.text.into());
    }
    if !name.exists() {
        match nearest(&shown, Plan::built_in().iter().map(|plan| plan.name)) {
            Some(near) => bail!("there is no plan and no file \"{shown}\": did you mean {near}?"),
            None => bail!("there is no plan and no file \"{shown}\": balanza lab list shows the plans"),
        }
    }
    std::fs::read_to_string(name).with_context(|| shown)
}

fn describe(plan: &Plan) -> String {
    let cells = runner::possible(plan, &Programs::find());
    let mut text = format!("{}: {}\n", plan.name, plan.title);
    paragraphs(&mut text, "", &plan.about);
    if let Some(document) = &plan.document {
        paragraphs(&mut text, "Published in: ", &document.citation);
        paragraphs(&mut text, "Setup of the publication: ", &document.setup);
        paragraphs(&mut text, "Differences here: ", &document.differences);
    }
    text.push_str("\nServers\n");
    for farm in &plan.farms {
        let _ = writeln!(text, "  {}", farm.name);
        for server in &farm.servers {
            let names = server.names();
            let names = match names.as_slice() {
                [first, .., last] => format!("{first} to {last}"),
                names => names.concat(),
            };
            let what = server.address.clone().unwrap_or_else(|| server.arguments().join(" "));
            let _ = writeln!(text, "    {names}: {what}");
        }
        for event in &farm.events {
            let _ = writeln!(text, "    at {event}");
        }
    }
    let systems: Vec<&str> = plan.systems.iter().map(|system| system.name()).collect();
    let _ = writeln!(text, "\nSystems\n  {}\n\nAlgorithms", systems.join(", "));
    for algorithm in &plan.algorithms {
        let mut notes = Vec::new();
        if !algorithm.weights.is_empty() {
            let weights: Vec<String> = algorithm.weights.iter().map(u32::to_string).collect();
            notes.push(format!("weights {}", weights.join(":")));
        }
        notes.extend((!algorithm.servers.is_empty()).then(|| format!("servers {}", algorithm.servers.join(", "))));
        notes.extend(
            algorithm.reaches.iter().map(|server| format!("all requests from an address that is sent to {server}")),
        );
        notes.extend(algorithm.control.then(|| "for comparison, not ranked".to_owned()));
        let notes = if notes.is_empty() { String::new() } else { format!(" ({})", notes.join("; ")) };
        let _ = writeln!(text, "  {}: {}{notes}", algorithm.name, algorithm.balance);
    }
    text.push_str("\nLoads\n");
    for load in &plan.loads {
        let _ = writeln!(text, "  {}: {}", load.name, arrives(load));
    }
    if !plan.checks.is_empty() {
        text.push_str("\nChecks\n");
    }
    for check in &plan.checks {
        let must = if check.must { "" } else { " (expected to fail)" };
        let _ = writeln!(text, "  {}{must}: {}", check.name, check.says);
    }
    let mut reasons: Vec<String> = cells
        .left_out
        .iter()
        .map(|(cell, reason)| format!("  {}, {}: {reason}\n", cell.system, cell.algorithm))
        .collect();
    reasons.dedup();
    if !reasons.is_empty() {
        let _ = write!(text, "\nNot possible here\n{}", reasons.concat());
    }
    let (count, time) = (cells.run.len(), minutes(plan.estimate(&cells)));
    let _ = writeln!(text, "\n{count} combinations, {} runs each: {time}", plan.repetitions);
    text
}

fn arrives(load: &Load) -> String {
    let second = |time: balanza_lab::plan::Time| format!("{} s", time.0.as_secs_f64());
    let mut words = match (load.users, load.rate) {
        (Some(users), _) => format!("{users} users"),
        (None, Some(rate)) => format!("{rate} requests per second"),
        (None, None) => load.log.as_ref().map(ToString::to_string).unwrap_or_default(),
    };
    if let Some(requests) = load.requests {
        let _ = write!(words, ", {requests} requests");
    }
    if let Some(duration) = load.duration {
        let _ = write!(words, ", {}, of which {} warm-up", second(duration), second(load.warmup));
    }
    if !load.rtt.is_zero() {
        let _ = write!(words, ", network delay {}", second(load.rtt));
    }
    let _ = write!(words, ", sent by {}", load.tool.name());
    words
}

/// Text of a plan, in lines of a readable length.
fn paragraphs(text: &mut String, label: &str, prose: &str) {
    for (at, paragraph) in prose.split("\n\n").map(str::trim).filter(|paragraph| !paragraph.is_empty()).enumerate() {
        text.push('\n');
        let mut column = 0;
        let label = if at == 0 { label } else { "" };
        for word in label.split_whitespace().chain(paragraph.split_whitespace()) {
            let length = word.chars().count();
            if column > 0 && column + 1 + length > 96 {
                text.push('\n');
                column = 0;
            }
            if column > 0 {
                text.push(' ');
                column += 1;
            }
            text.push_str(word);
            column += length;
        }
        text.push('\n');
    }
}

/// `95 s`, `12 min`.
pub fn minutes(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds => format!("{} min", (seconds + 30) / 60),
    }
}
