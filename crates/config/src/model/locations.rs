//! URIs to locations, searched as NGINX searches them.

use std::collections::HashMap;
use std::sync::Arc;

use super::{Location, Matcher};
use crate::regex::{self, Captures, MatchError, Regex};

/// The locations of one level.
#[derive(Debug, Default)]
pub struct LocationTree {
    /// Exact and prefix locations, sorted by name.
    nodes: Vec<Node>,
    /// In the order of the configuration.
    regexes: Vec<Arc<Location>>,
    named: HashMap<Box<[u8]>, Arc<Location>>,
}

#[derive(Debug)]
struct Node {
    name: Box<[u8]>,
    exact: Option<Arc<Location>>,
    prefix: Option<Arc<Location>>,
    /// The longest other prefix location whose name begins this name.
    shorter: Option<usize>,
}

impl Node {
    fn redirect(&self) -> Option<&Arc<Location>> {
        let redirecting = self.exact.iter().chain(&self.prefix).any(|location| location.auto_redirect);
        if redirecting { self.exact.as_ref().or(self.prefix.as_ref()) } else { None }
    }
}

/// What a search of one level found.
enum Found<'a> {
    /// Nothing else is looked for.
    Final(&'a Arc<Location>),
    /// A prefix: regular expressions may still win.
    Prefix(&'a Arc<Location>),
}

impl LocationTree {
    /// A tree of these locations, which must have different names.
    pub(crate) fn new(locations: Vec<Arc<Location>>) -> LocationTree {
        let mut tree = LocationTree::default();
        let mut nodes: std::collections::BTreeMap<Box<[u8]>, Node> = std::collections::BTreeMap::new();
        for location in locations {
            let (name, exact) = match &location.matcher {
                Matcher::Regex(_) => {
                    tree.regexes.push(location);
                    continue;
                }
                Matcher::Named(name) => {
                    tree.named.insert(name.clone(), location);
                    continue;
                }
                Matcher::Exact(name) => (name.clone(), true),
                Matcher::Prefix { prefix, .. } => (prefix.clone(), false),
            };
            let node = nodes.entry(name.clone()).or_insert(Node { name, exact: None, prefix: None, shorter: None });
            *(if exact { &mut node.exact } else { &mut node.prefix }) = Some(location);
        }
        tree.nodes = nodes.into_values().collect();
        // In sorted order a name's prefixes precede it, so a stack of open prefixes finds each node's longest one.
        let mut open: Vec<usize> = Vec::new();
        for i in 0..tree.nodes.len() {
            while open.last().is_some_and(|last| !tree.nodes[i].name.starts_with(&tree.nodes[*last].name)) {
                open.pop();
            }
            tree.nodes[i].shorter = open.last().copied();
            if tree.nodes[i].prefix.is_some() {
                open.push(i);
            }
        }
        tree
    }

    /// The location of a normalised URI: an exact one; otherwise the longest prefix, unless a regular expression of
    /// the same or an inner level matches first. The search goes on inside the location that it found.
    ///
    /// A location that [`Location::redirects`] the URI is found too: a request for it gets 301.
    /// After a regular expression matched, `captures` holds its groups.
    ///
    /// # Errors
    /// An expression of which it is not known whether it matches.
    pub fn find(&self, uri: &[u8], captures: &mut Captures) -> Result<Option<&Arc<Location>>, Box<MatchError>> {
        Ok(self.find_regex(uri, captures)?.map(|(location, _)| location))
    }

    /// The same, with the regular expression that matched last, whose named groups set variables: the location's own,
    /// or that of a location around it.
    ///
    /// # Errors
    /// As [`LocationTree::find`].
    pub fn find_regex(&self, uri: &[u8], captures: &mut Captures) -> regex::Found<'_, Location> {
        let mut matched = None;
        let found = self.search(uri, captures, &mut matched)?;
        Ok(found.map(|(Found::Final(location) | Found::Prefix(location))| (location, matched)))
    }

    fn search<'a>(
        &'a self,
        uri: &[u8],
        captures: &mut Captures,
        matched: &mut Option<&'a Regex>,
    ) -> Result<Option<Found<'a>>, Box<MatchError>> {
        let mut found = None;
        let mut try_regexes = true;
        match self.search_static(uri) {
            Some(Found::Prefix(location)) => {
                try_regexes = !matches!(&location.matcher, Matcher::Prefix { no_regex: true, .. });
                match location.nested.search(uri, captures, matched)? {
                    Some(Found::Final(inner)) => return Ok(Some(Found::Final(inner))),
                    Some(Found::Prefix(inner)) => found = Some(Found::Prefix(inner)),
                    None => found = Some(Found::Prefix(location)),
                }
            }
            Some(Found::Final(location)) => return Ok(Some(Found::Final(location))),
            None => {}
        }
        if try_regexes {
            for location in &self.regexes {
                if let Matcher::Regex(regex) = &location.matcher
                    && regex.find(uri, captures)?
                {
                    *matched = Some(regex);
                    let inner = match location.nested.search(uri, captures, matched)? {
                        Some(Found::Final(inner) | Found::Prefix(inner)) => inner,
                        None => location,
                    };
                    return Ok(Some(Found::Final(inner)));
                }
            }
        }
        Ok(found)
    }

    fn search_static(&self, uri: &[u8]) -> Option<Found<'_>> {
        // The greatest name that is not greater than the URI: any name that begins the URI also begins this one.
        let after = self.nodes.partition_point(|node| &*node.name <= uri);
        if let Some(node) = after.checked_sub(1).map(|i| &self.nodes[i])
            && *node.name == *uri
        {
            let exact = node.exact.as_ref().map(Found::Final);
            if let Some(found) = exact.or_else(|| node.prefix.as_ref().map(Found::Prefix)) {
                return Some(found);
            }
        }
        // "/api" for the location "/api/": the only name between the two is "/api" with a byte below "/" behind it.
        let slash = self.nodes[after..].binary_search_by(|node| {
            let tail = uri.iter().copied().chain(std::iter::once(b'/'));
            node.name.iter().copied().cmp(tail)
        });
        if let Ok(i) = slash
            && let Some(location) = self.nodes[after + i].redirect()
        {
            return Some(Found::Final(location));
        }
        let mut next = after.checked_sub(1);
        while let Some(i) = next {
            let node = &self.nodes[i];
            if let Some(location) = &node.prefix
                && uri.starts_with(&node.name)
            {
                return Some(Found::Prefix(location));
            }
            next = node.shorter;
        }
        None
    }

    /// A named location, with or without its "@".
    pub fn named(&self, name: &[u8]) -> Option<&Arc<Location>> {
        self.named.get(name.strip_prefix(b"@").unwrap_or(name))
    }

    /// The locations of this level, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Location>> {
        self.nodes
            .iter()
            .flat_map(|node| node.exact.iter().chain(&node.prefix))
            .chain(&self.regexes)
            .chain(self.named.values())
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty() && self.regexes.is_empty() && self.named.is_empty()
    }
}

impl Location {
    /// Whether a request for this URI is answered with 301 to the same URI with a "/" behind it.
    pub fn redirects(&self, uri: &[u8]) -> bool {
        let name = match &self.matcher {
            Matcher::Exact(name) | Matcher::Prefix { prefix: name, .. } => name,
            Matcher::Regex(_) | Matcher::Named(_) => return false,
        };
        self.auto_redirect && name.len() == uri.len() + 1 && name.starts_with(uri)
    }
}
