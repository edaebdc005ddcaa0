//! What an algorithm is combined with: directives of an upstream against failing, overloaded and slow servers.

use balanza_balancing::overload::{Settings, find};

/// The directives, as after ` + ` in `round_robin + outlier time=10s + retry_budget`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Guards {
    pub outlier: Option<Settings>,
    pub retry_budget: Option<Settings>,
    pub concurrency: Option<Settings>,
    pub hedge: Option<Settings>,
}

impl Guards {
    /// Reads them.
    ///
    /// # Errors
    /// What is wrong.
    pub fn parse<'t>(texts: impl Iterator<Item = &'t str>) -> Result<Guards, String> {
        let mut guards = Guards::default();
        for text in texts {
            let mut words = text.split_whitespace();
            let name = words.next().unwrap_or_default();
            let feature = find(name).ok_or_else(|| format!("there is no \"{name}\" to combine an algorithm with"))?;
            let given: Vec<(&str, &str)> = words.map(|word| word.split_once('=').unwrap_or((word, ""))).collect();
            let settings = Settings::new(feature, &given).map_err(|error| error.to_string())?;
            let place = match name {
                "outlier" => &mut guards.outlier,
                "concurrency" => &mut guards.concurrency,
                "hedge" => &mut guards.hedge,
                _ => &mut guards.retry_budget,
            };
            if place.replace(settings).is_some() {
                return Err(format!("\"{name}\" twice"));
            }
        }
        if guards.hedge.is_some() && guards.retry_budget.is_none() {
            // As in a configuration.
            guards.retry_budget = find("retry_budget").and_then(|budget| Settings::new(budget, &[]).ok());
        }
        Ok(guards)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directives_behind_an_algorithm() {
        let guards = |text: &'static str| Guards::parse(text.split(" + "));
        let both = guards("outlier time=10s + retry_budget ratio=10").unwrap();
        assert!(both.outlier.is_some() && both.retry_budget.is_some());
        for (text, wrong) in [
            ("least_conn", "there is no \"least_conn\" to combine an algorithm with"),
            ("outlier x=1", "outlier has no parameter \"x\""),
            ("outlier + outlier", "\"outlier\" twice"),
        ] {
            assert_eq!(guards(text).unwrap_err(), wrong);
        }
    }
}
