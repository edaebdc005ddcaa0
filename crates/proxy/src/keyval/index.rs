//! How the keys of a zone are found.

use std::collections::BTreeMap;
use std::net::IpAddr;

use balanza_config::model::KeyvalKind;

use super::Pair;

/// Addresses from the first to the last, as numbers; IPv4 addresses are those of `::ffff:0:0/96`.
type Range = (u128, u128);

/// What is known of the keys beside their texts.
#[derive(Debug, Default)]
pub enum Index {
    /// Nothing.
    #[default]
    Text,
    /// How many keys have which length.
    Prefix(BTreeMap<usize, usize>),
    /// Ranges by their size and their first address, with the keys that are written so.
    Ip(BTreeMap<u128, BTreeMap<u128, Vec<u8>>>),
}

impl Index {
    /// For no keys.
    pub fn new(kind: KeyvalKind) -> Index {
        match kind {
            KeyvalKind::Text => Index::Text,
            KeyvalKind::Prefix => Index::Prefix(BTreeMap::new()),
            KeyvalKind::Ip => Index::Ip(BTreeMap::new()),
        }
    }

    /// Whether it is a key of this kind. Two keys for the same addresses are not possible.
    pub fn accepts(&self, key: &[u8]) -> bool {
        let Index::Ip(ranges) = self else { return true };
        range(key).is_some_and(|(first, last)| {
            let known = ranges.get(&(last - first)).and_then(|same| same.get(&first));
            known.is_none_or(|known| known == key)
        })
    }

    /// Notes a key.
    pub fn add(&mut self, key: &[u8]) {
        match self {
            Index::Text => {}
            Index::Prefix(lengths) => *lengths.entry(key.len()).or_default() += 1,
            Index::Ip(ranges) => {
                if let Some((first, last)) = range(key) {
                    ranges.entry(last - first).or_default().insert(first, key.to_vec());
                }
            }
        }
    }

    /// Forgets a key.
    pub fn remove(&mut self, key: &[u8]) {
        match self {
            Index::Text => {}
            Index::Prefix(lengths) => {
                if let Some(count) = lengths.get_mut(&key.len()) {
                    *count -= 1;
                    if *count == 0 {
                        lengths.remove(&key.len());
                    }
                }
            }
            Index::Ip(ranges) => {
                let Some((first, last)) = range(key) else { return };
                if let Some(same) = ranges.get_mut(&(last - first)) {
                    same.remove(&first);
                    if same.is_empty() {
                        ranges.remove(&(last - first));
                    }
                }
            }
        }
    }

    /// The key of the pair for a text.
    pub fn find<'i>(&'i self, pairs: &'i BTreeMap<Vec<u8>, Pair>, text: &[u8]) -> Option<&'i [u8]> {
        match self {
            Index::Text => pairs.get_key_value(text).map(|(key, _)| &key[..]),
            Index::Prefix(lengths) => {
                let mut lengths = lengths.range(..=text.len()).rev();
                lengths.find_map(|(length, _)| pairs.get_key_value(&text[..*length])).map(|(key, _)| &key[..])
            }
            Index::Ip(ranges) => {
                let address = searched(text)?;
                // The smallest ranges first; of those of one size the one that begins last before the address.
                let found = ranges.iter().find_map(|(size, same)| {
                    let (first, key) = same.range(..=address).next_back()?;
                    (address - first <= *size).then_some(key)
                });
                found.map(|key| &key[..])
            }
        }
    }
}

fn number(ip: IpAddr) -> u128 {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().to_bits(),
        IpAddr::V6(ip) => ip.to_bits(),
    }
}

/// The address that is looked for: as text, or in the bytes of `$binary_remote_addr`.
fn searched(text: &[u8]) -> Option<u128> {
    let parsed = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    let address = parsed.or_else(|| match text.len() {
        4 => <[u8; 4]>::try_from(text).ok().map(IpAddr::from),
        16 => <[u8; 16]>::try_from(text).ok().map(IpAddr::from),
        _ => None,
    });
    address.map(number)
}

/// The addresses that a key stands for: one, those of a network, or those from one to another.
fn range(key: &[u8]) -> Option<Range> {
    let text = std::str::from_utf8(key).ok()?;
    if let Some((network, bits)) = text.split_once('/') {
        let network: IpAddr = network.parse().ok()?;
        let bits: u32 = bits.parse().ok()?;
        let host_bits = if network.is_ipv4() { 32u32 } else { 128 }.checked_sub(bits)?;
        let hosts = if host_bits == 128 { u128::MAX } else { (1u128 << host_bits) - 1 };
        let first = number(network) & !hosts;
        return Some((first, first | hosts));
    }
    if let Some((first, last)) = text.split_once('-') {
        let (first, last): (IpAddr, IpAddr) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        let range = (number(first), number(last));
        return (first.is_ipv4() == last.is_ipv4() && range.0 <= range.1).then_some(range);
    }
    let address = number(text.parse().ok()?);
    Some((address, address))
}
