//! HAProxy's configuration: sections of lines, which become blocks of nginx.conf.

mod acl;
mod backend;
mod bind;
mod condition;
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
mod time;

use crate::Migration;
use lines::Section;
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
    let mut defaults: Vec<&Section> = Vec::new();
    for section in sections {
        let kind = match section.kind.as_str() {
            "global" => continue,
            "defaults" => {
                defaults.push(section);
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
        let from =
            section.head.words.iter().position(|word| word == "from").and_then(|at| section.head.words.get(at + 1));
        let inherited = match from {
            Some(name) => defaults.iter().find(|it| it.head.words.get(1) == Some(name)).copied(),
            None => defaults.last().copied(),
        };
        let lines = inherited.into_iter().flat_map(|it| &it.lines).chain(&section.lines);
        proxies.push(Proxy::read(kind, section, lines, notes));
    }
    proxies
}

#[cfg(test)]
mod tests;
