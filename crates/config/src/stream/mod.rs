//! `stream` and its `server`.

mod layer;
mod listen;

use std::sync::Arc;

use crate::address::{self, Use};
use crate::check::Verdict;
use crate::directives::Context;
use crate::listen::ListenDraft;
use crate::load::{Builder, Protocol};
use crate::model::{Core, Listen, Stream, StreamServer, StreamTarget};
use crate::template::{Part, Template, Variable};
use crate::tree::Statement;
use crate::variables::{Names, Variables};
use layer::StreamLayer;

/// A server with its sockets.
struct ServerDraft {
    server: Arc<StreamServer>,
    listens: Vec<ListenDraft>,
}

impl Builder<'_> {
    /// The `stream` block. `taken` are the sockets of `http`.
    pub fn stream(&mut self, block: &[Statement], core: &Core, taken: &[Listen]) -> Stream {
        // Names in one protocol's block mean nothing in the other's.
        self.protocol = Protocol::Stream;
        self.variables = Variables::new(Names::STREAM);
        self.formats.clear();
        self.upstreams.clear();
        self.access_log_files.clear();
        self.error_log_files.clear();
        let usable: Vec<&Statement> =
            block.iter().filter(|statement| self.check(statement, Context::Stream) == Verdict::Use).collect();
        let named = |name: &'static [u8]| usable.iter().filter(move |s| s.words[0].value == name);
        for statement in named(b"upstream") {
            self.upstream(statement);
        }
        self.check_zones();
        let above = StreamLayer { error_log: Some(core.error_log.clone()), ..StreamLayer::default() };
        let mut layer = StreamLayer::default();
        for statement in &usable {
            match statement.words[0].value.as_slice() {
                b"upstream" | b"server" => {}
                b"log_format" => self.log_format(statement),
                _ => self.stream_directive(&mut layer, statement),
            }
        }
        layer.inherit(&above);
        let servers: Vec<ServerDraft> =
            named(b"server").filter_map(|statement| self.stream_server(statement, &layer)).collect();
        let listens = self.stream_listens(&servers, taken);
        self.undefined_variables();
        Stream {
            upstreams: self.upstreams.iter().map(|draft| draft.upstream.clone()).collect(),
            listens,
            explains_picks: self.variables.explains_picks,
            access_log_files: self.access_log_files.iter().cloned().collect(),
            error_log_files: self.error_log_files.iter().cloned().collect(),
        }
    }

    fn stream_server(&mut self, s: &Statement, above: &StreamLayer) -> Option<ServerDraft> {
        let mut layer = StreamLayer::default();
        let mut listens = Vec::new();
        let mut target = None;
        let block = || s.block.iter().flatten();
        for inner in block() {
            if self.check(inner, Context::StreamServer) == Verdict::Skip {
                continue;
            }
            match inner.words[0].value.as_slice() {
                b"listen" => self.listen(&mut listens, inner),
                b"proxy_pass" => self.assign(&mut target, inner, Self::stream_pass),
                _ => self.stream_directive(&mut layer, inner),
            }
        }
        let has = |name: &[u8]| block().any(|inner| inner.words[0].value == name);
        if !has(b"listen") {
            self.error(s.words[0].span, "no \"listen\" is defined for server");
        }
        if !has(b"proxy_pass") && !has(b"pass") && !has(b"return") {
            let hint = "add \"proxy_pass\"";
            self.error_hint(s.words[0].span, "no handler for server", hint);
        }
        layer.inherit(above);
        let server = layer.server(target?);
        self.note_logs(&server.access_logs, &server.error_log);
        let prereads = self.prereads(&server);
        Some(ServerDraft { server: Arc::new(StreamServer { prereads, ..server }), listens })
    }

    /// `proxy_pass`.
    fn stream_pass(&mut self, s: &Statement) -> Option<StreamTarget> {
        let word = &s.words[1];
        let template = self.template(word)?;
        let Some(text) = template.as_literal() else { return Some(StreamTarget::Dynamic(template)) };
        if text.starts_with(b"http://") {
            let hint = "a stream has no URL: write host and port only";
            self.error_hint(word.span, format!("invalid host in upstream \"{}\"", word.text()), hint);
            return None;
        }
        match address::parse(text, 0, Use::Server) {
            Ok(address) => self.reference_upstream(&address, word.span).map(StreamTarget::Fixed),
            Err(problem) => {
                self.error(word.span, format!("{problem} in upstream \"{}\"", word.text()));
                None
            }
        }
    }

    /// Whether anything that a session evaluates needs what the client sends first.
    fn prereads(&self, server: &StreamServer) -> bool {
        let key = |index: usize| self.upstreams.get(index).and_then(|draft| draft.upstream.balance.key.as_ref());
        let keys: Vec<&Template> = match &server.target {
            StreamTarget::Fixed(index) => key(*index).into_iter().collect(),
            // It may lead to any of them.
            StreamTarget::Dynamic(template) => {
                (0..self.upstreams.len()).filter_map(key).chain(std::iter::once(template)).collect()
            }
        };
        let logs = server.access_logs.iter();
        let logs = logs.flat_map(|log| std::iter::once(&log.format.template).chain(&log.condition));
        keys.into_iter().chain(server.bind.as_ref().map(|bind| &bind.address)).chain(logs).any(needs_client_data)
    }
}

fn needs_client_data(template: &Template) -> bool {
    template.parts().iter().any(|part| matches!(part, Part::Variable(Variable::RdpCookie(_))))
}
