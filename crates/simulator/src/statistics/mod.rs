//! Statistics of simulations: histograms, intervals of confidence, the end of the warm-up.

pub(crate) mod histogram;
pub(crate) mod intervals;
pub(crate) mod warmup;
