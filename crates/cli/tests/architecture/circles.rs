//! Circles of imports between the top-level modules of a crate.

use std::collections::{BTreeMap, BTreeSet};

use super::source::{self, Source};

/// The imports of a crate: from a module to another one, with a file that imports.
type Arrows = BTreeMap<String, BTreeMap<String, String>>;

/// Modules that import each other, in a crate.
#[derive(Debug, PartialEq, Eq)]
pub struct Circle {
    of: String,
    modules: BTreeSet<String>,
    /// The imports among them.
    arrows: Vec<String>,
}

impl Circle {
    /// The modules, and each import with a file.
    pub fn show(&self) -> String {
        let modules: Vec<&str> = self.modules.iter().map(String::as_str).collect();
        format!("crates/{}: {} import each other:\n    {}", self.of, modules.join(", "), self.arrows.join("\n    "))
    }
}

/// The circles of all crates.
pub fn of_crates(sources: &[Source]) -> Vec<Circle> {
    let mut crates: BTreeMap<&str, Vec<&Source>> = BTreeMap::new();
    for source in sources {
        if let Some((name, _)) = source.path.split_once("/src/") {
            crates.entry(name).or_default().push(source);
        }
    }
    crates.iter().flat_map(|(name, files)| circles(name, &arrows(name, files))).collect()
}

/// The path of a file's module, from the crate's root.
fn module(file: &Source) -> Vec<String> {
    let path = file.directory();
    let path = path.split_once("/src/").map_or("", |(_, path)| path);
    path.split('/').filter(|part| !part.is_empty()).map(str::to_string).collect()
}

fn arrows(name: &str, files: &[&Source]) -> Arrows {
    let modules: Vec<(Vec<String>, &Source)> = files.iter().map(|file| (module(file), *file)).collect();
    let tests = source::test_files(files.iter().copied());
    let top: BTreeSet<&String> = modules.iter().filter_map(|(module, _)| module.first()).collect();
    // What the root takes over from a module is that module's.
    let mut taken_over: BTreeMap<String, String> = BTreeMap::new();
    for (_, root) in modules.iter().filter(|(module, _)| module.is_empty()) {
        for path in paths(&root.code_without_tests(), "use ") {
            if let [first, .., last] = path.as_slice()
                && top.contains(first)
            {
                taken_over.insert(last.clone(), first.clone());
            }
        }
    }
    let mut arrows = Arrows::new();
    for (module, file) in &modules {
        let in_tests = tests.iter().any(|test| file.path.starts_with(test));
        let Some(from) = module.first().filter(|_| !in_tests) else { continue };
        let code = file.code_without_tests();
        let of_root = paths(&code, "crate::").into_iter();
        let of_above = paths(&code, "super::").into_iter().filter_map(|path| {
            let above = 1 + path.iter().take_while(|name| *name == "super").count();
            (above == module.len()).then(|| path[above - 1..].to_vec())
        });
        for path in of_root.chain(of_above) {
            let Some(to) = path.first().and_then(|first| top.get(first).copied().or(taken_over.get(first))) else {
                continue;
            };
            if to != from {
                arrows
                    .entry(from.clone())
                    .or_default()
                    .entry(to.clone())
                    .or_insert(format!("crates/{name}/{}", &file.path[name.len() + 1..]));
            }
        }
    }
    arrows
}

/// The paths after each `start`, with one for each name in braces.
fn paths(code: &str, start: &str) -> Vec<Vec<String>> {
    let begins = |at: &usize| !code[..*at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':' || c == '$');
    let starts = code.match_indices(start).filter(|(at, _)| begins(at));
    starts.flat_map(|(at, _)| tree(&mut code[at + start.len()..].trim_start().chars().peekable())).collect()
}

