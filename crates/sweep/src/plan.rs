//! What a user writes.

use serde::Deserialize;
use toml::{Table, Value};

/// A plan: a scenario and what is varied of it.
///
/// ```toml
/// name = "Does the second choice pay?"
/// scenario = "supermarket"              # one that comes with the program, a file, or a table with a scenario
/// algorithms = ["random", "two_choices"]
/// loads = [0.5, 0.9]
/// replications = 20                     # seeds 1 to 20
///
/// [set]                                 # keys of the scenario that are other than in it
/// "run.requests" = 20_000
///
/// [[axes]]
/// key = "servers.0.count"
/// values = [10, 100]
/// ```
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// A heading.
    #[serde(default)]
    pub name: String,
    /// What it is about, in paragraphs separated by an empty line.
    #[serde(default)]
    pub description: String,
    /// What is varied.
    pub scenario: Written,
    /// Instead of the scenario's.
    pub algorithms: Option<Vec<String>>,
    /// Instead of the scenario's.
    pub loads: Option<Vec<f64>>,
    /// Seeds of each combination; instead of the scenario's replications.
    pub replications: Option<u32>,
    /// The first of the seeds, which follow each other; instead of the scenario's.
    pub seed: Option<u64>,
    /// Values by their paths in the scenario. A table is merged into what is there, unless it has a `kind`.
    #[serde(default)]
    pub set: Table,
    /// What else is varied, the slowest first.
    #[serde(default)]
    pub axes: Vec<Axis>,
}

/// A scenario in a plan.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum Written {
    /// The name of one that comes with the program, or a file; relative to the plan.
    Named(String),
    /// The scenario itself.
    Here(Table),
}

/// Values that a part of the scenario takes.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Axis {
    /// The path in the scenario: `servers.0.count`. Without one, each value is a table of values by their paths.
    pub key: Option<String>,
    /// What reports call it; the path by default.
    pub name: Option<String>,
    /// The values.
    pub values: Vec<Value>,
    /// What reports call the values; themselves by default.
    #[serde(default)]
    pub names: Vec<String>,
}

impl Axis {
    /// What reports call it.
    pub fn title(&self) -> String {
        self.name.clone().or_else(|| self.key.clone()).unwrap_or_else(|| "setting".into())
    }

    /// What reports call a value: a number if it is one.
    pub fn label(&self, index: usize) -> serde_json::Value {
        match (self.names.get(index), self.values.get(index)) {
            (Some(name), _) => name.as_str().into(),
            (None, Some(Value::Integer(number))) => (*number).into(),
            (None, Some(Value::Float(number))) => (*number).into(),
            (None, Some(Value::String(text))) => text.as_str().into(),
            (None, Some(value)) => value.to_string().into(),
            (None, None) => serde_json::Value::Null,
        }
    }

    /// Puts a value into a scenario; one that the axis does not have leaves it as it is.
    ///
    /// Errors: there is no place for it; in words.
    pub fn apply(&self, index: usize, scenario: &mut Table) -> Result<(), String> {
        match (&self.key, self.values.get(index)) {
            (_, None) => Ok(()),
            (Some(key), Some(value)) => put(scenario, key, value),
            (None, Some(Value::Table(values))) => values.iter().try_for_each(|(key, value)| put(scenario, key, value)),
            (None, Some(_)) => Err("without a key, a value is a table of values by their paths".into()),
        }
    }
}

/// Puts a value at a path: names and, in lists, numbers from 0.
///
/// Errors: the path leads nowhere; in words.
pub fn put(scenario: &mut Table, path: &str, value: &Value) -> Result<(), String> {
    let (first, rest) = path.split_once('.').unwrap_or((path, ""));
    let entry = scenario.entry(first).or_insert_with(|| Value::Table(Table::new()));
    put_into(entry, path, rest, value)
}

fn put_into(target: &mut Value, path: &str, rest: &str, value: &Value) -> Result<(), String> {
    if rest.is_empty() {
        merge(target, value);
        return Ok(());
    }
    let (first, rest) = rest.split_once('.').unwrap_or((rest, ""));
    match target {
        Value::Table(table) => {
            let entry = table.entry(first).or_insert_with(|| Value::Table(Table::new()));
            put_into(entry, path, rest, value)
        }
        Value::Array(list) => {
            let count = list.len();
            let item = first.parse().ok().and_then(|at: usize| list.get_mut(at));
            let item = item.ok_or_else(|| format!("\"{path}\": \"{first}\" is none of 0 to {}", count.max(1) - 1))?;
            put_into(item, path, rest, value)
        }
        _ => Err(format!("\"{path}\" goes on below a single value")),
    }
}

/// A table with a `kind` is another thing than the table that is there, and replaces it; so does everything else.
fn merge(target: &mut Value, value: &Value) {
    match (target, value) {
        (Value::Table(target), Value::Table(value)) if !value.contains_key("kind") => {
            for (key, value) in value {
                merge(target.entry(key).or_insert_with(|| Value::Table(Table::new())), value);
            }
        }
        (target, value) => *target = value.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scenario() -> Table {
        toml::from_str("run = { requests = 5, warmup = 1 }\nservice = { kind = \"lognormal\", mean = 1, cv = 2 }\n[[servers]]\ncount = 2\n")
            .unwrap()
    }

    fn after(path: &str, value: &str) -> Result<String, String> {
        let mut table = scenario();
        let value: Table = toml::from_str(&format!("v = {value}")).unwrap();
        put(&mut table, path, &value["v"])?;
        Ok(toml::to_string(&table).unwrap())
    }

    #[test]
    fn values_by_their_paths() {
        assert!(after("servers.0.count", "7").unwrap().contains("count = 7"));
        assert!(after("network.delay", "\"1ms\"").unwrap().contains("[network]\ndelay = \"1ms\""));
        let run = after("run", "{ requests = 9 }").unwrap();
        assert!(run.contains("requests = 9") && run.contains("warmup = 1"), "{run}");
        let service = after("service", "{ kind = \"constant\", mean = 3 }").unwrap();
        assert!(service.contains("mean = 3") && !service.contains("cv"), "{service}");
        assert_eq!(after("servers.1.count", "7").unwrap_err(), "\"servers.1.count\": \"1\" is none of 0 to 0");
        assert_eq!(after("run.requests.x", "7").unwrap_err(), "\"run.requests.x\" goes on below a single value");
    }
}
