//! `shadow`: algorithms that run beside the one that decides, and are only counted.

use balanza_balancing::registry::{Host, PROBE};

use super::{UpstreamBlock, place};
use crate::load::{Builder, Protocol};
use crate::model::{Balance, FirstSign, SHADOWS_MAX};
use crate::tree::Statement;

impl Builder<'_> {
    /// `shadow ALGORITHM [PARAMETER=VALUE …] [key=TEXT]`.
    pub fn shadow<'s>(&mut self, draft: &mut UpstreamBlock<'s>, s: &'s Statement) {
        let Some(balance) = self.read_algorithm(s, &s.words[1].text(), 2, &[], None) else { return };
        let (name, span) = (balance.spec.entry().name, s.words[1].span);
        if draft.shadows.iter().any(|(other, _)| other.spec.entry().name == name) {
            let hint =
                "a shadow is known by the name of its algorithm, so each algorithm can be one shadow of an upstream";
            return self.error_hint(span, format!("duplicate shadow \"{name}\""), hint);
        }
        if draft.shadows.len() == SHADOWS_MAX {
            let hint = "each shadow costs as much for a request as the algorithm itself";
            return self.error_hint(span, format!("more than {SHADOWS_MAX} shadows"), hint);
        }
        match balance.spec.entry().host {
            Host::Program => {
                let hint = "it would ask its program for choices that are not used";
                return self.error_hint(span, format!("\"{name}\" cannot be a shadow"), hint);
            }
            Host::Probes if !balance.spec.text(PROBE).is_empty() => {
                let hint = "remove it; without probes the algorithm uses Balanza's own measurements";
                let span = place(s, &format!("{PROBE}="));
                return self.error_hint(span, "a shadow sends no probes to servers", hint);
            }
            Host::Any | Host::Idleness | Host::Reports | Host::Probes => {}
        }
        draft.shadows.push((balance, s));
    }

    /// What a shadow cannot do in this upstream.
    pub(super) fn check_shadow(&mut self, draft: &UpstreamBlock<'_>, balance: &Balance, s: &Statement) {
        let entry = balance.spec.entry();
        if !entry.backup && draft.servers.iter().any(|(server, _)| server.backup) {
            let message = format!("\"{}\" cannot be a shadow in an upstream with backup servers", entry.name);
            self.error_hint(s.words[1].span, message, "as a balancing method it does not support \"backup\"");
        }
        let real = draft.balance.as_ref().map_or_else(FirstSign::default, |(balance, _)| balance.first_sign);
        let measures = s.args().iter().any(|word| word.value.starts_with(b"by="));
        if self.protocol == Protocol::Stream && measures && balance.first_sign != real {
            let (measured, text) = match real {
                FirstSign::Connect => ("the time to connect", "by=connect"),
                FirstSign::FirstByte => ("the time to the first byte", "by=first_byte"),
            };
            let message = format!("this upstream measures {measured}, and its shadows with it");
            self.error_hint(place(s, "by="), message, format!("use \"{text}\", or set the method of the upstream"));
        }
    }
}
