//! A plan from its text, or everything that is wrong with it.

use std::path::Path;

use balanza_toml::Error;

use super::{Plan, check};

impl Plan {
    /// Reads a plan.
    pub fn parse(text: &str) -> Result<Plan, Error> {
        Plan::parse_file(Path::new("plan"), text)
    }

    /// Reads a plan that stands in this file.
    pub fn parse_file(file: &Path, text: &str) -> Result<Plan, Error> {
        let (mut plan, places) = balanza_toml::read::<Plan>(file, text)?;
        let problems = check::problems(&plan, &places);
        plan.find_logs_beside(file);
        if problems.is_empty() { Ok(plan) } else { Err(Error::new(problems)) }
    }
}
