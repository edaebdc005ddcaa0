//! Consistent hash of a key: ketama.
//!
//! Each server owns 160 points of a ring of 32 bits for each unit of its weight; a key belongs to the first point at or
//! after its checksum. A closed server sends the request to the next point, up to 20 of them, then round robin decides.
//! Servers of one name (a host of several addresses) own the same points and take turns by weight.
//! Source: ketama (2007), in the form of NGINX and Cache::Memcached::Fast: point k is crc32(HOST \0 PORT point k-1).
//! Cost: the length of the key and O(1): an index by the high bits leads to within a few points. Memory: 8 bytes a point
//! and 1 for the index. Nobody eligible: the driver goes to the backups.

use std::collections::HashMap;
use std::collections::hash_map::Entry::{Occupied, Vacant};
use std::sync::Arc;

use super::DRAWS;
use super::round_robin::{RoundRobin, RoundRobinPlan};
use crate::Nanos;
use crate::crc32::{Crc32, crc32};
use crate::driver::{Report, Start};
use crate::fleet::Level;
use crate::policy::{Context, Plan, Policy};
use crate::rng::Rng;
use crate::structures::smooth::Smooth;

const POINTS: u32 = 160;
/// Points for an entry of the index, on average at most twice this.
const POINTS_PER_ENTRY: usize = 8;

/// The ring of one level.
pub(crate) struct ConsistentPlan {
    level: Arc<Level>,
    /// Points in order, all different, each with its owner: a server or, with `groups`, a group.
    points: Box<[(u32, u32)]>,
    /// First point at or after k << shift.
    index: Box<[u32]>,
    shift: u32,
    /// Where servers share a name.
    groups: Option<Groups>,
    fallback: RoundRobinPlan,
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
        let mut lists: Vec<Vec<u32>> = Vec::new();
        let mut group_of = Vec::with_capacity(names.len());
        for (i, name) in names.iter().enumerate() {
            let group = match known.entry(name) {
                Occupied(entry) => *entry.get(),
                Vacant(entry) => {
                    lists.push(Vec::new());
                    *entry.insert(lists.len() - 1)
                }
            };
            lists[group].push(i as u32);
            group_of.push(group as u32);
        }
        let mut starts = vec![0];
        starts.extend(lists.iter().scan(0, |end, list| {
            *end += list.len() as u32;
            Some(*end)
        }));
        (Groups { starts: starts.into(), members: lists.concat().into() }, group_of)
    }

    #[inline]
    fn members(&self, group: usize) -> &[u32] {
        &self.members[self.starts[group] as usize..self.starts[group + 1] as usize]
    }
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

impl ConsistentPlan {
    pub fn new(level: &Arc<Level>) -> ConsistentPlan {
        let (groups, group_of) = Groups::new(&level.names);
        let groups = (groups.starts.len() <= level.len()).then_some(groups);
        let mut points: Vec<(u32, u32)> = Vec::with_capacity(POINTS as usize * level.total_weight as usize);
        for ((name, weight), group) in level.names.iter().zip(level.weights()).zip(group_of) {
            let (host, port) = host_and_port(name);
            let base = Crc32::new().update(host.as_bytes()).update(&[0]).update(port.as_bytes());
            let mut previous = 0u32;
            for _ in 0..u64::from(weight) * u64::from(POINTS) {
                previous = base.update(&previous.to_le_bytes()).finish();
                points.push((previous, group));
            }
        }
        // Stable: of two servers at one point the first configured keeps it.
        points.sort_by_key(|(hash, _)| *hash);
        points.dedup_by_key(|(hash, _)| *hash);

        let bits = (points.len() / POINTS_PER_ENTRY).max(2).ilog2();
        let shift = 32 - bits;
        let mut index = Vec::with_capacity((1 << bits) + 1);
        let mut at = 0;
        for k in 0..1u64 << bits {
            while at < points.len() && u64::from(points[at].0) < k << shift {
                at += 1;
            }
            index.push(at as u32);
        }
        ConsistentPlan {
            level: level.clone(),
            points: points.into(),
            index: index.into(),
            shift,
            groups,
            fallback: RoundRobinPlan::new(level),
        }
    }

    /// The first point at or after `hash`; the number of points if there is none.
    #[inline]
    fn find(&self, hash: u32) -> usize {
        let from = self.index[(hash >> self.shift) as usize] as usize;
        from + self.points[from..].iter().take_while(|p| p.0 < hash).count()
    }
}

