//! Upstreams, and what their servers should answer.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::diagnostics::Span;
use crate::model::{Match, Resolver, StreamMatch, Upstream};

/// An upstream, and by what `proxy_pass` finds it.
#[derive(Debug)]
pub(crate) struct UpstreamDraft {
    pub upstream: Arc<Upstream>,
    /// The host as written in the URL, for implied groups; the name otherwise.
    pub host: Vec<u8>,
    /// For implied groups.
    pub port: Option<u16>,
    /// Until the block around it has been read.
    pub resolving: Option<Resolving>,
}

/// What an upstream with `resolve` says of its resolver.
#[derive(Debug)]
pub(crate) struct Resolving {
    /// The first `resolve`.
    pub span: Span,
    /// The upstream.
    pub place: Span,
    pub resolver: Option<Arc<Resolver>>,
    pub timeout: Option<Duration>,
}

/// The `match` blocks of a protocol, by name.
#[derive(Debug, Default)]
pub(crate) struct Matches {
    pub http: HashMap<String, Arc<Match>>,
    pub stream: HashMap<String, Arc<StreamMatch>>,
}
