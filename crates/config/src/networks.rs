//! Addresses to values, by networks or by ranges, for `geo`. A lookup is a binary search in sorted, disjoint ranges.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

/// The index of a value.
type Value = u32;

/// The values of networks, by address and length of the prefix.
type Prefixes = BTreeMap<(u128, u8), Value>;

/// What is looked up where there is no address of the Internet, as in NGINX.
const NO_ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::BROADCAST);

/// A finished table.
#[derive(Debug, Default)]
pub struct Networks {
    /// Where a range begins, and its value; each ends where the next one begins.
    v4: Box<[(u32, Value)]>,
    v6: Box<[(u128, Value)]>,
    /// Addresses of version 6 have no values.
    only_v4: bool,
    values: Box<[Box<[u8]>]>,
}

impl Networks {
    /// The value of an address.
    pub fn find(&self, address: Option<IpAddr>) -> &[u8] {
        let mut address = address.unwrap_or(NO_ADDRESS).to_canonical();
        if self.only_v4 && address.is_ipv6() {
            address = NO_ADDRESS;
        }
        let value = match address {
            IpAddr::V4(ip) => at(&self.v4, ip.to_bits()),
            IpAddr::V6(ip) => at(&self.v6, ip.to_bits()),
        };
        value.and_then(|value| self.values.get(value as usize)).map_or(b"", |value| value)
    }
}

fn at<T: Ord + Copy>(ranges: &[(T, Value)], address: T) -> Option<Value> {
    let behind = ranges.partition_point(|(start, _)| *start <= address);
    ranges.get(behind.checked_sub(1)?).map(|(_, value)| *value)
}

/// Values, each kept once.
#[derive(Debug, Default)]
struct Values {
    indices: BTreeMap<Box<[u8]>, Value>,
    /// The empty one is there from the beginning.
    values: Vec<Box<[u8]>>,
}

impl Values {
    fn index(&mut self, value: &[u8]) -> Value {
        if let Some(index) = self.indices.get(value) {
            return *index;
        }
        let index = Value::try_from(self.values.len()).unwrap_or(Value::MAX);
        self.values.push(value.into());
        self.indices.insert(value.into(), index);
        index
    }
}

/// A table of networks while it is read: the longest prefix counts.
#[derive(Debug, Default)]
pub struct ByPrefix {
    v4: Prefixes,
    v6: Prefixes,
    values: Values,
}

impl ByPrefix {
    fn of(&mut self, network: IpAddr, length: u8) -> (&mut Prefixes, (u128, u8)) {
        match network {
            IpAddr::V4(ip) => (&mut self.v4, (u128::from(ip.to_bits()), length)),
            IpAddr::V6(ip) => (&mut self.v6, (ip.to_bits(), length)),
        }
    }

    /// Adds a network, whose host bits are clear. Returns the value that it had before.
    pub fn insert(&mut self, network: IpAddr, length: u8, value: &[u8]) -> Option<Box<[u8]>> {
        let value = self.values.index(value);
        let (networks, key) = self.of(network, length);
        let old = networks.insert(key, value)?;
        self.values.values.get(old as usize).cloned()
    }

    /// Removes a network; whether it was there.
    pub fn remove(&mut self, network: IpAddr, length: u8) -> bool {
        let (networks, key) = self.of(network, length);
        networks.remove(&key).is_some()
    }

    /// The table.
    pub fn finish(mut self) -> Networks {
        let nothing = self.values.index(b"");
        self.v4.entry((0, 0)).or_insert(nothing);
        self.v6.entry((0, 0)).or_insert(nothing);
        let v4 = disjoint(&self.v4, 32);
        let v4 = v4.into_iter().filter_map(|(start, value)| Some((u32::try_from(start).ok()?, value))).collect();
        let v6 = disjoint(&self.v6, 128).into();
        Networks { v4, v6, only_v4: false, values: self.values.values.into() }
    }
}

/// Cuts networks, one of which holds all others, into ranges.
fn disjoint(networks: &Prefixes, width: u8) -> Vec<(u128, Value)> {
    let mut ranges: Vec<(u128, Value)> = Vec::new();
    let mut add = |start: u128, value: Value| {
        if ranges.last().is_some_and(|last| last.0 == start) {
            ranges.pop();
        }
        if ranges.last().is_none_or(|last| last.1 != value) {
            ranges.push((start, value));
        }
    };
    // The networks around the current place, each with its last address.
    let mut around: Vec<(u128, Value)> = Vec::new();
    let leave = |around: &mut Vec<(u128, Value)>, add: &mut dyn FnMut(u128, Value), to: Option<u128>| {
        while let Some((end, _)) = around.last().copied()
            && to.is_none_or(|to| end < to)
        {
            around.pop();
            if let (Some((_, value)), Some(next)) = (around.last(), end.checked_add(1)) {
                add(next, *value);
            }
        }
    };
    let whole = u128::MAX.checked_shr(u32::from(128 - width)).unwrap_or(0);
    for ((start, length), value) in networks {
        leave(&mut around, &mut add, Some(*start));
        add(*start, *value);
        around.push((*start | whole.checked_shr(u32::from(*length)).unwrap_or(0), *value));
    }
    leave(&mut around, &mut add, None);
    ranges.retain(|(start, _)| *start <= whole);
    ranges
}

