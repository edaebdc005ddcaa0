//! What `stream` and its `server` set, and what a server inherits.

use std::sync::Arc;

use crate::block::Given;
use crate::diagnostics::Span;
use crate::drafts::ClientDraft;
use crate::listen::{ListenDraft, NameDraft};
use crate::load::Builder;
use crate::model::{StreamServer, StreamTarget};
use crate::tls::ServerDraft;
use crate::tree::Statement;
use crate::upstream::checks::CheckDraft;

/// `stream` or a `server` in it while it is read.
#[derive(Debug, Default)]
pub(crate) struct StreamBlock {
    /// Inherited, without its target.
    pub server: StreamServer,
    /// `ssl_…`.
    pub tls: ServerDraft,
    /// `proxy_ssl_…`.
    pub proxy_tls: Arc<ClientDraft>,
    pub target: Option<StreamTarget>,
    pub listens: Vec<ListenDraft>,
    /// `server_name`.
    pub names: Vec<(NameDraft, Span)>,
    pub health_checks: Vec<CheckDraft>,
    pub status_zone: Option<String>,
    pub given: Given,
}

impl StreamBlock {
    /// A server in this block.
    pub fn inner(&self) -> StreamBlock {
        StreamBlock {
            server: self.server.clone(),
            tls: self.tls.clone(),
            proxy_tls: Arc::clone(&self.proxy_tls),
            ..StreamBlock::default()
        }
    }
}

impl Builder<'_> {
    /// A size that something fits into: a session with a buffer of 0 bytes, which NGINX accepts, would not proceed.
    pub fn stream_buffer_size(&mut self, s: &Statement) -> Option<usize> {
        let size = self.size(s)?;
        if size == 0 {
            self.invalid_value(s, &s.words[1]);
            return None;
        }
        Some(size)
    }
}
