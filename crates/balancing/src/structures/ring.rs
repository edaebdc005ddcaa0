//! The ring of consistent hashing: ketama's points, four bytes each.
//!
//! Each server owns 160 points of 32 bits for each unit of its weight; a hash belongs to the first point at or after
//! it. Where that comes to more than 2^24 points (a sum of weights above 104,857), every server has proportionally fewer
//! of its points, so that weights of any size cost no more memory and time. Servers of one name (a host of several addresses) own the same points together. Points are sorted into buckets
//! by their high bits, which are not stored: a point is its low bits and its owner. Points are spread evenly, so a
//! search starts at the proportional place in its bucket, at most a few points away. 100,000 servers take 62 MiB and
//! one cache miss.
//! Source: ketama (2007), in the form of NGINX and Cache::Memcached::Fast: point k is crc32(HOST \0 PORT point k-1).

use std::collections::HashMap;
use std::slice;

use crate::crc32::Crc32;
use crate::tier::Tier;

const POINTS: u64 = 160;
/// Points of a fleet, beside one for each server.
const POINTS_MAX: u64 = 1 << 24;
/// Points in a bucket, on average at most twice this in a ring that is not large.
const POINTS_PER_BUCKET: u64 = 8;
/// Half a MiB of buckets stays in the cache.
const BUCKET_BITS_MAX: u32 = 17;

pub(crate) struct Ring {
    /// Low bits of a point above its owner (a server or, with `groups`, a group), in order, all points different.
    words: Box<[u32]>,
    owner_bits: u32,
    /// Where each bucket begins, and the end.
    buckets: Box<[u32]>,
    /// How many bits of a point are low.
    low_bits: u32,
    /// Where servers share a name.
    groups: Option<Groups>,
}

impl Ring {
    pub fn new(tier: &Tier) -> Ring {
        Ring::with(tier, POINTS_MAX)
    }

    fn with(tier: &Tier, most: u64) -> Ring {
        let counts: Vec<u64> = tier.weights().map(|weight| count(weight, tier.fleet_weight, most)).collect();
        let total: u64 = counts.iter().sum();
        let owner_bits = u32::BITS - (tier.len() as u32).leading_zeros();
        // Low bits and owner share a word.
        let bits = (total / POINTS_PER_BUCKET).max(2).ilog2().min(BUCKET_BITS_MAX).max(owner_bits);
        let low_bits = 32 - bits;
        let mut buckets = vec![0u32; (1 << bits) + 1];
        for (name, count) in tier.names.iter().zip(&counts) {
            points(name, *count).for_each(|point| buckets[(point >> low_bits) as usize] += 1);
        }
        let mut end = 0;
        for bucket in &mut buckets {
            (*bucket, end) = (end, end + *bucket);
        }
        let mut words = vec![0u32; end as usize];
        for ((name, count), server) in tier.names.iter().zip(&counts).zip(0..) {
            for point in points(name, *count) {
                let place = &mut buckets[(point >> low_bits) as usize];
                words[*place as usize] = low(point, low_bits) << owner_bits | server;
                *place += 1;
            }
        }
        // Each bucket's place has become its end. Sort it, and of several servers at one point keep the first configured.
        let (groups, group_of) = Groups::new(&tier.names);
        let groups = (groups.starts.len() <= tier.len()).then_some(groups);
        let (mut from, mut kept) = (0, 0);
        for bucket in &mut buckets {
            let to = *bucket as usize;
            *bucket = kept as u32;
            words[from..to].sort_unstable();
            let mut last = None;
            for at in from..to {
                let (low, server) = (words[at] >> owner_bits, words[at] & mask(owner_bits));
                if last.replace(low) != Some(low) {
                    let owner = if groups.is_some() { group_of[server as usize] } else { server };
                    words[kept] = low << owner_bits | owner;
                    kept += 1;
                }
            }
            from = to;
        }
        words.truncate(kept);
        Ring { words: words.into(), owner_bits, buckets: buckets.into(), low_bits, groups }
    }

    /// How many points there are.
    pub fn len(&self) -> usize {
        self.words.len()
    }

    /// Whether several servers may share a point.
    pub fn is_shared(&self) -> bool {
        self.groups.is_some()
    }

