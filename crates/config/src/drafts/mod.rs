//! What has been read and is not in the model yet, since something that belongs to it may stand further down.

mod charsets;
mod logs;
mod tls;
mod traces;
mod upstreams;
mod zones;

pub(crate) use charsets::CharsetDrafts;
pub(crate) use logs::Format;
pub(crate) use tls::{ClientDraft, ClientUse, Crls, Loaded, Named, Negotiation, Passwords};
pub(crate) use traces::Traces;
pub(crate) use upstreams::{Matches, Resolving, UpstreamDraft, UpstreamDrafts};
pub(crate) use zones::{LimitZones, Purpose, SMALLEST_ZONE, Zone};

/// The blocks that servers stand in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http,
    Stream,
}
