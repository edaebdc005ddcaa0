//! What the directives of an upstream say together. Each is right by itself; a combination that cannot mean anything
//! is an error, one that is only useless a warning.

use std::collections::BTreeSet;

use balanza_balancing::registry::{Host, PROBE, Share};

use super::{UpstreamBlock, place};
use crate::address::{self, Use};
use crate::load::{Builder, Protocol};
use crate::model::{Balance, LoadSource, ServerAddress};
use crate::tree::Statement;

/// The backups are one level more.
const MOST_PRIORITIES: usize = 254;

impl Builder<'_> {
    /// Reports combinations that make no sense.
    pub fn check_combinations(&mut self, draft: &UpstreamBlock<'_>) {
        self.check_groups(draft);
        self.check_slow_start(draft);
        let arms = draft.arms.iter().map(|(arm, s)| (&arm.balance, s));
        for (balance, s) in draft.balance.iter().chain(&draft.shadows).map(|(balance, s)| (balance, s)).chain(arms) {
            self.check_algorithm(draft, balance, s);
        }
        for (balance, s) in &draft.shadows {
            self.check_shadow(draft, balance, s);
        }
        self.check_reports(draft);
        self.check_sessions(draft);
    }

    /// A limit for a group that does not exist, and more groups than there may be.
    fn check_groups(&mut self, draft: &UpstreamBlock<'_>) {
        let mut priorities = BTreeSet::new();
        for (server, s) in draft.servers.iter().filter(|(server, _)| !server.backup) {
            priorities.insert(server.priority);
            if priorities.len() > MOST_PRIORITIES {
                self.error(place(s, "priority="), format!("more than {MOST_PRIORITIES} priorities"));
                break;
            }
        }
        for (group, s) in &draft.groups {
            let members = || draft.servers.iter().filter(|(server, _)| !server.backup);
            if !draft.servers.is_empty() && members().all(|(server, _)| server.priority != group.priority) {
                let message = format!("no server has the priority {}", group.priority);
                self.error_hint(s.words[1].span, message, "set it with \"priority=\" of a server; the default is 0");
            }
        }
    }

    /// A slow start needs a second server; a name may stand for several.
    fn check_slow_start(&mut self, draft: &UpstreamBlock<'_>) {
        if let [(server, s)] = draft.servers.as_slice()
            && !server.slow_start.is_zero()
            && address::parse(server.name.as_bytes(), 80, Use::Server)
                .is_ok_and(|address| !matches!(address.host, address::Host::Name(_)))
        {
            let hint = "no other server could take its requests during the slow start";
            self.error_hint(place(s, "slow_start="), "\"slow_start\" is useless with a single server", hint);
        }
    }

    /// Algorithms that need something beside themselves.
    fn check_algorithm(&mut self, draft: &UpstreamBlock<'_>, balance: &Balance, s: &Statement) {
        let spec = &balance.spec;
        let name = spec.entry().name;
        let limited = draft.servers.iter().any(|(s, _)| s.max_conns > 0 || s.soft_max_conns > 0);
        if spec.entry().share == Share::Order && !limited && draft.groups.is_empty() {
            let message = format!("\"{name}\" without \"max_conns\" sends all requests to the first server");
            let hint = "it uses the next server when one is full: give each server \"max_conns=\"";
            self.error_hint(s.span(), message, hint);
        }
        match spec.entry().host {
            Host::Reports if draft.reports.is_empty() => {
                let hint = "add one, for example `load_report agent port=8081;`";
                self.error_hint(s.span(), format!("\"{name}\" needs a \"load_report\""), hint);
            }
            Host::Probes if self.protocol == Protocol::Stream && !spec.text(PROBE).is_empty() => {
                let message = format!("\"{PROBE}\" is an HTTP request and not possible in a stream");
                let hint = "remove it; without probes the algorithm uses Balanza's own measurements";
                self.error_hint(place(s, &format!("{PROBE}=")), message, hint);
            }
            Host::Any | Host::Idleness | Host::Reports | Host::Probes | Host::Program => {}
        }
    }

    /// Addresses that no load report uses, and servers without an address to ask.
    fn check_reports(&mut self, draft: &UpstreamBlock<'_>) {
        let asks = |source: &LoadSource| matches!(source, LoadSource::Agent { .. } | LoadSource::Snmp { .. });
        let asking = draft.reports.iter().filter(|(report, _)| asks(&report.source)).count();
        for (server, s) in &draft.servers {
            match (&server.report, &server.address) {
                (Some(_), _) if asking != 1 => {
                    let span = place(s, "report=");
                    let hint = match asking {
                        0 => "add `load_report agent` or `load_report snmp`",
                        _ => "one address cannot be used for an agent and for SNMP",
                    };
                    self.error_hint(span, "\"report\" needs one \"load_report\" that asks servers", hint);
                }
                (None, ServerAddress::Unix(_)) if asking > 0 => {
                    let hint = "add the address to ask: \"report=HOST:PORT\"";
                    self.error_hint(s.words[1].span, "a server on a Unix socket has no port to ask for its load", hint);
                }
                _ => {}
            }
        }
    }

    /// Two masters of a session, or none.
    fn check_sessions(&mut self, draft: &UpstreamBlock<'_>) {
        let arms = draft.arms.iter().map(|(arm, _)| &arm.balance);
        let strict = draft.balance.iter().map(|(balance, _)| balance).chain(arms).find(|it| it.spec.is_strict());
        if let (Some(balance), Some((_, s))) = (strict, &draft.sticky) {
            let message = format!("\"sticky\" cannot be used with \"{}\" in strict mode", balance.spec.entry().name);
            let hint = "each binds a client to a server, and the two servers may differ";
            self.error_hint(s.span(), message, hint);
        }
        if let (Some(_), Some((_, s))) = (&draft.overload.hedge, &draft.sticky) {
            let hint = "a session belongs to one server, and \"hedge\" asks a second one";
            self.error_hint(s.span(), "\"sticky\" cannot be used with \"hedge\"", hint);
        }
        for (server, s) in draft.servers.iter().filter(|_| draft.sticky.is_none()) {
            if server.soft_max_conns > 0 {
                let message = "\"soft_max_conns\" limits all clients: there is no \"sticky\" in this upstream";
                self.warning(place(s, "soft_max_conns="), message);
            }
            if server.route.is_some() {
                self.warning(place(s, "route="), "\"route\" has no effect without \"sticky\"");
            }
        }
    }
}
