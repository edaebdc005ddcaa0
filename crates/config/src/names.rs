//! Host names to servers: exact, wildcard, regular expression.

use rustc_hash::FxHashMap as HashMap;
use std::sync::Arc;

use crate::regex::{Captures, Found, Regex};

/// Names with a wildcard at an end, leading before trailing: the longest match of `*.example.com` or `www.example.*`.
#[derive(Debug, Clone)]
pub struct Wildcards<T> {
    /// By what follows `*.`.
    leading: HashMap<Box<[u8]>, T>,
    /// By what precedes `.*`.
    trailing: HashMap<Box<[u8]>, T>,
}

impl<T> Default for Wildcards<T> {
    fn default() -> Self {
        Wildcards { leading: HashMap::default(), trailing: HashMap::default() }
    }
}

/// A name as `server_name` and `map … hostnames` classify it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NameKind<'a> {
    /// A plain name.
    Exact(&'a [u8]),
    /// `.example.com`: the name and everything below it.
    Dot(&'a [u8]),
    /// `*.example.com`.
    Leading(&'a [u8]),
    /// `www.example.*`.
    Trailing(&'a [u8]),
    /// Wildcards elsewhere, or empty labels.
    Invalid,
}

/// Classifies a lower-case name.
pub(crate) fn classify(name: &[u8]) -> NameKind<'_> {
    let stars = name.iter().filter(|b| **b == b'*').count();
    if stars > 1 || name.contains(&0) || name.windows(2).any(|pair| pair == b"..") {
        return NameKind::Invalid;
    }
    match name {
        [b'.', rest @ ..] if !rest.is_empty() && stars == 0 => NameKind::Dot(rest),
        [b'*', b'.', rest @ ..] if !rest.is_empty() => NameKind::Leading(rest),
        [rest @ .., b'.', b'*'] if !rest.is_empty() => NameKind::Trailing(rest),
        _ if stars == 0 => NameKind::Exact(name),
        _ => NameKind::Invalid,
    }
}

impl<T> Wildcards<T> {
    /// Adds a name that [`classify`] calls `Dot`, `Leading` or `Trailing`; `false` when it is there already.
    pub(crate) fn insert(&mut self, kind: &NameKind<'_>, value: T) -> bool {
        use std::collections::hash_map::Entry;
        let entry = match kind {
            NameKind::Dot(rest) | NameKind::Leading(rest) => self.leading.entry(Box::from(*rest)),
            NameKind::Trailing(rest) => self.trailing.entry(Box::from(*rest)),
            NameKind::Exact(_) | NameKind::Invalid => return false,
        };
        match entry {
            Entry::Occupied(_) => false,
            Entry::Vacant(entry) => {
                entry.insert(value);
                true
            }
        }
    }

    /// All values, in no order.
    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.leading.values().chain(self.trailing.values())
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.leading.is_empty() && self.trailing.is_empty()
    }

    /// The value for a lower-case host name.
    pub fn find(&self, host: &[u8]) -> Option<&T> {
        if !self.leading.is_empty() {
            // Cutting label after label from the left tries the longest suffix first.
            let dots = (0..host.len()).filter(|i| host[*i] == b'.');
            if let Some(found) = dots.into_iter().find_map(|dot| self.leading.get(&host[dot + 1..])) {
                return Some(found);
            }
        }
        if self.trailing.is_empty() {
            return None;
        }
        let dots = (0..host.len()).rev().filter(|i| host[*i] == b'.');
        dots.into_iter().find_map(|dot| self.trailing.get(&host[..dot]))
    }
}

/// The server names of one address: those of `http` or `stream`.
#[derive(Debug)]
pub struct ServerNames<T> {
    pub(crate) exact: HashMap<Box<[u8]>, Arc<T>>,
    pub(crate) wildcards: Wildcards<Arc<T>>,
    pub(crate) regexes: Vec<(Regex, Arc<T>)>,
}

impl<T> Default for ServerNames<T> {
    fn default() -> Self {
        ServerNames { exact: HashMap::default(), wildcards: Wildcards::default(), regexes: Vec::new() }
    }
}

impl<T> ServerNames<T> {
    /// The server for a host name: lower case, without port and trailing dot. `None` means the default server.
    /// After a regular expression matched, `captures` holds its groups; the expression comes with the server, because its
    /// named groups set variables.
    ///
    /// # Errors
    /// An expression of which it is not known whether it matches.
    pub fn find(&self, host: &[u8], captures: &mut Captures) -> Found<'_, T> {
        if let Some(server) = self.exact.get(host) {
            return Ok(Some((server, None)));
        }
        if host.is_empty() {
            return Ok(None);
        }
        if let Some(server) = self.wildcards.find(host) {
            return Ok(Some((server, None)));
        }
        for (regex, server) in &self.regexes {
            if regex.find(host, captures)? {
                return Ok(Some((server, Some(regex))));
            }
        }
        Ok(None)
    }
}
