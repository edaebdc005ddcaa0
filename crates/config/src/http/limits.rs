//! `limit_req` and `limit_conn` with their zones, in `http` and `stream`.
//!
//! A limit may stand before the zone that it names. Zones have a number from their first mention on.

use crate::block::Given;
use crate::drafts::{Purpose, SMALLEST_ZONE};
use crate::lexer::Word;
use crate::load::Builder;
use crate::model::{ConnectionLimit, ConnectionZone, Level, Limits, RequestLimit, RequestZone};
use crate::template::Template;
use crate::tree::Statement;
use crate::values;

/// `delay` of a limit with `nodelay`, as NGINX has it: more than any excess.
const NO_DELAY: u64 = i64::MAX as u64 / 1000 * 1000;
/// NGINX counts connections in 16 bits.
const MOST_CONNECTIONS: u64 = 65_535;

impl Builder<'_> {
    /// `limit_req_zone KEY zone=NAME:SIZE rate=RATE`.
    pub fn limit_req_zone(&mut self, s: &Statement) {
        let Some(key) = self.template(&s.words[1]) else { return };
        let (mut zone, mut rate) = (None, 1000);
        for word in &s.words[2..] {
            if word.value.starts_with(b"zone=") {
                let Some(found) = self.sized_zone(word) else { return };
                zone = Some(found);
            } else if let Some(text) = word.value.strip_prefix(b"rate=") {
                let Some(found) = thousandths(text) else {
                    let hint = "a number of requests in a second, rate=10r/s, or in a minute, rate=30r/m";
                    return self.error_hint(word.span, format!("invalid rate \"{}\"", word.text()), hint);
                };
                rate = found;
            } else {
                return self.invalid_parameter(word, &["zone=", "rate="]);
            }
        }
        let Some((name, size)) = self.named_zone(s, zone) else { return };
        if !self.declare_zone(&name, Some(size), s.span(), Purpose::Requests) {
            return;
        }
        let index = self.limit_zones.requests(&name);
        let zone = &mut self.limit_zones.requests[index];
        if zone.size != 0 {
            let bound = zone.key_text.clone();
            return self.already_bound(s, &name, &bound);
        }
        let key_text = s.words[1].text();
        *zone = RequestZone { name, size, key, key_text, rate };
    }

    /// `limit_conn_zone KEY zone=NAME:SIZE`.
    pub fn limit_conn_zone(&mut self, s: &Statement) {
        let Some(key) = self.template(&s.words[1]) else { return };
        let mut zone = None;
        for word in &s.words[2..] {
            if !word.value.starts_with(b"zone=") {
                return self.invalid_parameter(word, &["zone="]);
            }
            let Some(found) = self.sized_zone(word) else { return };
            zone = Some(found);
        }
        let Some((name, size)) = self.named_zone(s, zone) else { return };
        if !self.declare_zone(&name, Some(size), s.span(), Purpose::Connections) {
            return;
        }
        let index = self.limit_zones.connections(&name);
        let zone = &mut self.limit_zones.connections[index];
        if zone.size != 0 {
            let bound = zone.key_text.clone();
            return self.already_bound(s, &name, &bound);
        }
        let key_text = s.words[1].text();
        *zone = ConnectionZone { name, size, key, key_text };
    }

    fn already_bound(&mut self, s: &Statement, name: &str, key: &str) {
        self.error(s.span(), format!("{} \"{name}\" is already bound to key \"{key}\"", s.name()));
    }

    /// `zone=NAME:SIZE`.
    pub fn sized_zone(&mut self, word: &Word) -> Option<(String, u64)> {
        let text = word.text();
        let Some((name, size)) = text["zone=".len()..].split_once(':') else {
            self.error_hint(word.span, format!("invalid zone size \"{text}\""), "add a size, as in zone=name:10m");
            return None;
        };
        match values::size(size.as_bytes(), false) {
            None => self.error(word.span, format!("invalid zone size \"{text}\"")),
            Some(size) if size < SMALLEST_ZONE => self.error(word.span, format!("zone \"{text}\" is too small")),
            Some(size) => return Some((name.to_string(), size)),
        }
        None
    }

    fn named_zone(&mut self, s: &Statement, zone: Option<(String, u64)>) -> Option<(String, u64)> {
        let zone = zone.filter(|(name, _)| !name.is_empty());
        if zone.is_none() {
            self.missing_zone(s);
        }
        zone
    }

    fn missing_zone(&mut self, s: &Statement) {
        self.error(s.span(), format!("\"{}\" must have \"zone\" parameter", s.name()));
    }

    /// `limit_req zone=NAME [burst=NUMBER] [nodelay | delay=NUMBER]`.
    pub fn limit_req(&mut self, given: &Given, limits: &mut Limits, s: &Statement) {
        let (mut zone, mut burst, mut delay) = (None, 0, 0);
        for word in s.args() {
            let number = |text: &[u8]| values::number(text).filter(|number| *number > 0);
            if let Some(name) = word.value.strip_prefix(b"zone=") {
                let name = String::from_utf8_lossy(name).into_owned();
                if !self.declare_zone(&name, None, word.span, Purpose::Requests) {
                    return;
                }
                zone = Some(self.limit_zones.requests(&name));
            } else if let Some(text) = word.value.strip_prefix(b"burst=") {
                let Some(number) = number(text) else {
                    return self.error(word.span, format!("invalid burst value \"{}\"", word.text()));
                };
                burst = number.saturating_mul(1000);
            } else if let Some(text) = word.value.strip_prefix(b"delay=") {
                let Some(number) = number(text) else {
                    return self.error(word.span, format!("invalid delay value \"{}\"", word.text()));
                };
                delay = number.saturating_mul(1000);
            } else if word.value == b"nodelay" {
                delay = NO_DELAY;
            } else {
                return self.invalid_parameter(word, &["zone=", "burst=", "delay=", "nodelay"]);
            }
        }
        let Some(zone) = zone else { return self.missing_zone(s) };
        let list = given.list(&mut limits.requests);
        if list.iter().any(|limit| limit.zone == zone) {
            return self.duplicate(s);
        }
        list.push(RequestLimit { zone, burst, delay });
    }

    /// `limit_conn ZONE NUMBER`.
    pub fn limit_conn(&mut self, given: &Given, limits: &mut Limits, s: &Statement) {
        let (name, word) = (s.words[1].text(), &s.words[2]);
        let list = given.list(&mut limits.connections);
        if !self.declare_zone(&name, None, s.words[1].span, Purpose::Connections) {
            return;
        }
        let zone = self.limit_zones.connections(&name);
        if list.iter().any(|limit| limit.zone == zone) {
            return self.duplicate(s);
        }
        match values::number(&word.value).filter(|number| *number > 0) {
            None => self.error(word.span, format!("invalid number of connections \"{}\"", word.text())),
            Some(number) if number > MOST_CONNECTIONS => {
                self.error(word.span, "connection limit must be less 65536");
            }
            Some(number) => list.push(ConnectionLimit { zone, most: number as u32 }),
        }
    }

    /// `limit_req_log_level` and `limit_conn_log_level`.
    pub fn limit_level(&mut self, s: &Statement) -> Option<Level> {
        let levels = [Level::Info, Level::Notice, Level::Warn, Level::Error];
        self.choice(s, &levels.map(|level| (level.name(), level)))
    }

    /// `limit_req_status` and `limit_conn_status`.
    pub fn limit_status(&mut self, s: &Statement) -> Option<u16> {
        let status = self.number::<u64>(s)?;
        let found = u16::try_from(status).ok().filter(|status| (400..=599).contains(status));
        if found.is_none() {
            self.error(s.words[1].span, "value must be between 400 and 599");
        }
        found
    }

    /// `auth_basic`: none for `off`.
    pub fn realm(&mut self, s: &Statement) -> Option<Option<Template>> {
        let realm = self.template(&s.words[1])?;
        Some(Some(realm).filter(|realm| realm.as_literal() != Some(b"off")))
    }

    /// The path of a file that is read while requests are served; it may have variables.
    pub fn file_template(&mut self, s: &Statement) -> Option<Template> {
        use std::os::unix::ffi::OsStringExt;
        let word = &s.words[1];
        if word.value.first() == Some(&b'$') {
            return self.template(word);
        }
        let path = self.conf_path(&word.value).into_os_string().into_vec();
        self.template_of(&path, word.span, true)
    }
}

/// A rate in thousandths of a request in a second.
fn thousandths(text: &[u8]) -> Option<u64> {
    let (digits, seconds) = match text {
        [digits @ .., b'r', b'/', b's'] => (digits, 1),
        [digits @ .., b'r', b'/', b'm'] => (digits, 60),
        _ => (text, 1),
    };
    let rate = values::number(digits).filter(|rate| *rate > 0)?;
    Some(rate.saturating_mul(1000) / seconds)
}
