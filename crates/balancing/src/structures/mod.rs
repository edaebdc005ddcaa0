//! Structures that several algorithms share.

pub(crate) mod alias;
pub(crate) mod chances;
pub(crate) mod contest;
pub(crate) mod fallback;
pub(crate) mod kept;
pub(crate) mod latencies;
pub(crate) mod probes;
pub(crate) mod queue;
pub(crate) mod ranks;
pub(crate) mod ring;
pub(crate) mod rotation;
pub(crate) mod round_robin;
pub(crate) mod scored;
pub(crate) mod silence;
pub(crate) mod smooth;
pub(crate) mod timed_average;
pub(crate) mod tournament;
pub(crate) mod traffic;
pub(crate) mod typical;
pub(crate) mod wheel;
