//! `outlier`, `retry_budget`, `concurrency`, `hedge`: what keeps failing and slow servers from harming more than they must. The
//! algorithm library knows their parameters.

use balanza_balancing::overload::{Settings, find};

use crate::load::Builder;
use crate::tree::Statement;

impl Builder<'_> {
    /// A directive of the algorithm library with parameters `name=value`.
    pub fn overload(&mut self, s: &Statement) -> Option<Settings> {
        let feature = find(&s.words[0].text())?;
        let texts: Vec<String> = s.args().iter().map(|word| word.text()).collect();
        let given: Vec<(&str, &str)> = texts.iter().map(|text| text.split_once('=').unwrap_or((text, ""))).collect();
        let mut good = true;
        for (at, word) in s.args().iter().enumerate() {
            self.check_quotes(word)?;
            let error = match given[..at].iter().any(|(name, _)| *name == given[at].0) {
                true => format!("duplicate parameter \"{}\"", given[at].0),
                false => match Settings::new(feature, &given[at..=at]) {
                    Ok(_) => continue,
                    Err(error) => error.to_string(),
                },
            };
            let names: Vec<&str> = feature.parameters.iter().map(|parameter| parameter.name).collect();
            self.error_hint(word.span, error, format!("it has {}", names.join(", ")));
            good = false;
        }
        let settings = Settings::new(feature, &given).ok()?;
        good.then_some(settings)
    }
}

#[cfg(test)]
mod tests {
    use balanza_balancing::overload::FEATURES;

    #[test]
    fn the_document_has_all_parameters_with_their_defaults() {
        let text = include_str!("../../data/own.md");
        for feature in FEATURES {
            let start = text.find(&format!("### `{} ", feature.name)).expect("a section");
            let section = &text[start..start + text[start + 3..].find("###").unwrap_or(0)];
            for parameter in feature.parameters {
                let row = format!("| `{}` | {} |", parameter.name, parameter.default);
                assert!(section.contains(&row), "{}: {row}", feature.name);
            }
        }
    }
}