impl Plan for ConsistentPlan {
    fn policy(self: Arc<Self>, start: Start, rng: &mut Rng) -> Box<dyn Policy> {
        let fallback = self.fallback.instance(start, rng);
        let large = matches!(fallback, RoundRobin::Rotation(_));
        let turns = (large && self.groups.is_some()).then(|| Smooth::new(&self.level, Start::default(), rng));
        Box::new(Consistent { plan: self, fallback, turns })
    }
}

struct Consistent {
    plan: Arc<ConsistentPlan>,
    fallback: RoundRobin,
    /// Turns among servers of one name, when the fallback does not keep them.
    turns: Option<Smooth>,
}

impl Policy for Consistent {
    fn pick(&mut self, cx: &mut Context<'_>) -> Option<usize> {
        let points = self.plan.points.len();
        if cx.level.len() < 2 || cx.key.is_empty() || points == 0 {
            return self.fallback.pick(cx);
        }
        if cx.tried.progress.rounds == 0 {
            cx.tried.progress.rounds = 1;
            cx.tried.progress.hash = self.plan.find(crc32(cx.key)) as u32;
        }
        while cx.tried.progress.tries <= DRAWS {
            let owner = self.plan.points[cx.tried.progress.hash as usize % points].1;
            let members = match &self.plan.groups {
                Some(groups) => groups.members(owner as usize),
                None => &[owner],
            };
            let turns = match &mut self.fallback {
                RoundRobin::Smooth(smooth) => Some(smooth),
                RoundRobin::Rotation(_) => self.turns.as_mut(),
            };
            let mut open = members.iter().map(|i| *i as usize).filter(|i| cx.open(*i));
            let found = match turns {
                Some(smooth) => smooth.turn(cx.level, open),
                None => open.next(),
            };
            if found.is_some() {
                return found;
            }
            cx.tried.progress.hash += 1;
            cx.tried.progress.tries += 1;
        }
        self.fallback.pick(cx)
    }

    fn on_complete(&mut self, now: Nanos, level: &Level, index: usize, report: &Report) {
        self.fallback.on_complete(now, level, index, report);
        if let (Some(turns), true) = (&mut self.turns, report.failed()) {
            turns.on_failure(level, index);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::structures::wheel::tests::level;

    #[test]
    fn names_are_split() {
        assert_eq!(host_and_port("a.example:8080"), ("a.example", "8080"));
        assert_eq!(host_and_port("a.example"), ("a.example", ""));
        assert_eq!(host_and_port("a:x"), ("a:x", ""));
        assert_eq!(host_and_port("[::1]:80"), ("[::1]", "80"));
        assert_eq!(host_and_port("[::1]"), ("[::1]", ""));
        assert_eq!(host_and_port("UNIX:/run/a:1"), ("/run/a:1", ""));
    }

    #[test]
    fn the_index_finds_what_a_search_finds() {
        // Among 320,000 points some coincide.
        for weights in [&[1, 1][..], &[3, 1, 9, 2], &[1; 40], &[1; 2_000]] {
            let plan = ConsistentPlan::new(&level(weights));
            assert!(plan.points.windows(2).all(|pair| pair[0].0 < pair[1].0));
            let mut rng = Rng::new(3);
            let edges = [0, 1, u32::MAX].into_iter().chain(plan.points.iter().map(|p| p.0));
            for hash in edges.chain((0..20_000).map(|_| rng.next() as u32)) {
                assert_eq!(plan.find(hash), plan.points.partition_point(|p| p.0 < hash));
            }
        }
    }

    #[test]
    fn few_keys_move_when_a_server_goes() {
        let owners = |weights: &[u32]| {
            let level = level(weights);
            let plan = ConsistentPlan::new(&level);
            let owner = move |i: u32| {
                let at = plan.find(crc32(format!("/key/{i}").as_bytes())) % plan.points.len();
                plan.points[at].1
            };
            (0..10_000).map(owner).collect::<Vec<_>>()
        };
        let (ten, nine) = (owners(&[1; 10]), owners(&[1; 9]));
        let moved = ten.iter().zip(&nine).filter(|(a, b)| a != b).count();
        assert_eq!(moved, ten.iter().filter(|s| **s == 9).count());
        assert!((500..1_500).contains(&moved), "{moved}");
    }
}
