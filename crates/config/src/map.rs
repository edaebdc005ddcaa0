//! `map`, and what it shares with `geo` and `split_clients`.

use std::collections::HashMap;

use crate::directives::Directive;
use crate::load::Builder;
use crate::model::{Map, MapTable, Table};
use crate::names::{NameKind, Wildcards, classify};
use crate::template::{Part, Template, Variable};
use crate::tree::Statement;

impl Builder<'_> {
    /// Makes the variables of `map`, `geo` and `split_clients` known, and returns the blocks in the order of the text.
    pub fn announce_maps<'s>(&mut self, usable: &[(&Directive, &'s Statement)]) -> Vec<&'s Statement> {
        let mut blocks = Vec::new();
        for (directive, statement) in usable {
            if !matches!(directive.name, "map" | "geo" | "split_clients" | "keyval") {
                continue;
            }
            if self.announce_map(statement, blocks.len()).is_some() {
                blocks.push(*statement);
            } else if let Some(word) = statement.words.get(named_at(statement)) {
                // The block is refused; uses of its variable are no errors of their own.
                self.announce(word, false);
            }
        }
        blocks
    }

    /// Reads the blocks that were announced.
    pub fn maps(&mut self, blocks: &[&Statement]) -> Vec<Map> {
        let read = |statement: &&Statement| match statement.words[0].value.as_slice() {
            b"geo" => self.geo(statement),
            b"split_clients" => self.split_clients(statement),
            b"keyval" => self.keyval(statement),
            _ => self.map(statement),
        };
        let maps: Vec<Map> = blocks.iter().filter_map(read).collect();
        if maps.len() == blocks.len() {
            self.check_map_cycles(blocks, &maps);
        }
        maps
    }

    /// Makes a map's variable known; `None` when its name cannot be a map's.
    fn announce_map(&mut self, s: &Statement, index: usize) -> Option<()> {
        let word = s.words.get(named_at(s))?;
        let name = match word.value.split_first() {
            Some((b'$', name)) if !name.is_empty() => String::from_utf8_lossy(name).into_owned(),
            _ => {
                self.error(word.span, format!("invalid variable name \"{}\"", word.text()));
                return None;
            }
        };
        if self.variables.is_builtin(&name) {
            let hint = format!("${name} has a fixed meaning; choose another name");
            self.error_hint(word.span, format!("the duplicate \"{name}\" variable"), hint);
            return None;
        }
        self.variables.add_map(&name, index);
        Some(())
    }

    fn map(&mut self, s: &Statement) -> Option<Map> {
        let source = self.template(&s.words[1])?;
        let mut table = MapTable { exact: HashMap::new(), wildcards: None, regexes: Vec::new(), default: None };
        let mut volatile = false;
        for line in s.block.iter().flatten() {
            if line.block.is_some() {
                self.error(line.span(), "unexpected \"{\"");
                continue;
            }
            match line.words.as_slice() {
                [word] if word.value == b"hostnames" => {
                    table.wildcards.get_or_insert_default();
                }
                [word] if word.value == b"volatile" => volatile = true,
                [_, value] => {
                    if let Some(value) = self.template(value) {
                        self.map_entry(&mut table, line, value);
                    }
                }
                _ => self.error(line.span(), "invalid number of the map parameters"),
            }
        }
        Some(Map { source, table: Table::Map(table), volatile })
    }

    /// A map whose value depends on itself. NGINX finds out while it serves a request, and answers 500.
    fn check_map_cycles(&mut self, blocks: &[&Statement], maps: &[Map]) {
        let uses: Vec<Vec<usize>> = maps.iter().map(Map::uses).collect();
        for (start, block) in blocks.iter().enumerate() {
            let mut seen = vec![false; maps.len()];
            let mut open = uses[start].clone();
            while let Some(map) = open.pop() {
                if map == start {
                    let word = &block.words[named_at(block)];
                    let name = word.text();
                    let message = format!("cycle while evaluating variable \"{}\"", name.trim_start_matches('$'));
                    self.error(word.span, message);
                    break;
                }
                if !std::mem::replace(&mut seen[map], true) {
                    open.extend(&uses[map]);
                }
            }
        }
    }

    fn map_entry(&mut self, table: &mut MapTable, line: &Statement, value: Template) {
        let word = &line.words[0];
        let mut key = word.value.as_slice();
        if key == b"default" {
            if table.default.replace(value).is_some() {
                self.error(word.span, "duplicate default map parameter");
            }
            return;
        }
        if let Some(pattern) = key.strip_prefix(b"~") {
            let (pattern, caseless) = match pattern.strip_prefix(b"*") {
                Some(pattern) => (pattern, true),
                None => (pattern, false),
            };
            let regex = self.regex(pattern, caseless, word.span);
            table.regexes.extend(regex.map(|regex| (regex, value)));
            return;
        }
        // A backslash lets a key begin with "~" or be a word of the block's own.
        key = key.strip_prefix(b"\\").unwrap_or(key);
        let lower = key.to_ascii_lowercase();
        let conflict = match table.wildcards.as_mut() {
            None => insert_exact(&mut table.exact, &lower, value),
            Some(wildcards) => match classify(&lower) {
                NameKind::Invalid => {
                    return self.error(word.span, format!("invalid hostname or wildcard \"{}\"", word.text()));
                }
                NameKind::Exact(name) => insert_exact(&mut table.exact, name, value),
                kind @ NameKind::Dot(name) => {
                    let free = wildcards.insert(&kind, value.clone());
                    insert_exact(&mut table.exact, name, value) || !free
                }
                kind => !wildcards.insert(&kind, value),
            },
        };
        if conflict {
            self.error(word.span, format!("conflicting parameter \"{}\"", word.text()));
        }
    }
}

/// Where a statement has the variable that it defines.
fn named_at(s: &Statement) -> usize {
    if s.words[0].value == b"keyval" { 2 } else { s.words.len() - 1 }
}

/// Adds an exact key; whether it was there already.
fn insert_exact(exact: &mut HashMap<Box<[u8]>, Template>, key: &[u8], value: Template) -> bool {
    exact.insert(key.into(), value).is_some()
}

impl Map {
    /// Its source and its values.
    pub(crate) fn templates(&self) -> impl Iterator<Item = &Template> {
        let table = match &self.table {
            Table::Map(table) => Some(table),
            Table::Geo(_) | Table::Split(_) | Table::Keyval(_) => None,
        };
        let values = table.into_iter().flat_map(|table| {
            let regexes = table.regexes.iter().map(|(_, value)| value);
            let wildcards = table.wildcards.iter().flat_map(Wildcards::values);
            table.exact.values().chain(regexes).chain(wildcards).chain(&table.default)
        });
        std::iter::once(&self.source).chain(values)
    }

    /// The maps that this one's source and values refer to.
    fn uses(&self) -> Vec<usize> {
        self.templates()
            .flat_map(Template::parts)
            .filter_map(|part| match part {
                Part::Variable(Variable::Map(index)) => Some(*index),
                _ => None,
            })
            .collect()
    }
}