/// Reads a path of `use`, with what is in its braces.
fn tree(text: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Vec<Vec<String>> {
    let mut path: Vec<String> = vec![String::new()];
    loop {
        match text.peek() {
            Some('{') => {
                path.pop();
                let mut all = Vec::new();
                while text.next_if(|c| *c == '{' || *c == ',').is_some() {
                    while text.next_if(|c| c.is_whitespace()).is_some() {}
                    if text.peek() != Some(&'}') {
                        all.extend(tree(text).into_iter().map(|rest| [&path[..], &rest].concat()));
                    }
                    while text.next_if(|c| !"{,};".contains(*c)).is_some() {}
                }
                text.next_if(|c| *c == '}');
                return all;
            }
            Some(':') => {
                text.next();
                if text.next_if(|c| *c == ':').is_some() {
                    path.push(String::new());
                }
            }
            Some(c) if c.is_alphanumeric() || *c == '_' => {
                if let (Some(last), Some(c)) = (path.last_mut(), text.next()) {
                    last.push(c);
                }
            }
            _ => return vec![path],
        }
    }
}

/// The sets of modules that reach each other.
fn circles(of: &str, arrows: &Arrows) -> Vec<Circle> {
    let reach = |from: &str| {
        let (mut seen, mut next) = (BTreeSet::new(), vec![from.to_string()]);
        while let Some(module) = next.pop() {
            for to in arrows.get(&module).into_iter().flatten().map(|(to, _)| to) {
                if seen.insert(to.clone()) {
                    next.push(to.clone());
                }
            }
        }
        seen
    };
    let reached: BTreeMap<&String, BTreeSet<String>> = arrows.keys().map(|module| (module, reach(module))).collect();
    let mut circles: Vec<Circle> = Vec::new();
    for (module, all) in reached.iter().filter(|(module, all)| all.contains(**module)) {
        let back = |other: &&String| reached.get(other).is_some_and(|back| back.contains(*module));
        let modules: BTreeSet<String> = all.iter().filter(back).cloned().collect();
        if circles.iter().all(|circle| circle.modules != modules) {
            let among = arrows.iter().filter(|(from, _)| modules.contains(*from)).flat_map(|(from, to)| {
                let to = to.iter().filter(|(to, _)| modules.contains(*to));
                to.map(move |(to, place)| format!("{from} -> {to} in {place}"))
            });
            circles.push(Circle { of: of.into(), arrows: among.collect(), modules });
        }
    }
    circles
}

#[test]
fn circles_are_found() {
    let file = |path: &str, text: &str| Source { path: path.into(), text: text.into() };
    let found = |files: &[(&str, &str)]| {
        let files: Vec<Source> = files.iter().map(|(path, text)| file(path, text)).collect();
        let circles = of_crates(&files);
        circles.iter().map(|circle| circle.modules.iter().cloned().collect::<Vec<_>>().join(" ")).collect::<Vec<_>>()
    };
    let none: [&str; 0] = [];
    assert_eq!(found(&[("a/src/x.rs", "use crate::y::Y;"), ("a/src/y.rs", "use crate::z;"), ("a/src/z.rs", "")]), none);
    let way = [("a/src/x.rs", "use crate::y::Y;"), ("a/src/y.rs", "use std::{fmt, io};"), ("a/src/z.rs", "")];
    for back in [
        "use crate::x::X;",
        "use super::x::X;",
        "use crate::{z, x::{X, Y}};",
        "use super::{z::{A, B}, x};",
        "fn f() -> crate::x::X {}",
        "use crate::{z::{\n    A,\n    B,\n},\n    x\n};",
    ] {
        assert_eq!(found(&[way[0], ("a/src/y.rs", back), way[2]]), ["x y"], "{back}");
    }
    for none_back in
        ["// use crate::x;", "#[cfg(test)]\nmod t { use crate::x; }", "\"crate::x\"", "use other_crate::x;"]
    {
        assert_eq!(found(&[way[0], ("a/src/y.rs", none_back), way[2]]), none, "{none_back}");
    }
    // In folders, over the root, over a third module, and in files of tests.
    let deep = [("a/src/x/mod.rs", "use crate::y;"), ("a/src/x/d.rs", "use super::mod_of_x;"), ("a/src/y.rs", "")];
    assert_eq!(found(&deep), none);
    assert_eq!(found(&[deep[0], ("a/src/y/e.rs", "use super::super::x::X;")]), ["x y"]);
    let root = ("a/src/lib.rs", "mod x;\nmod y;\npub use x::{One, Two};");
    assert_eq!(found(&[root, ("a/src/x.rs", "use crate::y;"), ("a/src/y.rs", "use crate::Two;")]), ["x y"]);
    assert_eq!(found(&[way[0], ("a/src/y.rs", "use crate::z;"), ("a/src/z.rs", "use crate::x;")]), ["x y z"]);
    let tests = [way[0], ("a/src/y.rs", "#[cfg(test)]\nmod tests;"), ("a/src/y/tests.rs", "use crate::x;")];
    assert_eq!(found(&tests), none);
}

#[test]
fn a_circle_is_shown_with_its_imports() {
    let files = [("a/src/x.rs", "use crate::y;"), ("a/src/y.rs", "use crate::x;"), ("a/src/z.rs", "use crate::x;")];
    let files: Vec<Source> =
        files.iter().map(|(path, text)| Source { path: path.to_string(), text: text.to_string() }).collect();
    let shown: Vec<String> = of_crates(&files).iter().map(Circle::show).collect();
    let imports = "x -> y in crates/a/src/x.rs\n    y -> x in crates/a/src/y.rs";
    assert_eq!(shown, [format!("crates/a: x, y import each other:\n    {imports}")]);
}
