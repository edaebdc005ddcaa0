//! Upstreams, and what their servers should answer.

use std::collections::HashMap;
use std::ops::{Deref, DerefMut};
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

/// All of them, in the order of the text.
#[derive(Debug, Default)]
pub(crate) struct UpstreamDrafts {
    drafts: Vec<UpstreamDraft>,
    /// The places of those of each host, in lower case: a configuration may have thousands.
    by_host: HashMap<Vec<u8>, Vec<usize>>,
}

impl UpstreamDrafts {
    /// Adds one; returns its place.
    pub fn push(&mut self, draft: UpstreamDraft) -> usize {
        let place = self.drafts.len();
        self.by_host.entry(draft.host.to_ascii_lowercase()).or_default().push(place);
        self.drafts.push(draft);
        place
    }

    /// The places of those that have this host.
    pub fn of_host(&self, host: &[u8]) -> &[usize] {
        self.by_host.get(&host.to_ascii_lowercase()).map(Vec::as_slice).unwrap_or_default()
    }
}

impl Deref for UpstreamDrafts {
    type Target = [UpstreamDraft];

    fn deref(&self) -> &[UpstreamDraft] {
        &self.drafts
    }
}

impl DerefMut for UpstreamDrafts {
    fn deref_mut(&mut self) -> &mut [UpstreamDraft] {
        &mut self.drafts
    }
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
