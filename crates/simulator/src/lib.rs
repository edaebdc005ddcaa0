//! Discrete-event simulation of load balancing in virtual time, with the product's own algorithms.
//!
//! A [`scenario::Scenario`] says what is simulated; [`result`] has what comes out.
#![forbid(unsafe_code)]

pub mod result;
pub mod scenario;

pub use scenario::Scenario;
