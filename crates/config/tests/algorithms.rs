//! `balance` takes every algorithm of the registry with every parameter that it has.

use balanza_balancing::registry::{self, Entry, Host, Key, Kind, Parameter, STALE, Spec};
use balanza_config::model::Balance;
use balanza_config::{Bundle, Options, load};
use proptest::prelude::*;

/// What an upstream with this directive chooses; `None` when it is refused, with the messages.
fn chosen(directive: &str) -> Result<Balance, String> {
    let mut files = Bundle::default();
    // Enough of everything that some algorithm asks for.
    let text = format!(
        "events {{ }} http {{ upstream u {{ {directive} load_report snmp;
           server 10.0.0.1 max_conns=9; server 10.0.0.2 max_conns=9; }} }}"
    );
    files.add_file("/n.conf", text);
    let (config, problems) = load(&files, &Options::new("/", "/n.conf"));
    let said = problems.iter().map(|problem| problem.render(false)).collect::<String>();
    config.map(|config| config.http.upstreams[0].balance.clone()).ok_or(said)
}

/// Values that a parameter may have, as a user would write them.
fn values(parameter: &Parameter) -> BoxedStrategy<String> {
    match parameter.kind {
        Kind::Choice(words) => proptest::sample::select(words).prop_map(str::to_string).boxed(),
        Kind::Switch => proptest::sample::select(&["on", "off"][..]).prop_map(str::to_string).boxed(),
        Kind::Number(low, high) => (low..=high).prop_map(|number| number.to_string()).boxed(),
        Kind::Time(low, high) => {
            let fine = (low * 1000..=high * 1000).prop_map(|us| format!("{us}us"));
            prop_oneof![fine, (low..=high).prop_map(|ms| format!("{ms}ms"))].boxed()
        }
        Kind::Limit(low, high) => (low..=high).prop_map(|number| number.to_string()).boxed(),
        Kind::Path => "/[!-~]{0,20}".boxed(),
        // A quote at the beginning is taken for a mistake, and a program has a name.
        Kind::Program => "[!#-&(-~][ -~]{0,20}".boxed(),
    }
}

/// Whether the algorithm cannot do without it.
fn is_required(parameter: &Parameter) -> bool {
    parameter.kind == Kind::Program
}

/// An algorithm by one of its names, and some of its parameters in any order.
fn call() -> impl Strategy<Value = (&'static Entry, &'static str, Vec<(&'static str, String)>)> {
    let entries: Vec<&'static Entry> = registry::entries().iter().collect();
    proptest::sample::select(entries).prop_flat_map(|entry| {
        let names: Vec<&'static str> = entry.aliases.iter().copied().chain([entry.name]).collect();
        let parameters: Vec<_> = entry
            .parameters
            .iter()
            .map(|parameter| {
                let value = match is_required(parameter) {
                    true => values(parameter).prop_map(Some).boxed(),
                    false => proptest::option::of(values(parameter)).boxed(),
                };
                value.prop_map(|value| (parameter.name, value))
            })
            .collect();
        let parameters = parameters
            .prop_map(|all| all.into_iter().filter_map(|(name, value)| Some((name, value?))).collect::<Vec<_>>())
            .prop_shuffle();
        (Just(entry), proptest::sample::select(names), parameters)
    })
}

proptest! {
    #[test]
    fn any_algorithm_is_written_as_balance((entry, name, parameters) in call(), bare in any::<bool>()) {
        let given: Vec<(&str, &str)> = parameters.iter().map(|(name, value)| (*name, value.as_str())).collect();
        // Reports count for as long as `load_report` says that they hold: three intervals of 5s without parameters.
        let mut meant = given.clone();
        if entry.host == Host::Reports && !given.iter().any(|(name, _)| *name == STALE) {
            meant.push((STALE, "15s"));
        }
        let Ok(wanted) = Spec::new(entry, &meant) else {
            // Parameters that do not go together are refused there and here.
            return Ok(());
        };
        let mut directive = format!("balance {name}");
        for (name, value) in &given {
            let switch = entry.parameters.iter().any(|p| p.name == *name && p.kind == Kind::Switch);
            if switch && *value == "on" && bare {
                directive.push_str(&format!(" {name}"));
            } else {
                let quoted = value.replace('\\', "\\\\").replace('"', "\\\"");
                directive.push_str(&format!(" \"{name}={quoted}\""));
            }
        }
        if entry.needs_key {
            directive.push_str(" key=$uri");
        }
        let found = chosen(&format!("{directive};")).map_err(TestCaseError::fail)?;
        prop_assert_eq!(format!("{:?}", found.spec), format!("{wanted:?}"));
        prop_assert_eq!(found.key.is_some(), entry.key == Key::Any);
    }
}

#[test]
fn every_algorithm_is_taken_by_each_of_its_names() {
    for entry in registry::entries() {
        for name in entry.aliases.iter().chain([&entry.name]) {
            let key = if entry.needs_key { " key=$uri" } else { "" };
            let required = entry.parameters.iter().filter(|parameter| is_required(parameter));
            let required: String = required.map(|parameter| format!(" {}=/x", parameter.name)).collect();
            let found = chosen(&format!("balance {name}{key}{required};")).unwrap();
            assert_eq!(found.spec.entry().name, entry.name);
        }
    }
}

#[test]
fn loads_count_for_as_long_as_they_hold() {
    let stale = |text: &str| {
        let mut files = Bundle::default();
        files.add_file(
            "/n.conf",
            format!("events {{ }} http {{ upstream u {{ {text} server 10.0.0.1; server 10.0.0.2; }} }}"),
        );
        let (config, _) = load(&files, &Options::new("/", "/n.conf"));
        config.unwrap().http.upstreams[0].balance.spec.parameters().find(|(name, _)| *name == STALE).unwrap().1
    };
    for name in ["least_load", "weighted_load"] {
        let with = |words: &str, reports: &str| stale(&format!("balance {name}{words}; {reports}"));
        assert_eq!(with("", "load_report snmp interval=1m;"), "3m");
        assert_eq!(with("", "load_report snmp interval=1s; load_report header X stale_after=7s;"), "7s");
        assert_eq!(with(" stale=4s", "load_report snmp interval=1m;"), "4s");
    }
}
