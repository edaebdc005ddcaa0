//! What runs come to: estimates with intervals, who is better, which claims hold. No clock, no files.

pub mod estimate;
pub mod expression;
pub mod metrics;
pub mod student;
