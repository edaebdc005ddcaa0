//! Hashes of keys: 64 bits, the same on every machine and in every run.
//!
//! XXH3 is specified and has test vectors, so that several balancers, or a program beside them, agree on the owner of a
//! key. The hash is not secret: a client that chooses keys that collide loses only the even spread of its own requests.

use std::collections::HashMap;

use twox_hash::XxHash3_64;

/// XXH3 (64 bits, seed 0) of a key: what [`crate::ClientTable`] and the algorithms that are not NGINX's go by.
#[inline]
pub fn key_hash(key: &[u8]) -> u64 {
    XxHash3_64::oneshot(key)
}

/// Another 64 bits that look independent, one for each of `x` and no two equal: SplitMix64's last step.
#[inline]
pub(crate) fn mix(x: u64) -> u64 {
    let mut z = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The hash of a request's key in a round: from the second on, when a server has refused the request, another one.
#[inline]
pub(crate) fn in_round(hash: u64, round: u32) -> u64 {
    if round == 0 { hash } else { mix(hash.wrapping_add(u64::from(round))) }
}

/// `hash` mapped evenly to `0..bound`; 0 for 0.
#[inline]
pub(crate) fn reduce(hash: u64, bound: u64) -> u64 {
    ((u128::from(hash) * u128::from(bound)) >> 64) as u64
}

/// A hash for each server, by its name alone, so that it does not depend on the others. Servers that share a name (a host
/// of several addresses) are told apart by their order.
pub(crate) fn seeds(names: &[Box<str>]) -> Vec<u64> {
    let mut seen: HashMap<&str, u32> = HashMap::with_capacity(names.len());
    let mut seeds = Vec::with_capacity(names.len());
    for name in names {
        let before = seen.entry(name).or_default();
        seeds.push(in_round(key_hash(name.as_bytes()), *before));
        *before += 1;
    }
    seeds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_the_published_ones() {
        // From xxHash's own test vectors and `xxhsum -H3`.
        assert_eq!(key_hash(b""), 0x2d06_8005_38d3_94c2);
        assert_eq!(key_hash(b"a"), 0xe6c6_32b6_1e96_4e1f);
        assert_eq!(key_hash(b"abc"), 0x78af_5f94_892f_3950);
    }

    #[test]
    fn names_tell_servers_apart() {
        let names = ["a:80", "b:80", "a:80", "a:80"].map(Box::from);
        let seeds = seeds(&names);
        assert_eq!(seeds[..2], self::seeds(&names[..2]));
        assert!((0..4).all(|i| (0..i).all(|j| seeds[i] != seeds[j])));
    }
}
