//! `http` and `server`.

use std::collections::HashMap;
use std::sync::Arc;

use super::defaults;
use crate::block::Given;
use crate::diagnostics::{Diagnostic, Severity};
use crate::directives::{self, Context, Directive, Reader};
use crate::http::{HttpBlock, Own, application_protocols, hidden_headers, request_headers};
use crate::listen::{NameDraft, ServerDraft, default_listen, show};
use crate::load::Builder;
use crate::model::{
    AccessLog, AccessLogTarget, Core, Handler, Http, Location, LocationTree, Matcher, MediaTypes, Server,
};
use crate::tree::Statement;

/// Whether a directive is of another module or mistyped.
fn is_unknown(name: &[u8]) -> bool {
    directives::named(name).is_empty()
}

/// Whether a location has a `health_check`.
fn is_checked(locations: &LocationTree) -> bool {
    locations.iter().any(|location| !location.health_checks.is_empty() || is_checked(&location.nested))
}

impl Builder<'_> {
    pub fn http(&mut self, block: &[Statement], core: &Core) -> Http {
        let usable: Vec<(&Directive, &Statement)> = block
            .iter()
            .filter_map(|statement| self.check(statement, Context::Http).map(|directive| (directive, statement)))
            .collect();
        let named = |name: &'static str| usable.iter().filter(move |(it, _)| it.name == name).map(|(_, s)| *s);
        // Variables and upstreams may be used before they are defined.
        let maps = self.announce_maps(&usable);
        self.announce_sets(block);
        self.announce_http2(block);
        for statement in named("upstream") {
            self.upstream(statement);
        }
        let maps = self.maps(&maps);
        for statement in named("match") {
            self.match_block(statement);
        }

        let mut http = self.http_defaults(core);
        for (directive, statement) in &usable {
            self.http_directive(&mut http, directive, statement);
        }
        http.complete();
        self.set_resolvers(&http.settings.resolver);
        self.note_charsets(&http, None);
        let servers: Vec<ServerDraft> = named("server").map(|statement| self.server_block(statement, &http)).collect();
        let listens = self.listens(&servers);
        let uid_reset = self.variables.reset_of_user_ids();
        self.check_zones();
        self.undefined_variables();
        let (request_zones, connection_zones) = self.limit_zones.take();
        Http {
            uid_reset,
            checked: servers
                .iter()
                .map(|draft| &draft.server)
                .filter(|server| is_checked(&server.locations))
                .cloned()
                .collect(),
            upstreams: self.upstreams.iter().map(|draft| draft.upstream.clone()).collect(),
            listens,
            maps,
            request_zones,
            connection_zones,
            keyval_zones: std::mem::take(&mut self.keyval_zones),
            exporter: self.exporter(),
            charsets: self.take_charsets(),
            user_slots: self.variables.slots(),
            set_names: self.variables.set_names(),
            variable_names: self.variables.named_by_pages(),
            status_zones: self.take_status_zones(),
            location_zones: std::mem::take(&mut self.location_zones),
            is_controlled: self.is_controlled,
            explains_picks: self.variables.explains_picks,
            access_log_files: self.access_log_files.iter().cloned().collect(),
            error_log_files: self.error_log_files.iter().cloned().collect(),
            temp_directories: self.temp_paths.keys().cloned().collect(),
        }
    }

    /// The level above `http`: the defaults of all directives.
    pub fn http_defaults(&mut self, core: &Core) -> HttpBlock {
        let mut block = HttpBlock::default();
        for (directive, statement) in defaults() {
            if let Reader::Http(read) = directive.reader {
                self.admit(&mut block.given, directive, statement);
                read(self, &mut block, statement);
            }
        }
        let types = [("html", "text/html"), ("gif", "image/gif"), ("jpg", "image/jpeg")];
        let types: HashMap<_, _> = types.into_iter().map(|(end, media)| (end.into(), media.into())).collect();
        block.settings.types = Arc::new(types);
        block.settings.error_log.clone_from(&core.error_log);
        block.settings.access_logs = vec![AccessLog {
            target: AccessLogTarget::File(self.options.prefix.join(&self.options.access_log)),
            format: self.combined(),
            buffer: 0,
            gzip: None,
            flush: None,
            condition: None,
        }];
        block.answers().max_ranges = usize::MAX;
        block.filters().gzip.types = MediaTypes::html();
        block.filters().sub.types = MediaTypes::html();
        block.filters().ssi.types = MediaTypes::html();
        block.filters().addition.types = MediaTypes::html();
        block.proxy().set_headers = request_headers(&block.written);
        block.proxy().hide_headers = hidden_headers(&block.written);
        block.default_grpc();
        // A default is not a directive of the block.
        block.given = Given::default();
        block.written.header_buffers_at = None;
        block
    }

    /// Reads a directive of a block; the code of the context reads the blocks in it.
    pub fn http_directive(&mut self, block: &mut HttpBlock, directive: &'static Directive, s: &Statement) {
        if !self.admit(&mut block.given, directive, s) {
            return;
        }
        match directive.reader {
            Reader::Http(read) => read(self, block, s),
            Reader::Check(check) => check(self, s),
            _ => {}
        }
    }

    /// Variables that are used and that nothing sets.
    pub fn undefined_variables(&mut self) {
        for (name, span) in self.variables.undefined() {
            let (message, hint) = self.variables.complaint(&name);
            match span {
                Some(span) => self.report(Severity::Error, span, message).hint = hint,
                None => self.diagnostics.push(Diagnostic { hint, ..Diagnostic::new(Severity::Error, &message, None) }),
            }
        }
    }

    /// Makes the variables of all `set` directives known, so that one of a family's name is not taken for the family.
    fn announce_sets(&mut self, block: &[Statement]) {
        for statement in block {
            let name = statement.words[0].value.as_slice();
            // Directives that are refused define variables too: their uses are no errors of their own.
            let variables = match name {
                b"set" | b"auth_request_set" | b"perl_set" => statement.words.get(1..2).unwrap_or_default(),
                _ if is_unknown(name) => &statement.words[..],
                _ => &[],
            };
            for word in variables {
                self.announce(word, name == b"set");
            }
            if is_unknown(name) {
                // Those of other modules may name variables inside, as "geoip2" does.
                for word in statement.block.iter().flatten().filter_map(|inner| inner.words.first()) {
                    self.announce(word, false);
                }
            }
            // The lines of tables are no directives.
            let is_table = matches!(
                name,
                b"map" | b"geo" | b"split_clients" | b"types" | b"charset_map" | b"match" | b"otel_exporter"
            );
            if let Some(inner) = statement.block.as_ref().filter(|_| !is_table && !is_unknown(name)) {
                self.announce_sets(inner);
            }
        }
    }

    /// Makes the addresses of `listen … http2` known: all servers of such an address speak it.
    fn announce_http2(&mut self, block: &[Statement]) {
        let servers = block.iter().filter(|statement| statement.words[0].value == b"server");
        for listen in servers.flat_map(|server| server.block.iter().flatten()) {
            let speaks = listen.words.iter().skip(2).any(|word| word.value == b"http2");
            if listen.words[0].value == b"listen" && speaks {
                self.http2_addresses.insert(listen.words[1].value.clone());
            }
        }
    }

    fn server_block(&mut self, s: &Statement, above: &HttpBlock) -> ServerDraft {
        let tunnels = self.tunnels;
        let mut block = above.inner();
        let mut locations = Vec::new();
        let mut ifs = Vec::new();
        for inner in s.block.iter().flatten() {
            match self.check(inner, Context::Server) {
                Some(directive) if directive.name == "location" => locations.push(inner),
                Some(directive) if directive.name == "if" => ifs.push((block.own.rewrite.len(), inner)),
                Some(directive) => self.http_directive(&mut block, directive, inner),
                None => {}
            }
        }
        if block.own.listens.is_empty() && !s.block.iter().flatten().any(|inner| inner.words[0].value == b"listen") {
            block.own.listens.push(default_listen(self.options.privileged, s.words[0].span));
        }
        if block.own.names.is_empty() {
            block.own.names.push((NameDraft::Plain(Vec::new()), s.words[0].span));
        }
        block.complete();
        self.note_charsets(&block, Some(s.words[0].span));
        self.server_ifs(&ifs, &mut block);
        block.written.server_names = block.own.names.iter().map(|(name, _)| name.clone()).collect();
        self.complete_referers(&mut block);
        self.check_header_buffers(&block);
        self.check_proxy_buffers(&block, s);
        let locations = self.locations(&locations, &block, None);
        let errors = self.error_count();
        let http2 = &mut block.connection.http2.enabled;
        *http2 |= s.block.iter().flatten().any(|inner| {
            inner.words[0].value == b"listen"
                && inner.words.get(1).is_some_and(|word| self.http2_addresses.contains(&word.value))
        });
        let tls = self.server_tls(&block.tls, application_protocols(*http2), &block.settings.resolver);
        let tls_failed = self.error_count() > errors;
        let handler = block.own.handler.take().unwrap_or(Handler::Static);
        block.settle_for(&handler);
        let Own { listens, names, rewrite, try_files, status_zone, .. } = block.own;
        let name = match &names[0].0 {
            NameDraft::Plain(name) => String::from_utf8_lossy(name.strip_prefix(b".").unwrap_or(name)).into_owned(),
            NameDraft::Regex(regex) => format!("~{}", regex.pattern()),
        };
        let root = Location {
            name: String::new(),
            matcher: Matcher::Prefix { prefix: Box::default(), no_regex: false },
            internal: false,
            rewrite: Vec::new(),
            limit_except: None,
            try_files,
            handler,
            settings: self.settings(block.settings),
            nested: LocationTree::default(),
            health_checks: Vec::new(),
            auto_redirect: false,
        };
        let status_zone = match (status_zone.flatten(), name.as_str()) {
            (Some(zone), _) => self.status_zone(zone),
            (None, "") => self.status_zone(listens.first().map(|listen| show(&listen.address)).unwrap_or_default()),
            (None, name) => self.status_zone(name.to_owned()),
        };
        let opens_tunnels = self.tunnels > tunnels;
        let (root, connection) = (Arc::new(root), block.connection);
        let server = Server { status_zone, name, rewrite, locations, root, connection, opens_tunnels, tls };
        ServerDraft { server: Arc::new(server), listens, names, tls_failed }
    }
}