/// A table of ranges of version 4 while it is read.
#[derive(Debug, Default)]
pub struct ByRange {
    /// By first address, with the last one. No range crosses a multiple of 65536, as in NGINX: that decides which ranges
    /// overlap.
    ranges: BTreeMap<u32, (u32, Value)>,
    values: Values,
    default: Option<Value>,
}

/// Why a range cannot be added, or what is to be said about it.
#[derive(Debug, PartialEq, Eq)]
pub enum Clash {
    /// It is there already, with this value; it has the new one now.
    Duplicate(Box<[u8]>),
    /// It overlaps this one, and neither holds the other.
    Overlap(Ipv4Addr, Ipv4Addr),
}

impl ByRange {
    /// Sets the value of all other addresses. Returns the one before.
    pub fn set_default(&mut self, value: &[u8]) -> Option<Box<[u8]>> {
        let value = self.values.index(value);
        let old = self.default.replace(value)?;
        self.values.values.get(old as usize).cloned()
    }

    /// Adds a range; it may lie in one that is there already.
    ///
    /// # Errors
    /// It is a duplicate, or it overlaps another one.
    pub fn insert(&mut self, first: Ipv4Addr, last: Ipv4Addr, value: &[u8]) -> Result<(), Clash> {
        let value = self.values.index(value);
        let mut duplicate = None;
        for (start, end) in pieces(first, last) {
            let below = self.ranges.range(start & 0xffff_0000..=end).next_back();
            let Some((around, (around_end, old))) = below.map(|(start, rest)| (*start, *rest)) else {
                self.ranges.insert(start, (end, value));
                continue;
            };
            if start > around_end {
                self.ranges.insert(start, (end, value));
                continue;
            }
            if start < around || end > around_end {
                return Err(Clash::Overlap(around.into(), around_end.into()));
            }
            if (start, end) == (around, around_end) {
                duplicate = duplicate.or(self.values.values.get(old as usize).cloned());
            }
            if around < start {
                self.ranges.insert(around, (start - 1, old));
            }
            self.ranges.insert(start, (end, value));
            if end < around_end {
                self.ranges.insert(end + 1, (around_end, old));
            }
        }
        duplicate.map_or(Ok(()), |old| Err(Clash::Duplicate(old)))
    }

    /// Removes a range; whether all of it was there as it is.
    pub fn remove(&mut self, first: Ipv4Addr, last: Ipv4Addr) -> bool {
        let mut all = true;
        for (start, end) in pieces(first, last) {
            match self.ranges.get(&start) {
                Some((its_end, _)) if *its_end == end => {
                    self.ranges.remove(&start);
                }
                _ => all = false,
            }
        }
        all
    }

    /// The table.
    pub fn finish(mut self) -> Networks {
        let default = self.default.unwrap_or_else(|| self.values.index(b""));
        let mut v4: Vec<(u32, Value)> = vec![(0, default)];
        let mut add = |start: u32, value: Value| {
            if v4.last().is_some_and(|last| last.0 == start) {
                v4.pop();
            }
            if v4.last().is_none_or(|last| last.1 != value) {
                v4.push((start, value));
            }
        };
        for (start, (end, value)) in &self.ranges {
            add(*start, *value);
            if let Some(next) = end.checked_add(1) {
                add(next, default);
            }
        }
        Networks { v4: v4.into(), v6: Box::default(), only_v4: true, values: self.values.values.into() }
    }
}

