//! The servers of upstreams: who they are, which one is chosen, and the connections to them. Requests of `http` and sessions of
//! `stream` find their servers here.

pub mod address;
pub mod affinity;
pub mod attempt;
pub mod blocks;
pub mod bound;
pub mod external;
pub mod failure;
pub mod feedback;
pub mod group;
pub mod health;
pub mod lease;
pub mod membership;
pub mod multiplexed;
pub mod open;
pub mod picks;
pub mod pool;
pub mod probe;
pub mod queue;
pub mod search;
pub mod shadows;
