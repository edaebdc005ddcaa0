//! Shared memory zones: names that upstreams give to their state, and sizes that bound tables.

use super::UpstreamBlock;
use crate::diagnostics::Span;
use crate::drafts::{Purpose, SMALLEST_ZONE, Zone};
use crate::load::Builder;
use crate::tree::Statement;
use crate::values;

impl Builder<'_> {
    /// Zones that nothing gives a size.
    pub fn check_zones(&mut self) {
        let missing = self.zones.iter().filter(|(_, zone)| zone.size.is_none());
        let missing: Vec<(String, Span)> = missing.map(|(name, zone)| (name.clone(), zone.span)).collect();
        for (name, span) in missing {
            self.error(span, format!("zero size shared memory zone \"{name}\""));
        }
    }

    /// `zone NAME [SIZE]`.
    pub fn zone(&mut self, draft: &mut UpstreamBlock<'_>, s: &Statement) {
        if s.words[1].value.is_empty() {
            return self.error(s.words[1].span, "invalid zone name \"\"");
        }
        let name = s.words[1].text();
        let mut size = None;
        if let Some(word) = s.words.get(2) {
            size = values::size(&word.value, false);
            match size {
                None => return self.error(word.span, format!("invalid zone size \"{}\"", word.text())),
                Some(size) if size < SMALLEST_ZONE => {
                    return self.error(word.span, format!("zone \"{name}\" is too small"));
                }
                Some(_) => {}
            }
        }
        let span = s.words.get(2).map_or(s.span(), |word| word.span);
        self.declare_zone(&name, size, span, Purpose::Servers);
        // Given twice, the last one holds.
        draft.zone = Some(name);
    }

    /// Notes a zone; false, and a message, if something is wrong with it.
    pub fn declare_zone(&mut self, name: &str, size: Option<u64>, span: Span, purpose: Purpose) -> bool {
        let Some(known) = self.zones.get_mut(name) else {
            self.zones.insert(name.to_string(), Zone { size, span, protocol: self.protocol, purpose });
            return true;
        };
        let same = std::mem::discriminant(&known.purpose) == std::mem::discriminant(&purpose);
        if !same || known.protocol != self.protocol {
            let message = format!("the shared memory zone \"{name}\" is already declared for a different use");
            self.error(span, message);
            return false;
        }
        match (known.size, size) {
            (Some(declared), Some(size)) if declared != size => {
                let message = format!(
                    "the size {size} of shared memory zone \"{name}\" conflicts with already declared size {declared}"
                );
                self.error(span, message);
                false
            }
            _ => {
                known.size = known.size.or(size);
                let Purpose::Sessions(owner) = known.purpose.clone() else { return true };
                self.error(span, format!("sticky zone \"{name}\" is already used in upstream \"{owner}\""));
                false
            }
        }
    }
}
