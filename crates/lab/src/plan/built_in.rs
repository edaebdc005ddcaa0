//! The plans that come with the program.

use super::Plan;

/// A plan that comes with the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BuiltIn {
    /// Its name.
    pub name: &'static str,
    /// Its text.
    pub text: &'static str,
}

macro_rules! plans {
    ($($name:literal),+) => {
        &[$(BuiltIn { name: $name, text: include_str!(concat!("../../../../experiments/", $name, ".toml")) }),+]
    };
}

const ALL: &[BuiltIn] = plans![
    "unicamp-2021",
    "unne-2023",
    "ugr-2012",
    "earlham-2017",
    "bhat-2021",
    "peers-2026",
    "hard-cases-2026",
    "churn-2026"
];

impl Plan {
    /// The plans that come with the program: five experiments of the literature, and one of the balancers' own.
    pub fn built_in() -> &'static [BuiltIn] {
        ALL
    }
}
