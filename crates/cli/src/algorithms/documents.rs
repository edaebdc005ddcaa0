//! docs/algorithms.md says what the registry and the simulated table say. `make docs` writes its generated parts.

use std::fmt::Write as _;
use std::path::PathBuf;

use balanza_balancing::registry::{self, Entry, Spec};
use balanza_config::{Bundle, directives, load};

use balanza_simulator::advice::{self, Table};

use super::advice::document;
use super::{example, host, in_full, in_json, key, list, spelling, values};

const FROM_THE_REGISTRY: &str = "<!-- generated from the registry: make docs -->\n";
const FROM_THE_TABLE: &str = "<!-- generated from the simulated table: make docs -->\n";
const END: &str = "<!-- /generated -->";

fn file() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/algorithms.md")
}

fn section(entry: &Entry) -> String {
    let mut text = format!("### {}\n\n*{}.*\n\n{}\n\n", entry.name, sentence(entry.summary), entry.what);
    let _ = write!(text, "**When to use it.** {}\n\n**When not to use it.** {}\n\n", entry.when, entry.when_not);
    if !entry.parameters.is_empty() {
        text.push_str("| parameter | values | default | |\n|---|---|---|---|\n");
        for parameter in entry.parameters {
            let default = if parameter.default.is_empty() { String::new() } else { format!("`{}`", parameter.default) };
            let values = values(parameter.kind).replace('|', "\\|");
            let _ = writeln!(text, "| `{}` | `{values}` | {default} | {} |", parameter.name, parameter.summary);
        }
        text.push('\n');
    }
    text.push_str("| | |\n|---|---|\n");
    let mut row = |name: &str, value: &str| {
        let _ = writeln!(text, "| {name} | {} |", value.replace('|', "\\|"));
    };
    row("cost", entry.cost);
    row("source", entry.source);
    match spelling(entry) {
        Some(words) if words.starts_with('(') => row("NGINX", words.trim_matches(['(', ')'])),
        Some(words) => row("NGINX", &format!("`{words}`")),
        None => {}
    }
    if !entry.aliases.is_empty() {
        row("also called", &entry.aliases.iter().map(|alias| format!("`{alias}`")).collect::<Vec<_>>().join(", "));
    }
    if let Some(key) = key(entry) {
        row("key", key);
    }
    if let Some(host) = host(entry) {
        row("needs", host);
    }
    if !entry.backup {
        row("backup", "not allowed");
    }
    let _ = write!(text, "\n```nginx\n{}```\n", example(entry));
    text
}

