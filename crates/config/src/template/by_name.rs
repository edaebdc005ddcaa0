//! Variables that are looked for by their names in operation: pages of `ssi` name them.

use std::collections::HashMap;

use super::Variable;

/// Makes a variable of the rest of its name.
pub type Family = fn(Box<[u8]>) -> Variable;

/// The variables that a page can name.
#[derive(Debug, Default)]
pub struct VariableNames {
    /// By names in lower case.
    pub single: HashMap<Box<[u8]>, Variable>,
    /// Those of families, by what their names begin with.
    pub families: &'static [(&'static str, Family)],
}

impl VariableNames {
    /// The variable of a name in lower case.
    pub fn find(&self, name: &[u8]) -> Option<Variable> {
        self.single.get(name).cloned().or_else(|| {
            self.families
                .iter()
                .find_map(|(prefix, variable)| Some(variable(name.strip_prefix(prefix.as_bytes())?.into())))
        })
    }
}
