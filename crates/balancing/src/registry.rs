//! The list of algorithms: names, texts, parameters, sources and costs.
//!
//! Configuration, command line, documentation and tests read this list and nothing else, so an algorithm is added with
//! one file in `algorithms/` and one line in [`entries`].

mod method;
mod nearest;

pub use method::{Method, MethodError, unknown};
pub use nearest::nearest;

use crate::algorithms;
pub use crate::spec::{Entry, Host, Key, Kind, PROBE, PROGRAM, Parameter, ParameterError, STALE, Share, Spec, Times};

/// All algorithms, the default one first.
pub fn entries() -> &'static [Entry] {
    static ENTRIES: &[Entry] = &[
        algorithms::round_robin::ENTRY,
        algorithms::least_conn::ENTRY,
        algorithms::ip_hash::ENTRY,
        algorithms::hash::ENTRY,
        algorithms::maglev::ENTRY,
        algorithms::rendezvous::ENTRY,
        algorithms::bounded_hash::ENTRY,
        algorithms::hashed_ip::ENTRY,
        algorithms::last_server::ENTRY,
        algorithms::locality_least_conn::ENTRY,
        algorithms::random::ENTRY,
        algorithms::two_choices::ENTRY,
        algorithms::choices_with_memory::ENTRY,
        algorithms::least_time::ENTRY,
        algorithms::shortest_expected_delay::ENTRY,
        algorithms::never_queue::ENTRY,
        algorithms::first::ENTRY,
        algorithms::priority::ENTRY,
        algorithms::peak_ewma::ENTRY,
        algorithms::combined::ENTRY,
        algorithms::least_bandwidth::ENTRY,
        algorithms::least_load::ENTRY,
        algorithms::weighted_load::ENTRY,
        algorithms::join_idle_queue::ENTRY,
        algorithms::prequal::ENTRY,
        algorithms::external::ENTRY,
    ];
    ENTRIES
}

/// The algorithm of this name or alias.
pub fn find(name: &str) -> Option<&'static Entry> {
    entries().iter().find(|e| e.name == name || e.aliases.contains(&name))
}

/// The first algorithm of the list, with its defaults.
impl Default for Spec {
    fn default() -> Spec {
        Spec::of(&entries()[0])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_defaults_are_valid() {
        let mut names: Vec<&str> = entries().iter().flat_map(|e| e.aliases.iter().copied().chain([e.name])).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        for entry in entries() {
            assert_eq!(find(entry.name).unwrap().name, entry.name);
            let spec = Spec::new(entry, &[]).unwrap();
            for (parameter, (name, value)) in entry.parameters.iter().zip(spec.parameters()) {
                assert_eq!((parameter.name, parameter.default), (name, value.as_str()));
            }
        }
        assert!(find("least-conn").is_none());
        assert_eq!((Spec::default().entry().name, entries()[0].nginx), ("round_robin", Some("")));
    }

    #[test]
    fn what_algorithms_need_has_its_parameter() {
        let has = |entry: &Entry, name: &str, of: fn(Kind) -> bool| {
            entry.parameters.iter().any(|parameter| parameter.name == name && of(parameter.kind))
        };
        for entry in entries() {
            let name = entry.name;
            let (stale, probe) = (
                has(entry, STALE, |kind| matches!(kind, Kind::Time(..))),
                has(entry, PROBE, |kind| kind == Kind::Path),
            );
            let program = has(entry, PROGRAM, |kind| kind == Kind::Program);
            assert_eq!(stale, entry.host == Host::Reports, "{name}");
            assert_eq!(probe, entry.host == Host::Probes, "{name}");
            assert_eq!(program, entry.host == Host::Program, "{name}");
            let words = |name: &str| entry.parameters.iter().find(|p| p.name == name).map(|p| p.kind);
            let chosen =
                |(name, value): (&str, &str)| matches!(words(name), Some(Kind::Choice(of)) if of.contains(&value));
            assert!(entry.strict.is_none_or(chosen), "{name}");
            assert!(!matches!(entry.times, Times::Unless(name, value) if !chosen((name, value))), "{name}");
        }
        let of = |name: &str, value: &str| {
            let entry = entries().iter().find(|entry| entry.parameters.iter().any(|p| p.name == name)).unwrap();
            Spec::new(entry, &[(name, value)])
        };
        assert!(of(PROGRAM, " ").unwrap().lacks_program() && !of(PROGRAM, "cat").unwrap().lacks_program());
        assert!(of(PROBE, "/x").is_ok() && of(PROBE, "x").is_err() && of(PROBE, "/x y").is_err());
        assert!(of("mode", "strict").unwrap().is_strict() && !of("mode", "lax").unwrap().is_strict());
    }

    #[test]
    fn parameters_are_checked() {
        let least_time = find("least_time").unwrap();
        let spec = Spec::new(least_time, &[("by", "last_byte"), ("inflight", "")]).unwrap();
        assert_eq!(format!("{spec:?}"), "least_time by=last_byte inflight=on");
        let error = |p: &[(&str, &str)]| Spec::new(least_time, p).unwrap_err().to_string();
        assert_eq!(error(&[("factor", "1")]), "least_time has no parameter \"factor\"");
        assert_eq!(error(&[("by", "x")]), "invalid value \"x\" of \"by\": header or last_byte expected");
        assert_eq!(error(&[("by", "header"), ("by", "header")]), "duplicate parameter \"by\"");
        let two = find("two_choices").unwrap();
        assert!(Spec::new(two, &[("choices", "1")]).is_err());
        assert!(Spec::new(two, &[("choices", "+3")]).is_err());
        let hash = |p: &[(&str, &str)]| Spec::new(find("hash").unwrap(), p).map_err(|e| e.to_string());
        assert!(hash(&[("consistent", ""), ("balance_factor", "150")]).is_ok());
        assert!(hash(&[("balance_factor", "0")]).is_ok());
        assert_eq!(
            hash(&[("consistent", ""), ("balance_factor", "100")]).unwrap_err(),
            "invalid value \"100\" of \"balance_factor\": 0 or a number from 101 to 10000 expected"
        );
        assert_eq!(Spec::new(two, &[("choices", "3")]).unwrap().number("choices"), 3);
    }
}
