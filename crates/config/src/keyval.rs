//! `keyval` and `keyval_zone`, in `http` and `stream`.
//!
//! A variable may stand before the zone that it names. Zones have a number from their first mention on.

use std::time::Duration;

use crate::drafts::Purpose;
use crate::load::Builder;
use crate::model::{KeyvalKind, KeyvalZone, Map, Table};
use crate::tree::Statement;
use crate::values;

impl Builder<'_> {
    /// `keyval KEY $variable zone=NAME`.
    pub fn keyval(&mut self, s: &Statement) -> Option<Map> {
        let source = self.template(&s.words[1])?;
        let word = &s.words[3];
        let Some(name) = word.value.strip_prefix(b"zone=") else {
            self.invalid_parameter(word, &["zone="]);
            return None;
        };
        let name = String::from_utf8_lossy(name).into_owned();
        if !self.declare_zone(&name, None, word.span, Purpose::Pairs) {
            return None;
        }
        let zone = self.keyval_zone_of(&name);
        Some(Map { source, table: Table::Keyval(zone), volatile: false })
    }

    fn keyval_zone_of(&mut self, name: &str) -> usize {
        let known = self.keyval_zones.iter().position(|zone| zone.name == name);
        known.unwrap_or_else(|| {
            let kind = KeyvalKind::Text;
            self.keyval_zones.push(KeyvalZone { name: name.to_owned(), size: 0, state: None, timeout: None, kind });
            self.keyval_zones.len() - 1
        })
    }

    /// `keyval_zone zone=NAME:SIZE [state=FILE] [timeout=TIME] [type=string|ip|prefix] [sync]`.
    pub fn keyval_zone(&mut self, s: &Statement) {
        let (mut zone, mut state, mut timeout, mut kind) = (None, None, None, KeyvalKind::Text);
        for word in s.args() {
            match word.parameter() {
                (b"zone=", _) => {
                    let Some(found) = self.sized_zone(word) else { return };
                    zone = Some(found);
                }
                (b"state=", path) if !path.is_empty() => state = Some(self.file_path(path)),
                (b"timeout=", time) => {
                    let Some(time) = values::milliseconds(time).filter(|time| *time > Duration::ZERO) else {
                        return self.error(word.span, format!("invalid timeout \"{}\"", word.text()));
                    };
                    timeout = Some(time);
                }
                (b"type=", b"string") => kind = KeyvalKind::Text,
                (b"type=", b"ip") => kind = KeyvalKind::Ip,
                (b"type=", b"prefix") => kind = KeyvalKind::Prefix,
                (b"sync", b"") => return self.unsupported_parameter(s, word),
                _ => return self.invalid_parameter(word, &["zone=", "state=", "timeout=", "type="]),
            }
        }
        let Some((name, size)) = zone.filter(|(name, _): &(String, u64)| !name.is_empty()) else {
            return self.error(s.span(), "\"keyval_zone\" must have \"zone\" parameter");
        };
        if !self.declare_zone(&name, Some(size), s.span(), Purpose::Pairs) {
            return;
        }
        let index = self.keyval_zone_of(&name);
        if self.keyval_zones[index].size != 0 {
            return self.error(s.span(), format!("duplicate zone \"{name}\""));
        }
        self.keyval_zones[index] = KeyvalZone { name, size, state, timeout, kind };
    }
}
