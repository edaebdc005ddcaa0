//! Variables whose value is looked up: `map`, `geo`, `split_clients`.

use std::collections::HashMap;

use super::AccessWho;
use crate::names::Wildcards;
use crate::networks::Networks;
use crate::regex::Regex;
use crate::template::Template;

/// `map`, `geo` or `split_clients`.
#[derive(Debug)]
pub struct Map {
    /// What is looked up; empty for `geo` without a variable.
    pub source: Template,
    /// The table.
    pub table: Table,
    /// `volatile`: evaluated each time instead of once for each request.
    pub volatile: bool,
}

/// What a value is looked up in.
#[derive(Debug)]
pub enum Table {
    /// `map`.
    Map(MapTable),
    /// `geo`.
    Geo(Geo),
    /// `split_clients`.
    Split(Split),
    /// `keyval`: the number of its zone.
    Keyval(usize),
}

/// The entries of a `map`, in NGINX's order of precedence.
#[derive(Debug)]
pub struct MapTable {
    /// Exact strings, lower case (lookups ignore case).
    pub exact: HashMap<Box<[u8]>, Template>,
    /// `hostnames`: `*.suffix` and `.suffix`, `prefix.*`.
    pub wildcards: Option<Wildcards<Template>>,
    /// Regular expressions in order.
    pub regexes: Vec<(Regex, Template)>,
    /// `default`.
    pub default: Option<Template>,
}

/// `geo`.
#[derive(Debug)]
pub struct Geo {
    /// The address is the client's, not that in a variable.
    pub of_client: bool,
    /// `proxy`: clients whose X-Forwarded-For is believed.
    pub proxies: Vec<AccessWho>,
    /// `proxy_recursive`.
    pub recursive: bool,
    /// The values.
    pub networks: Networks,
}

/// `split_clients`.
#[derive(Debug)]
pub struct Split {
    /// Each with the hash that it ends before; the last may have none, and takes the rest.
    pub parts: Vec<(Option<u32>, Box<[u8]>)>,
}

impl Split {
    /// The value for a text: the first part whose end its hash is below.
    pub fn find(&self, text: &[u8]) -> &[u8] {
        let hash = murmur2(text);
        let found = self.parts.iter().find(|(end, _)| end.is_none_or(|end| hash < end));
        found.map_or(b"", |(_, value)| value)
    }
}

/// MurmurHash2 of 32 bits with the seed 0.
fn murmur2(text: &[u8]) -> u32 {
    const MULTIPLIER: u32 = 0x5bd1_e995;
    let mix = |word: u32| {
        let word = word.wrapping_mul(MULTIPLIER);
        (word ^ (word >> 24)).wrapping_mul(MULTIPLIER)
    };
    #[expect(clippy::cast_possible_truncation, reason = "the hash has 32 bits")]
    let mut hash = text.len() as u32;
    let (words, rest) = text.as_chunks::<4>();
    for word in words {
        hash = hash.wrapping_mul(MULTIPLIER) ^ mix(u32::from_le_bytes(*word));
    }
    if !rest.is_empty() {
        let rest = rest.iter().rev().fold(0, |word, byte| (word << 8) | u32::from(*byte));
        hash = (hash ^ rest).wrapping_mul(MULTIPLIER);
    }
    hash = (hash ^ (hash >> 13)).wrapping_mul(MULTIPLIER);
    hash ^ (hash >> 15)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_the_reference() {
        // Values of Austin Appleby's MurmurHash2 with the seed 0.
        assert_eq!(murmur2(b""), 0);
        assert_eq!(murmur2(b"a"), 0x9268_5f5e);
    }

    #[test]
    fn parts_end_where_their_share_ends() {
        let parts = vec![(Some(0x9268_5f5e), (*b"one").into()), (Some(0x9268_5f5f), (*b"two").into())];
        let mut split = Split { parts };
        assert_eq!(split.find(b"a"), b"two");
        let other =
            (0..).map(|n: u32| n.to_string()).find(|text| murmur2(text.as_bytes()) > 0x9268_5f5f).unwrap_or_default();
        assert_eq!(split.find(other.as_bytes()), b"");
        split.parts.push((None, (*b"rest").into()));
        assert_eq!(split.find(other.as_bytes()), b"rest");
    }
}
