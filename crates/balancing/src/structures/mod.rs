//! Structures that several algorithms share.

pub(crate) mod alias;
pub(crate) mod contest;
pub(crate) mod fallback;
pub(crate) mod latencies;
pub(crate) mod probes;
pub(crate) mod queue;
pub(crate) mod ranks;
pub(crate) mod ring;
pub(crate) mod rotation;
pub(crate) mod scored;
pub(crate) mod silence;
pub(crate) mod smooth;
pub(crate) mod table;
pub(crate) mod tournament;
pub(crate) mod typical;
pub(crate) mod wheel;
