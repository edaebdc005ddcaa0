//! Manual pages: balanza(1) from the long help, and one for each command.

use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, line_break, roman};

/// Every page, with the name of its file.
pub fn pages() -> Vec<(String, String)> {
    let mut line = crate::commands::command().version(env!("CARGO_PKG_VERSION")).disable_help_subcommand(true);
    line.build();
    let mut pages = vec![("balanza.1".to_string(), balanza())];
    for command in line.get_subcommands() {
        collect(command, "balanza(1)", &mut pages);
    }
    pages
}

fn collect(command: &Command, above: &str, pages: &mut Vec<(String, String)>) {
    let man = man(command);
    let own = format!("{}(1)", command.get_display_name().unwrap());
    pages.push((man.get_filename(), page(command, &man, above)));
    for below in command.get_subcommands() {
        collect(below, &own, pages);
    }
}

fn man(command: &Command) -> Man {
    let source = format!("Balanza {}", env!("CARGO_PKG_VERSION"));
    Man::new(command.clone()).source(source).manual("Balanza")
}

/// The page of a command. clap_mangen would fill the lines of descriptions, which have examples in them.
fn page(command: &Command, man: &Man, above: &str) -> String {
    let mut text = Vec::new();
    man.render_title(&mut text).unwrap();
    man.render_name_section(&mut text).unwrap();
    man.render_synopsis_section(&mut text).unwrap();
    let mut roff = Roff::new();
    roff.control("SH", ["DESCRIPTION"]);
    let about = command.get_long_about().or(command.get_about());
    described(&about.map(ToString::to_string).unwrap_or_default(), 0, &mut roff);
    roff.to_writer(&mut text).unwrap();
    if command.get_arguments().any(|argument| !argument.is_hide_set()) {
        man.render_options_section(&mut text).unwrap();
    }
    if command.get_subcommands().next().is_some() {
        man.render_subcommands_section(&mut text).unwrap();
    }
    let mut roff = Roff::new();
    if let Some(more) = command.get_after_long_help().or(command.get_after_help()) {
        roff.control("SH", ["NOTES"]);
        described(&more.to_string(), 0, &mut roff);
    }
    roff.control("SH", ["SEE ALSO"]);
    roff.text([roman(above)]);
    finished(text, &roff)
}

/// balanza(1): the long help. Items are indented by 4 and explained from column 20 on.
fn balanza() -> String {
    let mut roff = Roff::new();
    let version = format!("Balanza {}", env!("CARGO_PKG_VERSION"));
    roff.control("TH", ["balanza", "1", "", version.as_str(), "Balanza"]);
    let text = crate::LONG_HELP.replace("{dialect}", balanza_config::model::DIALECT_VERSION);
    let blocks: Vec<_> = text.split("\n\n").collect();
    // A section begins with a line that is not indented.
    for section in blocks.chunk_by(|_, next| next.starts_with(' ')) {
        let (heading, first) = section[0].split_once('\n').expect("a heading and its text");
        roff.control("SH", [heading]);
        for block in std::iter::once(first).chain(section[1..].iter().copied()) {
            // The paths in effect are those of the user that asks.
            if block.trim_start().starts_with("Now:") {
                break;
            }
            match heading {
                "SYNOPSIS" => verbatim(block.lines().map(|line| line.get(4..).unwrap_or_default()), &mut roff),
                _ if block.lines().any(|line| line.starts_with(&" ".repeat(20))) || is_item(block) => {
                    items(block, &mut roff);
                }
                _ => {
                    if block != first {
                        roff.control("PP", []);
                    }
                    described(block, 4, &mut roff);
                }
            }
        }
    }
    roff.control("SH", ["SEE ALSO"]);
    let pages = crate::commands::names().into_iter().map(|name| format!("balanza-{name}(1)"));
    roff.text([roman(pages.collect::<Vec<_>>().join(", "))]);
    finished(Vec::new(), &roff)
}

/// Whether a block's first line is a term and its explanation.
fn is_item(block: &str) -> bool {
    term(block.lines().next().unwrap_or_default()).is_some_and(|(_, explanation)| !explanation.is_empty())
}

/// A line that begins an item, as its term and the explanation that follows on the same line.
fn term(line: &str) -> Option<(&str, &str)> {
    let line = line.strip_prefix("    ").filter(|rest| !rest.starts_with(' '))?;
    match line.get(..16).zip(line.get(16..)) {
        Some((term, explanation)) if term.ends_with(' ') => Some((term.trim_end(), explanation)),
        _ => Some((line, "")),
    }
}

fn items(block: &str, roff: &mut Roff) {
    for line in block.lines() {
        match term(line) {
            Some((term, explanation)) => {
                roff.control("TP", []);
                roff.text([bold(term)]);
                if !explanation.is_empty() {
                    roff.text([roman(explanation)]);
                }
            }
            None => {
                roff.text([roman(line.trim())]);
            }
        }
    }
}

/// Paragraphs, with the lines that are indented deeper left as they are.
fn described(text: &str, indent: usize, roff: &mut Roff) {
    let lines: Vec<_> = text.lines().map(|line| line.get(indent..).unwrap_or(line.trim())).collect();
    for group in lines.chunk_by(|one, next| one.starts_with(' ') == next.starts_with(' ')) {
        if group[0].starts_with(' ') {
            verbatim(group.iter().copied(), roff);
            continue;
        }
        for line in group {
            if line.trim().is_empty() {
                roff.control("PP", []);
            } else {
                roff.text([roman(*line)]);
            }
        }
    }
}

fn verbatim<'a>(lines: impl Iterator<Item = &'a str>, roff: &mut Roff) {
    roff.control("nf", []);
    for line in lines {
        roff.text([roman(line), line_break()]);
    }
    roff.control("fi", []);
}

fn finished(mut text: Vec<u8>, roff: &Roff) -> String {
    roff.to_writer(&mut text).unwrap();
    // roff writes an empty date as nothing, and what follows would be taken for the date.
    let text = String::from_utf8(text).unwrap().replacen(" 1  \"", " 1 \"\" \"", 1);
    let mut lines: Vec<&str> = Vec::new();
    for line in text.lines() {
        // Each part repeats the definition of the apostrophe.
        let preamble = line.starts_with(".ie \\n(.g") || line.starts_with(".el .ds");
        if !line.trim().is_empty() && line != ".br" && !(preamble && lines.contains(&line)) {
            lines.push(line.trim_end());
        }
    }
    lines.join("\n") + "\n"
}
