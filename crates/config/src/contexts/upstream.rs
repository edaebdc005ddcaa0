//! `upstream`.

use std::sync::Arc;

use super::defaults;
use crate::directives::{Context, Reader};
use crate::drafts::{Resolving, UpstreamDraft};
use crate::load::{Builder, Protocol};
use crate::model::{Balance, Shadow, Upstream, UpstreamKeepalive};
use crate::tree::Statement;
use crate::upstream::{UpstreamBlock, default_balance, default_method, place, written};

impl Builder<'_> {
    /// An `upstream` block.
    pub fn upstream(&mut self, s: &Statement) {
        let name = s.words[1].text();
        let mut draft = UpstreamBlock::new(name.clone());
        draft.keepalive = self.upstream_defaults;
        for inner in s.block.iter().flatten() {
            let context = match self.protocol {
                Protocol::Http => Context::Upstream,
                Protocol::Stream => Context::StreamUpstream,
            };
            if let Some(directive) = self.check(inner, context)
                && self.admit(&mut draft.given, directive, inner)
            {
                match directive.reader {
                    Reader::Upstream(read) => read(self, &mut draft, inner),
                    Reader::Check(check) => check(self, inner),
                    _ => {}
                }
            }
        }
        let servers = s.block.iter().flatten().any(|inner| inner.words[0].value == b"server");
        self.check_list(&mut draft, servers);
        let listed = draft.list.as_ref().map(|(list, text, s)| self.listed(list, text, s)).unwrap_or_default();
        // The API, files and sources may add servers later.
        let later = draft.zone.is_some() || draft.list.is_some() || !draft.discovers.is_empty();
        if !servers && !later {
            self.error(s.span(), "no servers are inside upstream");
        } else if !draft.servers.is_empty()
            && draft.resolved.is_empty()
            && draft.discovers.is_empty()
            && draft.list.is_none()
            && draft.servers.iter().all(|(server, _)| server.backup)
        {
            self.error(s.span(), format!("no servers in upstream \"{name}\""));
        }
        // The algorithms add weights up in 32 bits.
        if draft.servers.iter().map(|(server, _)| u64::from(server.weight)).sum::<u64>() > u64::from(u32::MAX) {
            self.error(s.span(), format!("the sum of the weights in upstream \"{name}\" is too large"));
        }
        let method = draft.balance.as_ref().map_or_else(default_method, |(_, statement)| written(statement));
        self.check_combinations(&draft);
        self.check_experiment(&draft, &method);
        draft.hold_loads();
        if !self.upstreams.of_host(&s.words[1].value).is_empty() {
            return self.error(s.words[1].span, format!("duplicate upstream \"{name}\""));
        }
        if let Some((_, statement)) = draft.resolved.first()
            && draft.zone.is_none()
        {
            let at = self.place(s.span());
            let message =
                format!("resolving names at run time requires upstream \"{name}\" in {at} to be in shared memory");
            self.error_hint(place(statement, "resolve"), message, "add `zone NAME SIZE;` to the upstream");
        }
        if let Some((_, statement)) = draft.discovers.first()
            && draft.zone.is_none()
        {
            let message = format!("\"discover\" requires upstream \"{name}\" to be in shared memory");
            self.error_hint(statement.span(), message, "add `zone NAME SIZE;` to the upstream");
        }
        let unresolved = draft.resolved.first().map(|(_, statement)| place(statement, "resolve"));
        let shadow = |(balance, s): (Balance, &Statement)| Shadow { balance, text: written(s) };
        let experiment = draft.experiment();
        let shadows = draft.shadows.into_iter().map(shadow).collect();
        let balance = draft.balance.map_or_else(default_balance, |(balance, _)| balance);
        let upstream = Upstream {
            name,
            implicit: false,
            servers: draft.servers.into_iter().map(|(server, _)| server).chain(listed).collect(),
            resolved: draft.resolved.into_iter().map(|(server, _)| server).collect(),
            resolver: None,
            discovers: draft.discovers.into_iter().map(|(discover, _)| discover).collect(),
            balance,
            method,
            shadows,
            experiment,
            sticky: draft.sticky.map(|(sticky, _)| sticky),
            groups: draft.groups.into_iter().map(|(group, _)| group).collect(),
            reports: draft.reports.into_iter().map(|(report, _)| report).collect(),
            zone: draft.zone,
            queue: draft.queue,
            overload: draft.overload.complete(),
            list: draft.list.map(|(list, _, _)| list),
            checks: Vec::new(),
            keepalive: draft.keepalive,
            ntlm: draft.ntlm,
        };
        let host = s.words[1].value.clone();
        let resolving = unresolved.map(|span| Resolving {
            span,
            place: s.span(),
            resolver: draft.resolver,
            timeout: draft.resolver_timeout,
        });
        self.upstreams.push(UpstreamDraft { upstream: Arc::new(upstream), host, port: None, resolving });
    }

    /// What an upstream keeps by default.
    pub(super) fn read_upstream_defaults(&mut self) -> UpstreamKeepalive {
        let mut block = UpstreamBlock::new(String::new());
        for (directive, statement) in defaults() {
            if let Reader::Upstream(read) = directive.reader {
                read(self, &mut block, statement);
            }
        }
        block.keepalive
    }
}
