//! Ready scenarios: the five documents that the project began with, and what balancing is known for.

use crate::{Error, Scenario};

/// A scenario that comes with the program.
#[derive(Clone, Copy, Debug)]
pub struct Ready {
    /// What it is called: `balanza simulate NAME`.
    pub name: &'static str,
    /// The file, in TOML.
    pub text: &'static str,
}

macro_rules! ready {
    ($name:literal) => {
        Ready { name: $name, text: include_str!(concat!("../scenarios/", $name, ".toml")) }
    };
}

/// All of them, in the order in which they are shown.
pub const ALL: &[Ready] = &[
    ready!("unicamp-2021"),
    ready!("unne-2023"),
    ready!("ugr-2012"),
    ready!("earlham-2017"),
    ready!("earlham-2017-finite"),
    ready!("bhat-2021"),
    ready!("bhat-2021-one"),
    ready!("bhat-2021-stated"),
    ready!("supermarket"),
    ready!("one-slow-server"),
    ready!("cold-start"),
    ready!("herd-after-reload"),
    ready!("stale-board"),
    ready!("ten-thousand-servers"),
    ready!("fails-fast"),
    ready!("equal-servers"),
    ready!("few-servers"),
    ready!("weighted-servers"),
    ready!("unweighted-servers"),
    ready!("heavy-tails"),
    ready!("many-balancers"),
    ready!("stale-reports"),
    ready!("hung-server"),
    ready!("ejected-server"),
    ready!("ejected-farm"),
    ready!("retry-storm"),
    ready!("retry-shortage"),
    ready!("measured-limit"),
    ready!("measured-too-low"),
    ready!("hedged-pauses"),
    ready!("hedged-load"),
    ready!("gray-failure"),
    ready!("metastable-collapse"),
    ready!("metastable-deadline"),
];

/// The scenario of this name.
pub fn find(name: &str) -> Option<Ready> {
    ALL.iter().copied().find(|ready| ready.name == name)
}

impl Ready {
    /// The scenario itself.
    pub fn scenario(&self) -> Result<Scenario, Error> {
        Scenario::parse(self.text)
    }
}
