//! `stream` and its `server`.

mod listen;

use std::sync::Arc;

use super::defaults;
use crate::directives::{Context, Directive, Reader};
use crate::drafts::{ClientUse, Matches, UpstreamDrafts};
use crate::listen::{NameDraft, ServerDraft, show};
use crate::load::{Builder, Protocol};
use crate::model::{Core, Listen, Map, Pass, Stream, StreamServer, StreamTarget};
use crate::stream::StreamBlock;
use crate::template::{Part, Template, Variable};
use crate::tree::Statement;
use crate::upstream::checks::Target;
use crate::variables::{Names, Variables};

impl Builder<'_> {
    /// The `stream` block. `taken` are the sockets of `http`.
    pub fn stream(&mut self, block: &[Statement], core: &Core, taken: &[Listen]) -> Stream {
        // Names in one protocol's block mean nothing in the other's.
        self.protocol = Protocol::Stream;
        self.variables = Variables::new(Names::STREAM);
        self.formats.clear();
        self.matches = Matches::default();
        self.upstreams = UpstreamDrafts::default();
        self.access_log_files.clear();
        self.error_log_files.clear();
        let usable: Vec<(&Directive, &Statement)> = block
            .iter()
            .filter_map(|statement| self.check(statement, Context::Stream).map(|directive| (directive, statement)))
            .collect();
        let named = |name: &'static str| usable.iter().filter(move |(it, _)| it.name == name).map(|(_, s)| *s);
        // Variables and upstreams may be used before they are defined.
        let maps = self.announce_maps(&usable);
        self.announce_stream_sets(block);
        for statement in named("upstream") {
            self.upstream(statement);
        }
        let maps = self.maps(&maps);
        for statement in named("match") {
            self.match_block(statement);
        }
        let mut stream = self.stream_defaults(core);
        for (directive, statement) in &usable {
            self.stream_directive(&mut stream, directive, statement);
        }
        self.set_resolvers(&stream.server.resolver.clone());
        let servers: Vec<ServerDraft<StreamServer>> =
            named("server").filter_map(|statement| self.stream_server(statement, &stream)).collect();
        let servers = self.with_prereads(servers, &maps);
        let listens = self.stream_listens(&servers, taken);
        self.check_zones();
        self.undefined_variables();
        let (_, connection_zones) = self.limit_zones.take();
        Stream {
            checked: servers
                .iter()
                .map(|draft| &draft.server)
                .filter(|server| !server.health_checks.is_empty())
                .cloned()
                .collect(),
            upstreams: self.upstreams.iter().map(|draft| draft.upstream.clone()).collect(),
            listens,
            connection_zones,
            keyval_zones: std::mem::take(&mut self.keyval_zones),
            maps,
            set_names: self.variables.set_names(),
            status_zones: self.take_status_zones(),
            explains_picks: self.variables.explains_picks,
            access_log_files: self.access_log_files.iter().cloned().collect(),
            error_log_files: self.error_log_files.iter().cloned().collect(),
        }
    }

    /// The level above `stream`: the defaults of all directives.
    fn stream_defaults(&mut self, core: &Core) -> StreamBlock {
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
    fn stream_directive(&mut self, block: &mut StreamBlock, directive: &'static Directive, s: &Statement) {
        if !self.admit(&mut block.given, directive, s) {
            return;
        }
        match directive.reader {
            Reader::Stream(read) => read(self, block, s),
            Reader::Check(check) => check(self, s),
            _ => {}
        }
    }

    fn stream_server(&mut self, s: &Statement, above: &StreamBlock) -> Option<ServerDraft<StreamServer>> {
        let mut block = above.inner();
        let statements = || s.block.iter().flatten();
        for inner in statements() {
            if let Some(directive) = self.check(inner, Context::StreamServer) {
                self.stream_directive(&mut block, directive, inner);
            }
        }
        let has = |name: &[u8]| statements().any(|inner| inner.words[0].value == name);
        if !has(b"listen") {
            self.error(s.words[0].span, "no \"listen\" is defined for server");
        }
        if !has(b"proxy_pass") && !has(b"pass") && !has(b"return") {
            let hint = "add \"proxy_pass\", \"pass\" or \"return\"";
            self.error_hint(s.words[0].span, "no handler for server", hint);
        }
        let StreamBlock { mut server, target, listens, mut names, tls, proxy_tls, health_checks, status_zone, .. } =
            block;
        if names.is_empty() {
            names.push((NameDraft::Plain(Vec::new()), s.words[0].span));
        }
        let checked = match &target {
            Some(StreamTarget::Fixed(index)) => Target::Stream(Some(*index)),
            Some(StreamTarget::Dynamic(_)) => Target::Stream(None),
            Some(StreamTarget::Return(_) | StreamTarget::Pass(_)) | None => Target::None,
        };
        server.health_checks = self.health_checks(health_checks, checked);
        let errors = self.error_count();
        server.tls = self.server_tls(&tls, tls.alpn.clone(), &server.resolver);
        let tls_failed = self.error_count() > errors;
        if server.proxy_ssl {
            server.proxy_tls = self.client_tls(&proxy_tls, ClientUse::Stream, s.words[0].span);
            if let (Some(StreamTarget::Fixed(index)), None) = (&target, &server.ssl_name) {
                let name = self.upstreams.get(*index).map(|draft| draft.host.clone()).unwrap_or_default();
                server.ssl_name = Some(Template::literal(name));
            }
        }
        let first = || listens.first().map(|listen| show(&listen.address)).unwrap_or_default();
        let status_zone = self.status_zone(status_zone.unwrap_or_else(first));
        let server = StreamServer { status_zone, target: target?, ..server };
        self.note_logs(&server.access_logs, &server.error_log);
        Some(ServerDraft { server: Arc::new(server), listens, names, tls_failed })
    }

    /// Makes the variables of all `set` directives known.
    fn announce_stream_sets(&mut self, block: &[Statement]) {
        for statement in block.iter().flat_map(|server| server.block.iter().flatten()) {
            let name = statement.words.get(1).filter(|_| statement.words[0].value == b"set");
            if let Some((b'$', name)) = name.and_then(|word| word.value.split_first()) {
                // What cannot be set is reported where the directive is read.
                let _ = self.variables.define(&String::from_utf8_lossy(name));
            }
        }
    }

    /// Notes which servers need what the client sends first.
    fn with_prereads(&self, servers: Vec<ServerDraft<StreamServer>>, maps: &[Map]) -> Vec<ServerDraft<StreamServer>> {
        let with = |draft: ServerDraft<StreamServer>| {
            let prereads = self.prereads(&draft.server, maps);
            ServerDraft { server: Arc::new(StreamServer { prereads, ..(*draft.server).clone() }), ..draft }
        };
        servers.into_iter().map(with).collect()
    }

    /// Whether anything that a session evaluates needs what the client sends first.
    fn prereads(&self, server: &StreamServer, maps: &[Map]) -> bool {
        let key = |index: usize| self.upstreams.get(index).and_then(|draft| draft.upstream.balance.key.as_ref());
        let keys: Vec<&Template> = match &server.target {
            StreamTarget::Fixed(index) => key(*index).into_iter().collect(),
            // It may lead to any of them.
            StreamTarget::Return(template) | StreamTarget::Pass(Pass::Dynamic(template)) => vec![template],
            StreamTarget::Pass(Pass::To(_)) => Vec::new(),
            StreamTarget::Dynamic(template) => {
                (0..self.upstreams.len()).filter_map(key).chain(std::iter::once(template)).collect()
            }
        };
        let logs = server.access_logs.iter();
        let logs = logs.flat_map(|log| std::iter::once(&log.format.template).chain(&log.condition));
        let sets = server.sets.iter().map(|(_, value)| value);
        let own = keys.into_iter().chain(server.bind.as_ref().map(|bind| &bind.address)).chain(logs).chain(sets);
        // A variable of a map stands for all that the maps use: which one uses which others is not followed.
        let mut of_maps = maps.iter().flat_map(Map::templates);
        let own = own.chain(&server.ssl_name).chain([&server.upload_rate, &server.download_rate]);
        let own: Vec<&Template> = own.collect();
        own.iter().any(|template| needs_client_data(template))
            || own.iter().any(|template| uses_maps(template)) && of_maps.any(needs_client_data)
    }
}

fn needs_client_data(template: &Template) -> bool {
    template.parts().iter().any(|part| matches!(part, Part::Variable(Variable::RdpCookie(_))))
}

fn uses_maps(template: &Template) -> bool {
    template.parts().iter().any(|part| matches!(part, Part::Variable(Variable::Map(_))))
}