    /// The owners that stand for more than so many servers, each with them.
    pub fn owners_of_many(&self, than: usize) -> impl Iterator<Item = (u32, &[u32])> {
        let groups = self.groups.iter().flat_map(|groups| (0..).zip(groups.iter()));
        groups.filter(move |(_, servers)| servers.len() > than)
    }

    /// The first point at or after `hash`; the number of points if there is none.
    #[inline]
    pub fn find(&self, hash: u32) -> usize {
        let bucket = (hash >> self.low_bits) as usize;
        let (from, to) = (self.buckets[bucket] as usize, self.buckets[bucket + 1] as usize);
        let words = &self.words[from..to];
        let low = low(hash, self.low_bits);
        let first = low << self.owner_bits;
        let mut at = ((u64::from(low) * words.len() as u64) >> self.low_bits) as usize;
        while at > 0 && words[at - 1] >= first {
            at -= 1;
        }
        while at < words.len() && words[at] < first {
            at += 1;
        }
        from + at
    }

    /// The owner of a point, for [`Ring::servers`]. The first point follows the last.
    #[inline]
    pub fn owner(&self, point: usize) -> u32 {
        let point = if point < self.words.len() { point } else { point % self.words.len() };
        self.words[point] & mask(self.owner_bits)
    }

    /// The servers that an owner stands for.
    #[inline]
    pub fn servers<'a>(&'a self, owner: &'a u32) -> &'a [u32] {
        match &self.groups {
            Some(groups) => groups.members(*owner as usize),
            None => slice::from_ref(owner),
        }
    }
}

#[inline]
fn mask(bits: u32) -> u32 {
    (1 << bits) - 1
}

#[inline]
fn low(point: u32, bits: u32) -> u32 {
    point & mask(bits)
}

/// How many points a server of a fleet of this weight has.
fn count(weight: u32, fleet_weight: u64, most: u64) -> u64 {
    let points = u64::from(weight) * POINTS;
    let all = u128::from(fleet_weight) * u128::from(POINTS);
    match all <= u128::from(most) {
        true => points,
        false => ((u128::from(points) * u128::from(most) / all) as u64).max(u64::from(weight > 0)),
    }
}

/// The first points of a server.
fn points(name: &str, count: u64) -> impl Iterator<Item = u32> {
    let (host, port) = host_and_port(name);
    let base = Crc32::new().update(host.as_bytes()).update(&[0]).update(port.as_bytes());
    let mut point = 0u32;
    (0..count).map(move |_| {
        point = base.update(&point.to_le_bytes()).finish();
        point
    })
}

/// The parts of a server's name that its points come from: what precedes the port, and the port's digits.
fn host_and_port(name: &str) -> (&str, &str) {
    if name.get(..5).is_some_and(|scheme| scheme.eq_ignore_ascii_case("unix:")) {
        return (&name[5..], "");
    }
    match name.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|b| b.is_ascii_digit()) => (host, port),
        _ => (name, ""),
    }
}

/// Servers by name.
struct Groups {
    /// Members of group g are `members[starts[g]..starts[g + 1]]`.
    starts: Box<[u32]>,
    members: Box<[u32]>,
}

impl Groups {
    /// The groups in order of first appearance, and the group of each server.
    fn new(names: &[Box<str>]) -> (Groups, Vec<u32>) {
        let mut known = HashMap::new();
        let group_of: Vec<u32> = names
            .iter()
            .map(|name| {
                let next = known.len() as u32;
                *known.entry(name).or_insert(next)
            })
            .collect();
        let mut members: Vec<u32> = (0..names.len() as u32).collect();
        members.sort_by_key(|i| group_of[*i as usize]);
        let start = |g| members.partition_point(|i| group_of[*i as usize] < g) as u32;
        let starts = (0..=known.len() as u32).map(start).collect();
        (Groups { starts, members: members.into() }, group_of)
    }

    fn iter(&self) -> impl Iterator<Item = &[u32]> {
        self.starts.windows(2).map(|ends| &self.members[ends[0] as usize..ends[1] as usize])
    }

