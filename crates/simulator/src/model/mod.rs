//! The parts that a simulation is composed of, made ready for drawing.

pub(crate) mod arrivals;
pub(crate) mod distribution;
pub(crate) mod keys;
