//! What the plan has done to servers, over several runs.

use std::collections::BTreeMap;

use crate::record::{Deed, Happened};
use crate::summary::Happenings;

/// The same things together: the same deed to the same server at the same planned time, of those without a time the first
/// with the first.
pub(super) fn happenings<'a>(runs: impl Iterator<Item = &'a [Happened]>) -> Vec<Happenings> {
    let mut all: BTreeMap<(&str, Deed, Option<u64>, usize), Happenings> = BTreeMap::new();
    for run in runs {
        let mut seen: BTreeMap<(&str, Deed, Option<u64>), usize> = BTreeMap::new();
        for Happened { server, what, planned, at } in run {
            let key = (server.as_str(), *what, planned.map(f64::to_bits));
            let number = seen.entry(key).or_default();
            let (server, planned) = (server.clone(), *planned);
            let together = all.entry((key.0, key.1, key.2, *number)).or_insert_with(|| Happenings {
                server,
                what: *what,
                planned,
                at: Vec::new(),
                missed: 0,
            });
            *number += 1;
            together.at.extend(at);
            together.missed += u32::from(at.is_none());
        }
    }
    let mut all: Vec<Happenings> = all.into_values().collect();
    let first = |one: &Happenings| one.planned.or(one.at.iter().copied().reduce(f64::min)).unwrap_or(f64::INFINITY);
    all.sort_by(|one, other| first(one).total_cmp(&first(other)));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_of_all_runs_is_together_in_the_order_of_its_times() {
        let event = |server: &str, what, planned, at| Happened { server: server.into(), what, planned, at };
        let runs = [
            [
                event("b", Deed::Kill, Some(3.0), Some(3.01)),
                event("a", Deed::Start, None, Some(1.2)),
                event("a", Deed::Start, None, Some(4.0)),
            ],
            [
                event("a", Deed::Start, None, Some(1.4)),
                event("a", Deed::Start, None, None),
                event("b", Deed::Kill, Some(3.0), Some(3.0)),
            ],
        ];
        let all = happenings(runs.iter().map(<[Happened; 3]>::as_slice));
        let words: Vec<_> = all.iter().map(|one| (one.server.as_str(), one.at.clone(), one.missed)).collect();
        let expected = [("a", vec![1.2, 1.4], 0), ("b", vec![3.01, 3.0], 0), ("a", vec![4.0], 1)];
        assert_eq!(words, expected);
    }
}
