//! HAProxy's configuration: sections of lines, which become blocks of nginx.conf.

mod acl;
mod backend;
mod bind;
mod choice;
mod condition;
mod fields;
mod format;
mod frontend;
mod global;
mod ignored;
mod lines;
mod nginx;
mod notes;
mod proxy;
mod rules;
mod server;
mod stream;
mod time;

pub use lines::is_section;

use crate::Migration;
use lines::{Line, Section};
use nginx::{Node, Tree};
use notes::Notes;
use proxy::{Kind, Mode, Proxy};

/// Makes the map of a variable.
type Definition = fn() -> Node;

/// Variables of `http` that are defined when something uses them.
const HELPERS: [(&str, Definition); 2] = [
    ("$request_path", || {
        let lines = ["default $request_uri", "\"~^([^?]*)\\?\" $1"].map(Node::line);
        Node::Block("map $request_uri $request_path".into(), lines.into())
    }),
    ("$connection_upgrade", || {
        let lines = ["default upgrade", "\"\" \"\""].map(Node::line);
        Node::Block("map $http_upgrade $connection_upgrade".into(), lines.into())
    }),
];

/// Carries a configuration over. `name` is that of the file, for comments.
pub fn translate(text: &str, name: &str) -> Migration {
    let mut notes = Notes::default();
    let sections = lines::sections(text, &mut notes);
    let proxies = proxies(&sections, &mut notes);
    let mut tree = Tree::default();
    let of_kind = |kind: &'static str| sections.iter().filter(move |section| section.kind == kind);
    for section in of_kind("global") {
        global::read(section, &mut tree, &mut notes);
    }
    for proxy in proxies.iter().filter(|proxy| proxy.kind != Kind::Frontend) {
        backend::upstream(proxy, &mut tree, &mut notes);
    }
    for proxy in proxies.iter().filter(|proxy| proxy.kind != Kind::Backend) {
        frontend::server(proxy, &proxies, &mut tree, &mut notes);
    }
    let is_tcp = |proxy: &&Proxy| proxy.mode == Mode::Tcp;
    tree.uses_http = proxies.iter().any(|proxy| !is_tcp(&proxy)) || proxies.is_empty();
    let notes = notes.into_list();
    let mut text = tree.write(name, &notes);
    for (variable, map) in HELPERS {
        if text.contains(variable) {
            tree.http_maps.insert(0, map());
            text = tree.write(name, &notes);
        }
    }
    Migration { text, notes }
}

/// The sections that take or send requests, each with what it has from its defaults.
fn proxies(sections: &[Section], notes: &mut Notes) -> Vec<Proxy> {
    let mut proxies: Vec<Proxy> = Vec::new();
    // Each with the lines of those that it is from.
    let mut defaults: Vec<(&Section, Vec<&Line>)> = Vec::new();
    let global =
        |words: &[&str]| sections.iter().any(|it| it.kind == "global" && it.lines.iter().any(|it| it.is(words)));
    let trusts_servers = global(&["ssl-server-verify", "none"]);
    for section in sections {
        let kind = match section.kind.as_str() {
            "global" => continue,
            "defaults" => {
                let lines = parent(section, &defaults, notes).into_iter().flatten().copied().chain(&section.lines);
                let lines = lines.collect();
                defaults.push((section, lines));
                continue;
            }
            "frontend" => Kind::Frontend,
            "backend" => Kind::Backend,
            "listen" => Kind::Listen,
            // The checks of names that change are Balanza's own.
            "resolvers" => {
                notes.add(&section.head, "write \"resolver ADDRESS;\" in the upstreams that need it");
                continue;
            }
            _ => {
                notes.add(&section.head, "this section has no counterpart");
                continue;
            }
        };
        let inherited = if section.head.words.iter().any(|word| word == "from") {
            parent(section, &defaults, notes)
        } else {
            defaults.last().map(|(_, lines)| lines)
        };
        let lines = inherited.into_iter().flatten().copied().chain(&section.lines);
        let proxy = Proxy::read(kind, section, lines, notes);
        let own = own_name(&proxy, &proxies);
        proxies.push(Proxy { trusts_servers, own, ..proxy });
    }
    proxies
}

/// A section's name in nginx.conf. `a-1` and `a_1` are written alike there: the later one has a number.
fn own_name(proxy: &Proxy, before: &[Proxy]) -> String {
    let is_taken =
        |own: &str| before.iter().any(|other| other.name != proxy.name && other.own.eq_ignore_ascii_case(own));
    let numbered = (2..).map(|number| format!("{}_{number}", proxy.own));
    std::iter::once(proxy.own.clone()).chain(numbered).find(|own| !is_taken(own)).unwrap_or_default()
}

/// The lines of the defaults that a section names with "from".
fn parent<'a, 'b>(
    section: &Section,
    defaults: &'b [(&'a Section, Vec<&'a Line>)],
    notes: &mut Notes,
) -> Option<&'b Vec<&'a Line>> {
    let words = &section.head.words;
    let name = words.iter().position(|word| word == "from").and_then(|at| words.get(at + 1))?;
    let found = defaults.iter().find(|(it, _)| it.head.words.get(1) == Some(name));
    if found.is_none() {
        notes.add(&section.head, format!("there are no defaults \"{name}\" before it"));
    }
    found.map(|(_, lines)| lines)
}

#[cfg(test)]
mod tests;