fn sentence(summary: &str) -> String {
    let mut letters = summary.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

/// A text with another generated part.
fn replaced(text: &str, begin: &str, part: &str) -> String {
    let (before, rest) = text.split_once(begin).expect("the mark before the generated part");
    let (_, after) = rest.split_once(END).expect("the mark after it");
    format!("{before}{begin}{part}{END}{after}")
}

#[test]
fn every_algorithm_is_documented() {
    let found = std::fs::read_to_string(file()).unwrap();
    let sections: Vec<_> = registry::entries().iter().map(section).collect();
    let wanted = replaced(&found, FROM_THE_REGISTRY, &format!("## The algorithms\n\n{}", sections.join("\n")));
    let wanted = replaced(&wanted, FROM_THE_TABLE, &document(&Table::ready().unwrap()));
    if std::env::var_os("BALANZA_UPDATE_DOCS").is_some() {
        std::fs::write(file(), &wanted).unwrap();
    } else {
        assert!(found == wanted, "docs/algorithms.md is not current: run make docs");
    }
}

#[test]
fn the_table_has_every_algorithm_of_the_registry() {
    let table = Table::ready().unwrap();
    assert!(table.rows.iter().map(|(name, _)| name).eq(&advice::algorithms()), "run make advice");
    for entry in registry::entries() {
        let row = table.rows.iter().any(|(name, _)| name == entry.name);
        let out = advice::left_out(entry).is_some();
        assert!(row != out, "{} has to have a row or a reason why it has none", entry.name);
    }
}

/// The cells of a table's rows, by the heading that the table stands under.
fn rows(text: &str, heading: &str) -> Vec<Vec<String>> {
    let (_, rest) = text.split_once(&format!("## {heading}\n")).expect("the heading");
    let table = rest.split("\n## ").next().unwrap_or_default();
    let rows = table.lines().filter(|line| line.starts_with("| ")).skip(1);
    rows.map(|row| row.trim_matches('|').split(" | ").map(|cell| cell.trim().to_string()).collect()).collect()
}

/// The quoted pieces of a cell.
fn quoted(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

#[test]
fn every_algorithm_has_its_place_in_the_choice() {
    let text = std::fs::read_to_string(file()).unwrap();
    for heading in ["Overview", "How to choose"] {
        let rows = rows(&text, heading);
        let named: Vec<&str> = rows.iter().flat_map(|row| quoted(&row[1])).collect();
        for entry in registry::entries() {
            assert!(named.contains(&entry.name), "{} is not in a table of \"{heading}\"", entry.name);
        }
    }
}

#[test]
fn every_algorithm_is_compared_with_something() {
    let text = std::fs::read_to_string(file()).unwrap();
    let rows = rows(&text, "What each is compared with");
    let named: Vec<&str> = rows.iter().flat_map(|row| quoted(&row[0])).collect();
    assert!(named.iter().copied().eq(registry::entries().iter().map(|entry| entry.name)), "{named:?}");
    for row in &rows {
        let tests = quoted(&row[2]);
        assert!(!tests.is_empty(), "{row:?} names no test");
        for test in tests {
            let (path, name) = test.split_once("::").expect("a file and a test");
            let code = std::fs::read_to_string(file().with_file_name("../crates").join(path)).unwrap_or_default();
            assert!(code.contains(&format!("fn {name}(")), "{test} is not there");
        }
    }
}

/// What the tables call an algorithm is one, and what follows its name are parameters with valid values.
#[test]
fn names_in_the_tables_exist() {
    // Parameters of `server`, and of the directives themselves.
    const OTHERS: [&str; 12] = [
        "backup",
        "consistent",
        "priority",
        "slow_start",
        "max_conns",
        "soft_max_conns",
        "weight",
        "drain",
        "sticky",
        "load_report",
        "key=",
        "probe=",
    ];
    let text = std::fs::read_to_string(file()).unwrap();
    let cells = [("How to choose", 1), ("What your balancer calls it", 2)];
    let cells =
        cells.into_iter().flat_map(|(heading, at)| rows(&text, heading).into_iter().map(move |row| row[at].clone()));
    let mut checked = 0;
    for cell in cells {
        for piece in quoted(&cell) {
            let mut words = piece.split(' ');
            let name = words.next().unwrap_or_default();
            let Some(entry) = registry::entries().iter().find(|entry| entry.name == name) else {
                let directive = directives().iter().any(|directive| directive.name == name);
                assert!(directive || OTHERS.iter().any(|other| name.starts_with(other)), "{piece} in {cell}");
                continue;
            };
            let numbers = |value: &str| if value == "N" { "3" } else { value }.to_string();
            let parameters: Vec<(&str, String)> = words
                .filter_map(|word| word.split_once('='))
                .filter(|(name, _)| *name != "key")
                .map(|(name, value)| (name, if name == "balance_factor" { "125".into() } else { numbers(value) }))
                .collect();
            let parameters: Vec<(&str, &str)> =
                parameters.iter().map(|(name, value)| (*name, value.as_str())).collect();
            Spec::new(entry, &parameters).unwrap_or_else(|error| panic!("{piece}: {error}"));
            checked += 1;
        }
    }
    assert!(checked > 60, "{checked}");
}

#[test]
fn every_example_is_a_right_configuration() {
    for entry in registry::entries() {
        let upstream = example(entry);
        let text =
            format!("events {{ }}\nhttp {{\n{upstream}server {{ location / {{ proxy_pass http://app; }} }}\n}}\n");
        let mut files = Bundle::default();
        files.add_file("/n.conf", text.clone());
        let (config, problems) = load(&files, &balanza_config::Options::new("/", "/n.conf"));
        assert!(config.is_some() && problems.is_empty(), "{text}{problems:?}");
        let Some(config) = config else { continue };
        let spec = &config.http.upstreams[0].balance.spec;
        let (found, wanted) = (format!("{spec:?}"), format!("{:?}", Spec::new(entry, &[]).unwrap()));
        // The program that an example names is not there by default.
        assert!(found == wanted || found.contains("program="), "{text}{found}");
    }
}

/// A text without its line breaks.
fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn every_algorithm_is_in_every_form() {
    let list = list();
    for entry in registry::entries() {
        let (full, json) = (in_full(entry), in_json(entry));
        assert!(list.contains(entry.summary) && full.contains(entry.source), "{full}");
        assert_eq!(json["name"], entry.name);
        for (field, paragraph) in [("what", entry.what), ("when", entry.when), ("when_not", entry.when_not)] {
            assert!(!paragraph.is_empty() && json[field] == paragraph, "{} {field}", entry.name);
            assert!(words(&full).contains(&words(paragraph)), "{} {field}", entry.name);
        }
        for parameter in entry.parameters {
            assert!(full.contains(parameter.summary) && list.contains(parameter.name), "{full}");
        }
    }
}