    #[inline]
    fn members(&self, group: usize) -> &[u32] {
        &self.members[self.starts[group] as usize..self.starts[group + 1] as usize]
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::crc32::crc32;
    use crate::rng::Rng;
    use crate::structures::wheel::tests::{tier, tier_of};

    #[test]
    fn names_are_split() {
        assert_eq!(host_and_port("a.example:8080"), ("a.example", "8080"));
        assert_eq!(host_and_port("a.example"), ("a.example", ""));
        assert_eq!(host_and_port("a:x"), ("a:x", ""));
        assert_eq!(host_and_port("[::1]:80"), ("[::1]", "80"));
        assert_eq!(host_and_port("[::1]"), ("[::1]", ""));
        assert_eq!(host_and_port("UNIX:/run/a:1"), ("/run/a:1", ""));
    }

    /// The ring is a sorted map from each point to the first configured server that has it.
    #[test]
    fn it_is_what_it_compresses() {
        let named = |names: &[(&str, u32)]| tier_of(names.iter().map(|(name, weight)| (name.to_string(), *weight)));
        // Among 320,000 points some coincide.
        let tiers = [
            tier(&[1]),
            tier(&[1, 1]),
            tier(&[3, 1, 0, 9, 2]),
            tier(&[1; 40]),
            tier(&[1; 2_000]),
            named(&[("a:80", 1), ("b:80", 2), ("a:80", 3), ("c", 1), ("b:80", 1)]),
        ];
        for tier in tiers {
            let ring = Ring::new(&tier);
            let mut expected = BTreeMap::new();
            for (i, (name, weight)) in tier.names.iter().zip(tier.weights()).enumerate() {
                points(name, u64::from(weight) * POINTS).for_each(|point| {
                    expected.entry(point).or_insert(i);
                });
            }
            assert_eq!(ring.len(), expected.len());
            let keys: Vec<u32> = expected.keys().copied().collect();
            let mut rng = Rng::new(3);
            let edges = keys.iter().flat_map(|p| [*p, p.wrapping_add(1), p.wrapping_sub(1)]);
            for hash in edges.chain([0, u32::MAX]).chain((0..20_000).map(|_| rng.next() as u32)) {
                let at = ring.find(hash);
                assert_eq!(at, keys.partition_point(|p| *p < hash));
                let server = expected[&keys[at % keys.len()]];
                let same = |i: &u32| tier.names[*i as usize] == tier.names[server];
                let same: Vec<u32> = match tier.len() {
                    2_000 => vec![server as u32],
                    n => (0..n as u32).filter(same).collect(),
                };
                assert_eq!(ring.servers(&ring.owner(at)), same);
            }
        }
    }

    #[test]
    fn large_weights_have_fewer_points_in_the_same_proportion() {
        let weights = [1_000_000, 3_000_000, 0, 1];
        let (large, most) = (tier(&weights), 10_000);
        let ring = Ring::with(&large, most);
        let mut owned = [0; 4];
        (0..ring.len()).for_each(|point| owned[ring.owner(point) as usize] += 1);
        assert_eq!(owned, [2_499, 7_499, 0, 1]);
        // They are the first of those that the server would have.
        let mut first: Vec<u32> = points(&large.names[0], 2_499).collect();
        first.sort_unstable();
        let found = first.iter().filter(|point| ring.owner(ring.find(**point)) == 0).count();
        assert_eq!(found, first.len());
        assert_eq!((count(7, 104_857, POINTS_MAX), count(7, 104_858, POINTS_MAX)), (1_120, 1_119));
        assert_eq!(count(u32::MAX, 255 * u64::from(u32::MAX), POINTS_MAX), POINTS_MAX / 255);
        assert_eq!(count(u32::MAX, u64::from(u32::MAX), POINTS_MAX), POINTS_MAX);
    }

    #[test]
    fn few_keys_move_when_a_server_goes() {
        let owners = |weights: &[u32]| {
            let ring = Ring::new(&tier(weights));
            (0..10_000).map(|i| ring.owner(ring.find(crc32(format!("/key/{i}").as_bytes())))).collect::<Vec<_>>()
        };
        let (ten, nine) = (owners(&[1; 10]), owners(&[1; 9]));
        let moved = ten.iter().zip(&nine).filter(|(a, b)| a != b).count();
        assert_eq!(moved, ten.iter().filter(|s| **s == 9).count());
        assert!((500..1_500).contains(&moved), "{moved}");
    }
}