/// A range, cut at multiples of 65536.
fn pieces(first: Ipv4Addr, last: Ipv4Addr) -> impl Iterator<Item = (u32, u32)> {
    let (first, last) = (first.to_bits(), last.to_bits());
    (first >> 16..=last >> 16).map(move |high| (first.max(high << 16), last.min(high << 16 | 0xffff)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn masked(ip: IpAddr, length: u8) -> IpAddr {
        match ip {
            IpAddr::V4(ip) => {
                IpAddr::V4((ip.to_bits() & u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0)).into())
            }
            IpAddr::V6(ip) => {
                IpAddr::V6((ip.to_bits() & u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0)).into())
            }
        }
    }

    /// Networks close together, so that they hold one another.
    fn network() -> impl Strategy<Value = (IpAddr, u8)> {
        let v4 = (0u32..4, 0u32..300, 0u8..=32).prop_map(|(high, low, length)| {
            let ip = IpAddr::V4((high << 30 | low).into());
            (masked(ip, length), length)
        });
        let v6 = (0u128..4, 0u128..300, 0u8..=128).prop_map(|(high, low, length)| {
            let ip = IpAddr::V6((high << 126 | low).into());
            (masked(ip, length), length)
        });
        prop_oneof![v4, v6]
    }

    proptest! {
        #[test]
        fn the_longest_prefix_counts(
            steps in proptest::collection::vec((network(), 0u8..5, any::<bool>()), 0..40),
            asked in proptest::collection::vec(network(), 1..20),
        ) {
            let mut table = ByPrefix::default();
            let mut list: Vec<((IpAddr, u8), Vec<u8>)> = Vec::new();
            for (network, value, remove) in steps {
                let known = list.iter().position(|(known, _)| *known == network);
                if remove && value == 0 {
                    prop_assert_eq!(table.remove(network.0, network.1), known.is_some());
                    if let Some(known) = known { list.remove(known); }
                } else {
                    let value = vec![b'a' + value];
                    let old = table.insert(network.0, network.1, &value);
                    prop_assert_eq!(old.map(Vec::from), known.map(|known| list[known].1.clone()));
                    match known {
                        Some(known) => list[known].1 = value,
                        None => list.push((network, value)),
                    }
                }
            }
            let table = table.finish();
            for (ip, _) in asked.into_iter().chain(list.iter().map(|(network, _)| *network)) {
                let holds = |(network, length): &(IpAddr, u8)| {
                    network.is_ipv4() == ip.to_canonical().is_ipv4() && masked(ip.to_canonical(), *length) == *network
                };
                let best = list.iter().filter(|(network, _)| holds(network)).max_by_key(|((_, length), _)| *length);
                prop_assert_eq!(table.find(Some(ip)), best.map_or(&b""[..], |(_, value)| &value[..]));
            }
        }

        #[test]
        fn the_last_range_inside_counts(
            steps in proptest::collection::vec((0u32..400, 0u32..400, 0u8..5), 0..30),
            base in prop_oneof![Just(0u32), Just(0x0a00_ff00), Just(0xffff_fe00)],
        ) {
            let mut table = ByRange::default();
            table.set_default(b"other");
            let mut painted = vec![b"other".to_vec(); 400];
            for (a, b, value) in steps {
                let (first, last) = (a.min(b), a.max(b));
                let value = vec![b'a' + value];
                match table.insert((base + first).into(), (base + last).into(), &value) {
                    Ok(()) | Err(Clash::Duplicate(_)) => {
                        painted[first as usize..=last as usize].fill(value);
                    }
                    // A part of it may be there, as in NGINX, which then refuses the configuration.
                    Err(Clash::Overlap(..)) => return Ok(()),
                }
            }
            let table = table.finish();
            for (offset, value) in painted.iter().enumerate() {
                let ip = Ipv4Addr::from(base + u32::try_from(offset).unwrap());
                prop_assert_eq!(table.find(Some(ip.into())), &value[..]);
            }
        }
    }

    #[test]
    fn ranges_are_removed_only_as_they_are() {
        let mut table = ByRange::default();
        let ip = |text: &str| text.parse::<Ipv4Addr>().unwrap();
        table.insert(ip("10.0.0.0"), ip("10.1.255.255"), b"x").unwrap();
        assert!(!table.remove(ip("10.0.0.0"), ip("10.0.0.255")));
        assert!(table.remove(ip("10.0.0.0"), ip("10.0.255.255")));
        let clash = table.insert(ip("10.1.255.0"), ip("10.2.0.0"), b"y");
        assert_eq!(clash, Ok(()));
        let clash = table.insert(ip("10.1.254.0"), ip("10.1.255.5"), b"z");
        assert_eq!(clash, Err(Clash::Overlap(ip("10.1.255.0"), ip("10.1.255.255"))));
        let table = table.finish();
        assert_eq!(table.find(Some(ip("10.0.0.1").into())), b"");
        assert_eq!(table.find(Some(ip("10.1.0.1").into())), b"x");
        assert_eq!(table.find(Some("::ffff:10.2.0.0".parse().unwrap())), b"y");
        assert_eq!(table.find(Some("2001:db8::1".parse().unwrap())), b"");
    }

    #[test]
    fn without_an_address_the_last_one_counts() {
        let mut table = ByPrefix::default();
        table.insert(IpAddr::V4(Ipv4Addr::BROADCAST), 32, b"none");
        assert_eq!(table.finish().find(None), b"none");
    }
}
