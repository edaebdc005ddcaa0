//! Shared memory zones: names that upstreams give to their state, and sizes that bound tables.

use super::UpstreamBlock;
use crate::diagnostics::Span;
use crate::load::{Builder, Protocol};
use crate::tree::Statement;
use crate::values;

/// Eight pages are the least that NGINX's allocator works with.
pub(super) const SMALLEST: u64 = 8 * 4096;

/// A zone: upstreams may share the one for their servers, and a table of sessions has its own.
#[derive(Debug)]
pub(crate) struct Zone {
    size: Option<u64>,
    span: Span,
    protocol: Protocol,
    /// The upstream whose sessions it holds.
    sessions_of: Option<String>,
}

impl Builder<'_> {
    /// Zones that no upstream gives a size.
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
                Some(size) if size < SMALLEST => {
                    return self.error(word.span, format!("zone \"{name}\" is too small"));
                }
                Some(_) => {}
            }
        }
        let span = s.words.get(2).map_or(s.span(), |word| word.span);
        self.declare_zone(&name, size, span, None);
        // Given twice, the last one holds.
        draft.zone = Some(name);
    }

    /// Notes a zone; a message says what is wrong with it.
    pub(super) fn declare_zone(&mut self, name: &str, size: Option<u64>, span: Span, sessions_of: Option<&str>) {
        let Some(known) = self.zones.get_mut(name) else {
            let zone = Zone { size, span, protocol: self.protocol, sessions_of: sessions_of.map(str::to_string) };
            self.zones.insert(name.to_string(), zone);
            return;
        };
        if known.sessions_of.is_some() != sessions_of.is_some() || known.protocol != self.protocol {
            let message = format!("the shared memory zone \"{name}\" is already declared for a different use");
            return self.error(span, message);
        }
        match (known.size, size) {
            (Some(declared), Some(size)) if declared != size => {
                let message = format!(
                    "the size {size} of shared memory zone \"{name}\" conflicts with already declared size {declared}"
                );
                self.error(span, message);
            }
            _ => {
                known.size = known.size.or(size);
                if let Some(owner) = known.sessions_of.clone() {
                    self.error(span, format!("sticky zone \"{name}\" is already used in upstream \"{owner}\""));
                }
            }
        }
    }
}
