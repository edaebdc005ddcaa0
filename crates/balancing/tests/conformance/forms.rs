//! The forms that the registry's algorithms have: for the tests of all of them, and for the benchmark.

use balanza_balancing::registry::{Kind, Parameter, Spec, entries};

/// The values of a parameter that make another algorithm of it, if it has such.
fn words(parameter: &Parameter) -> Option<&'static [&'static str]> {
    match parameter.kind {
        Kind::Choice(words) => Some(words),
        Kind::Switch => Some(&["off", "on"]),
        Kind::Limit(..) => Some(&["0", "125"]),
        Kind::Path | Kind::Program => Some(&["", "/path"]),
        Kind::Number(..) | Kind::Time(..) => None,
    }
}

/// Every algorithm with every combination of its words and switches that it takes, the rest by default; the default form
/// of each is the first.
pub fn forms() -> Vec<Spec> {
    let mut forms = Vec::new();
    for entry in entries() {
        let mut combinations: Vec<Vec<(&str, &str)>> = vec![Vec::new()];
        for parameter in entry.parameters {
            let Some(words) = words(parameter) else { continue };
            let sorted = || {
                words
                    .iter()
                    .filter(|w| **w == parameter.default)
                    .chain(words.iter().filter(|w| **w != parameter.default))
            };
            let with = |c: &Vec<(&'static str, &'static str)>, word| {
                c.iter().copied().chain([(parameter.name, word)]).collect()
            };
            combinations =
                combinations.iter().flat_map(|c| sorted().map(|word| with(c, *word)).collect::<Vec<_>>()).collect();
        }
        // Some combinations have no meaning and are refused.
        forms.extend(combinations.iter().filter_map(|parameters| Spec::new(entry, parameters).ok()));
    }
    forms
}

/// The name of a form: the algorithm and what is not as by default.
#[allow(dead_code, reason = "not all that include this file print names")]
pub fn label(spec: &Spec) -> String {
    let entry = spec.entry();
    let others = spec.parameters().zip(entry.parameters).filter(|((_, value), parameter)| value != parameter.default);
    let others = others.map(|((name, value), _)| format!(" {name}={value}"));
    std::iter::once(entry.name.to_string()).chain(others).collect()
}

#[test]
fn every_word_is_in_a_form() {
    let forms = forms();
    for entry in entries() {
        let of: Vec<&Spec> = forms.iter().filter(|spec| spec.entry().name == entry.name).collect();
        assert_eq!(of.first().map(|spec| label(spec)).as_deref(), Some(entry.name));
        for parameter in entry.parameters {
            for word in words(parameter).unwrap_or(&[parameter.default]) {
                let has = |spec: &&Spec| spec.parameters().any(|(n, v)| (n, v.as_str()) == (parameter.name, *word));
                assert!(of.iter().any(has), "{} {}={word}", entry.name, parameter.name);
            }
        }
    }
}
