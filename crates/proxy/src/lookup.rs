//! The values of `map`, `geo`, `split_clients` and `keyval`, for requests and sessions.

use std::net::IpAddr;

use balanza_config::model::{Geo, Map, MapTable, Table};
use balanza_config::regex::{Captures, MatchError, Regex};
use balanza_config::template::Template;

use crate::undecided::Undecided;

/// Values that were worked out.
pub type Known = Vec<Option<Result<Vec<u8>, Undecided>>>;

/// A request or a session.
pub trait Subject {
    /// Appends a template's value.
    ///
    /// # Errors
    /// A regular expression is undecided.
    fn render(&mut self, template: &Template, out: &mut Vec<u8>) -> Result<(), Undecided>;
    /// The values that it has.
    fn known(&mut self) -> &mut Known;
    /// The groups of its last regular expression.
    fn captures(&mut self) -> &mut Captures;
    /// Puts the named groups of the expression that has just matched into their variables.
    fn keep_named_groups(&mut self, regex: &Regex);
    /// Logs why it is not known whether an expression matches.
    fn undecided(&self, error: &MatchError) -> Undecided;
    /// Its client's address, that before the proxies of this `geo`. `source` is the text of its variable.
    fn address(&self, geo: &Geo, source: &[u8]) -> Option<IpAddr>;
    /// The value of a pair of the zone of `keyval` with this number.
    fn pair(&self, zone: usize, key: &[u8]) -> Option<Vec<u8>>;
}

/// Appends the value of the variable with this index.
///
/// # Errors
/// A regular expression is undecided.
pub fn value(maps: &[Map], index: usize, subject: &mut impl Subject, out: &mut Vec<u8>) -> Result<bool, Undecided> {
    let map = &maps[index];
    if let Some(Some(known)) = subject.known().get(index)
        && !map.volatile
    {
        out.extend_from_slice(known.as_ref().map_err(|undecided| *undecided)?);
        return Ok(true);
    }
    let result = find(map, subject);
    if let Ok(value) = &result {
        out.extend_from_slice(value);
    }
    let decided = result.as_ref().map(|_| true).map_err(|undecided| *undecided);
    let known = subject.known();
    if known.len() <= index {
        known.resize(index + 1, None);
    }
    known[index] = Some(result);
    decided
}

fn find(map: &Map, subject: &mut impl Subject) -> Result<Vec<u8>, Undecided> {
    let mut source = Vec::new();
    subject.render(&map.source, &mut source)?;
    match &map.table {
        Table::Map(table) => find_in_map(table, source, subject),
        Table::Geo(geo) => Ok(geo.networks.find(subject.address(geo, &source)).to_vec()),
        Table::Split(split) => Ok(split.find(&source).to_vec()),
        Table::Keyval(zone) => Ok(subject.pair(*zone, &source).unwrap_or_default()),
    }
}

fn find_in_map(table: &MapTable, mut source: Vec<u8>, subject: &mut impl Subject) -> Result<Vec<u8>, Undecided> {
    if table.wildcards.is_some() && source.ends_with(b".") {
        source.pop();
    }
    let lower = source.to_ascii_lowercase();
    let mut entry = table.exact.get(&lower[..]).or_else(|| table.wildcards.as_ref()?.find(&lower));
    if entry.is_none() {
        for (regex, template) in &table.regexes {
            let found = regex.find(&source, subject.captures());
            if found.map_err(|error| subject.undecided(&error))? {
                subject.keep_named_groups(regex);
                entry = Some(template);
                break;
            }
        }
    }
    let mut result = Vec::new();
    if let Some(template) = entry.or(table.default.as_ref()) {
        subject.render(template, &mut result)?;
    }
    Ok(result)
}

/// The address that a variable has; none if its value is not one.
pub fn parse_address(text: &[u8]) -> Option<IpAddr> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Sets a user variable.
pub fn set_user(users: &mut Vec<Option<Vec<u8>>>, slot: usize, value: Option<Vec<u8>>) {
    if users.len() <= slot {
        users.resize(slot + 1, None);
    }
    users[slot] = value;
}
