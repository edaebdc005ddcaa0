//! The rules of the code that the compiler does not check: no circle of imports between the modules of a crate, files of a
//! size that can be read, `unsafe` in few places, and nothing that an algorithm's name decides outside the registry.

mod circles;
mod source;

use std::path::{Path, PathBuf};

use balanza_balancing::registry;
use source::Source;

/// Longer files are several subjects.
const LINES_MAX: usize = 600;

/// Where `unsafe` stands.
/// The test counts allocations with an allocator of its own.
const UNSAFE: [&str; 5] = [
    "balancing/tests/allocations.rs",
    "net/src/event_loop/waker.rs",
    "net/src/watch.rs",
    "supervisor/src/sys.rs",
    "nginx-module/src/",
];

/// Where algorithms are spelled as other programs do, the name is a log format's, and losses are compared with those of
/// `random`.
const SPELLINGS: [&str; 7] = [
    "config/src/logs.rs",
    "simulator/src/advice.rs",
    "lab/src/system/caddy.rs",
    "lab/src/system/haproxy.rs",
    "lab/src/system/method.rs",
    "lab/src/system/supports.rs",
    "migrate/src/haproxy/backend.rs",
];

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// All files of all crates, without `target` directories.
fn sources() -> Vec<Source> {
    let mut sources = Vec::new();
    for entry in std::fs::read_dir(crates()).unwrap().map(Result::unwrap) {
        for part in ["src", "tests", "benches", "examples"] {
            source::read(&crates(), &entry.path().join(part), &mut sources);
        }
    }
    assert!(sources.len() > 500, "{} files", sources.len());
    sources
}

#[test]
fn modules_do_not_import_each_other_in_a_circle() {
    let circles = circles::of_crates(&sources());
    let wrong: Vec<String> = circles.iter().map(circles::Circle::show).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Files over the limit.
fn long(sources: &[Source]) -> Vec<String> {
    let lines = |file: &Source| file.text.lines().count();
    let over = sources.iter().filter(|file| lines(file) > LINES_MAX);
    over.map(|file| format!("{}: {} lines; {LINES_MAX} are enough", file.path, lines(file))).collect()
}

#[test]
fn files_are_short() {
    let wrong = long(&sources());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Files with `unsafe` code outside the places for it, and places without any.
fn with_unsafe(sources: &[Source], places: &[&str]) -> Vec<String> {
    let unsafes: Vec<&Source> =
        sources.iter().filter(|file| source::words(&file.code()).any(|w| w == "unsafe")).collect();
    let outside = unsafes.iter().filter(|file| !places.iter().any(|place| file.path.starts_with(place)));
    let outside = outside.map(|file| format!("{}: unsafe code belongs in {}", file.path, places.join(", ")));
    let idle = places.iter().filter(|place| !unsafes.iter().any(|file| file.path.starts_with(*place)));
    outside.chain(idle.map(|place| format!("{place}: no unsafe code here; take it off the list"))).collect()
}

#[test]
fn unsafe_code_is_where_it_belongs() {
    let wrong = with_unsafe(&sources(), &UNSAFE);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Lines of a program that compare something with an algorithm's name.
fn decided_by_name(sources: &[Source], places: &[&str]) -> Vec<String> {
    let names = || registry::entries().iter().flat_map(|entry| entry.aliases.iter().chain([&entry.name]));
    let mut wrong = Vec::new();
    let tests = source::test_files(sources);
    let of_program =
        |file: &&Source| file.path.contains("/src/") && !tests.iter().any(|test| file.path.starts_with(test));
    let elsewhere = |file: &&Source| !file.path.starts_with("balancing/") && !places.contains(&file.path.as_str());
    for file in sources.iter().filter(of_program).filter(elsewhere) {
        for line in file.without_tests().lines().filter(|line| line.contains('"')) {
            let compared = |name: &str| {
                let word = format!("\"{name}\"");
                let patterns =
                    || ["== W", "!= W", "W =>", "W if ", "W |", "| W"].map(|pattern| pattern.replace('W', &word));
                line.contains(&word)
                    && patterns().iter().any(|pattern| line.contains(pattern) && !line.contains(&format!("b{pattern}")))
            };
            if let Some(name) = names().find(|name| compared(name)) {
                wrong.push(format!(
                    "{}: \"{name}\" decides; make it a property of registry::Entry:\n    {}",
                    file.path,
                    line.trim()
                ));
            }
        }
    }
    wrong
}

#[test]
fn algorithms_names_decide_nothing() {
    let wrong = decided_by_name(&sources(), &SPELLINGS);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The lines that each part of a patch looks for, with the path of the file.
fn sought(patch: &str) -> Vec<(String, String)> {
    let mut parts: Vec<(String, String)> = Vec::new();
    let mut path = "";
    for line in patch.lines() {
        if let Some(rest) = line.strip_prefix("--- a/") {
            path = rest;
        } else if line.starts_with("@@") {
            parts.push((path.to_owned(), String::new()));
        } else if let Some((_, text)) = parts.last_mut()
            && let Some(kept) = line.strip_prefix([' ', '-'])
        {
            text.push_str(kept);
            text.push('\n');
        }
    }
    parts
}

#[test]
fn deliberate_mistakes_can_be_made() {
    let (mut patches, mut parts) = (0, 0);
    for entry in std::fs::read_dir(crates().join("proxy/src/simulation/mutations")).unwrap() {
        let patch = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        patches += 1;
        for (path, text) in sought(&patch) {
            let file = std::fs::read_to_string(crates().join("..").join(&path)).unwrap();
            assert!(file.contains(&text), "{path} has changed; make the patch anew that looks for\n{text}");
            parts += 1;
        }
    }
    assert!(patches >= 5 && parts >= patches, "{patches} patches, {parts} parts");
}

#[test]
fn each_rule_can_be_broken() {
    let file = |path: &str, text: &str| Source { path: path.into(), text: text.into() };
    let many = "\n".repeat(LINES_MAX + 1);
    let files = [file("a/src/x.rs", &many), file("a/src/y.rs", "\n")];
    assert_eq!(long(&files), [format!("a/src/x.rs: {} lines; {LINES_MAX} are enough", LINES_MAX + 1)]);

    let files = [file("a/src/x.rs", "fn f() { unsafe { g() } }"), file("a/src/y.rs", "// unsafe\nlet s = \"unsafe\";")];
    assert!(
        with_unsafe(&files, &[])[0].starts_with("a/src/x.rs: unsafe code belongs"),
        "{:?}",
        with_unsafe(&files, &[])
    );
    assert!(with_unsafe(&files, &["a/src/x.rs"]).is_empty());
    assert_eq!(with_unsafe(&files, &["a/src/"; 1]), [] as [String; 0]);
    assert_eq!(with_unsafe(&files, &["a/src/x.rs", "a/src/y.rs"]).len(), 1, "nothing there");

    let text = "if entry.name == \"hash\" {}\n#[cfg(test)]\nmod tests { fn f() { x == \"hash\" } }\n";
    let files = [file("a/src/x.rs", text), file("a/src/y.rs", "match b { b\"hash\" => 1, \"other\" => 2 }")];
    assert_eq!(decided_by_name(&files, &[]).len(), 1, "{:?}", decided_by_name(&files, &[]));
    assert!(decided_by_name(&files, &["a/src/x.rs"]).is_empty());
}
