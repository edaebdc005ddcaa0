//! Statistics of simulations: intervals of confidence, the end of the warm-up.

pub(crate) mod intervals;
pub(crate) mod warmup;
