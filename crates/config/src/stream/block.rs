//! What `stream` and its `server` set, and what a server inherits.

use std::sync::Arc;

use crate::block::{Given, defaults};
use crate::diagnostics::Span;
use crate::directives::{Directive, Reader};
use crate::listen::{ListenDraft, NameDraft};
use crate::load::Builder;
use crate::model::{Core, StreamServer, StreamTarget};
use crate::tls::{ClientDraft, ServerDraft};
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
    /// The level above `stream`: the defaults of all directives.
    pub(super) fn stream_defaults(&mut self, core: &Core) -> StreamBlock {
        let mut block = StreamBlock::default();
        for (directive, statement) in defaults() {
            if let Reader::Stream(read) = directive.reader {
                read(self, &mut block, statement);
            }
        }
        block.server.error_log.clone_from(&core.error_log);
        block
    }

    /// Reads a directive of a block; the code of the context reads the blocks in it.
    pub(super) fn stream_directive(&mut self, block: &mut StreamBlock, directive: &'static Directive, s: &Statement) {
        if !self.admit(&mut block.given, directive, s) {
            return;
        }
        match directive.reader {
            Reader::Stream(read) => read(self, block, s),
            Reader::Check(check) => check(self, s),
            _ => {}
        }
    }

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
