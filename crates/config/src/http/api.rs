//! `api`, `dashboard` and `status_zone`.

use super::block::HttpBlock;
use crate::load::Builder;
use crate::model::Handler;
use crate::tree::Statement;

impl Builder<'_> {
    /// `api [write=on|off]`.
    pub fn api(&mut self, block: &mut HttpBlock, s: &Statement) {
        let write = match s.words.get(1).map(|word| word.value.as_slice()) {
            None | Some(b"write=off") => false,
            Some(b"write=on") => true,
            Some(_) => return self.invalid_parameter(&s.words[1], &["write=on", "write=off"]),
        };
        self.is_controlled = true;
        block.own.handler = Some(Handler::Api { write });
    }

    /// `dashboard [api=PATH]`.
    pub fn dashboard(&mut self, block: &mut HttpBlock, s: &Statement) {
        let path = match s.words.get(1) {
            None => "/api".to_owned(),
            Some(word) => match word.text().strip_prefix("api=") {
                Some(path) => path.trim_end_matches('/').to_owned(),
                None => return self.invalid_parameter(word, &["api="]),
            },
        };
        // The page asks where it comes from: an address of another site would be of no use to it.
        if !path.starts_with('/') || path.starts_with("//") || path.contains(['?', '#']) {
            return self.error(s.words[1].span, format!("invalid path \"{path}\": it must begin with one \"/\""));
        }
        block.own.handler = Some(Handler::Dashboard { api: path.into() });
    }

    /// `status_zone ZONE | off`. What a location sets holds for the locations in it.
    pub fn http_status_zone(&mut self, block: &mut HttpBlock, s: &Statement) {
        let Some(name) = self.zone_name(s) else { return };
        let zone = Some(name).filter(|name| name != "off");
        if block.own.location.is_none() {
            if zone.is_none() {
                self.error(s.words[1].span, "\"status_zone off\" is possible in a location only");
            }
            block.own.status_zone = Some(zone);
            return;
        }
        block.settings.location_zone = zone.map(|name| {
            let zones = &mut self.location_zones;
            zones.iter().position(|known| *known == name).unwrap_or_else(|| {
                zones.push(name);
                zones.len() - 1
            })
        });
    }

    /// The name of a zone.
    pub fn zone_name(&mut self, s: &Statement) -> Option<String> {
        if s.words[1].value.is_empty() {
            self.error(s.words[1].span, "invalid zone name \"\"");
            return None;
        }
        Some(s.words[1].text())
    }
}
