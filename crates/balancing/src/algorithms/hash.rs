//! Hash of a key: equal keys go to the same server.
//!
//! `crc32(key) >> 16 & 0x7fff`, modulo the sum of weights, selects a server. If it is closed, the number of the round
//! and the key are hashed and added to the hash so far, up to 20 times; then round robin chooses. An empty key means
//! round robin. `consistent` is in `hash_consistent`.
//! Source: NGINX, with the same choices, and Cache::Memcached. Only 15 bits of the checksum count, so very large fleets
//! get uneven shares; the consistent form has no such limit.
//! Cost: the length of the key, and O(log n) for different weights, O(1) for equal ones.
//! If no server is eligible, the driver goes to the backups.

use std::io::Write;
use std::sync::Arc;

use super::hash_consistent::consistent;
use super::{DRAWS, bounded_hash};
use crate::crc32::Crc32;
use crate::policy::{Basis, Context};
use crate::spec::{Entry, Host, Key, Kind, Parameter, Share, Times};
use crate::structures::fallback::{Search, with_turns};
use crate::structures::round_robin::RoundRobin;
use crate::structures::wheel::Wheel;

pub(crate) const ENTRY: Entry = Entry {
    name: "hash",
    aliases: &[],
    summary: "a key chooses the server",
    what: "\
        Equal keys go to the same server as long as the list of servers does not change: crc32(key) >> 16 & 0x7fff, \
        modulo the sum of the weights, selects the server. If that server is closed, the key is hashed again, up to \
        20 times; then round robin chooses. An empty key means round robin.\n\n\
        With consistent, each server has 160 points on a ring for each unit of its weight, and a key belongs to the \
        next point (ketama): when a server is added or removed, only its own keys move. If the weights of an upstream \
        come to more than 104857, each unit has proportionally fewer points. balance_factor implies \
        consistent and limits each server's part of the requests in flight, as in bounded_hash. Weights are shares \
        of the keys. During slow start a server gets a growing part of its keys, always the same ones; the others go \
        where they would go without that server. Backup servers are not allowed.",
    when: "\
        Use it with consistent for caches and for state that a server keeps for a key. It chooses the same servers \
        as NGINX's hash.",
    when_not: "\
        Do not use it without consistent if servers are added or removed: most keys change their server. Do not use \
        it without consistent for many servers: 15 bits of the checksum count, so the shares are uneven. If a few \
        keys bring most of the requests, use bounded_hash. It does not react to load: a slow server keeps its keys.",
    nginx: Some("hash KEY [consistent]"),
    parameters: &[
        Parameter {
            name: "consistent",
            summary: "few keys move when servers are added or removed (ketama)",
            kind: Kind::Switch,
            default: "off",
        },
        Parameter {
            name: "balance_factor",
            summary: "limit of a server's requests in flight, in percent of its fair share (implies consistent); 0 is no limit",
            kind: Kind::Limit(101, bounded_hash::FACTOR_MAX),
            default: "0",
        },
    ],
    source: "NGINX; Cache::Memcached, ketama",
    cost: "the key's length; O(log n), O(1) for equal weights; consistent: O(1), 160 points for each unit of weight",
    linear: false,
    times: Times::Never,
    host: Host::Any,
    share: Share::Key,
    key: Key::Any,
    needs_key: true,
    strict: None,
    backup: false,
    build: |spec, tier| match (spec.switch("consistent"), spec.number("balance_factor")) {
        (false, 0) => {
            let wheel = Arc::new(Wheel::new(tier));
            with_turns(tier, move |_, _| Hash { wheel: wheel.clone() })
        }
        (true, 0) => consistent(tier),
        (_, factor) => bounded_hash::plan(tier, factor),
    },
};

struct Hash {
    wheel: Arc<Wheel>,
}

/// The checksum of a key in a round: from the second on, the round's number in decimal precedes the key.
fn checksum(round: u32, key: &[u8]) -> u32 {
    let mut digits = [0u8; 10];
    let mut rest = &mut digits[..];
    // Ten digits hold any u32, so the write cannot fail.
    let written = if round > 0 && write!(rest, "{round}").is_ok() { 10 - rest.len() } else { 0 };
    Crc32::new().update(&digits[..written]).update(key).finish()
}

impl Search for Hash {
    fn find(&mut self, cx: &mut Context<'_>, _: &mut RoundRobin) -> Option<usize> {
        if cx.tier.len() < 2 || cx.key.is_empty() {
            return None;
        }
        while cx.tried.progress.tries <= DRAWS {
            let progress = &mut cx.tried.progress;
            progress.hash = progress.hash.wrapping_add(checksum(progress.rounds, cx.key) >> 16 & 0x7fff);
            progress.rounds += 1;
            let index = self.wheel.at(progress.hash)?;
            if cx.admits(index) {
                return Some(index);
            }
            cx.tried.progress.tries += 1;
        }
        None
    }

    fn basis(&self) -> Basis {
        Basis::Key
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crc32::crc32;
    use crate::registry::find;
    use crate::spec::Spec;
    use crate::{Driver, Fleet, ServerSpec, ServerState, Start, Tried};

    /// A bound is kept with `consistent` and without: one client alone cannot keep all servers but one idle.
    #[test]
    fn a_bound_implies_consistent() {
        let picks = |parameters: &[(&str, &str)]| {
            let spec = Spec::new(find("hash").unwrap(), parameters).unwrap();
            let servers = ["a:1", "b:1", "c:1"].map(|name| (ServerSpec::new(name), Arc::new(ServerState::new())));
            let mut driver = Driver::new(Arc::new(Fleet::new(&spec, servers.into()).unwrap()), 1, Start::default());
            [0; 6].map(|_| driver.pick(0, b"/a", &mut Tried::default()).unwrap())
        };
        let bounded = picks(&[("consistent", "on"), ("balance_factor", "125")]);
        assert_eq!(picks(&[("balance_factor", "125")]), bounded);
        assert_ne!(picks(&[("consistent", "on")]), bounded);
    }

    #[test]
    fn rounds_precede_the_key() {
        assert_eq!(checksum(0, b"/a"), crc32(b"/a"));
        assert_eq!(checksum(7, b"/a"), crc32(b"7/a"));
        assert_eq!(checksum(u32::MAX, b"/a"), crc32(b"4294967295/a"));
    }
}
