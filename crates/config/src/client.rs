//! What is known of a client: `set_real_ip_from`, `valid_referers`, `secure_link`, `userid`, `modern_browser`.

use std::sync::Arc;

use crate::address::{self, Host};
use crate::block::put;
use crate::http::HttpBlock;
use crate::http::network;
use crate::lexer::Word;
use crate::listen::NameDraft;
use crate::load::Builder;
use crate::model::{
    AccessWho, BrowserKind, Browsers, RealIpHeader, Referers, SecureLink, UserId, UserIdExpires, UserIdMode,
};
use crate::names::{NameKind, classify};
use crate::tree::Statement;
use crate::values;

/// The browsers that `modern_browser` knows, in the order in which they are looked for.
const BROWSERS: &[BrowserKind] = &[
    BrowserKind { name: "opera", mark: b"Opera", length: 6, skipped: 0 },
    BrowserKind { name: "msie", mark: b"MSIE ", length: 5, skipped: 25 },
    BrowserKind { name: "gecko", mark: b"rv:", length: 3, skipped: 13 },
    BrowserKind { name: "safari", mark: b"Safari/", length: 7, skipped: 13 },
    BrowserKind { name: "konqueror", mark: b"Konqueror/", length: 10, skipped: 25 },
];
/// What a first number of a version counts; the following ones count a hundredth of the one before.
const MAJOR_VERSION: u64 = 1_000_000;

impl Builder<'_> {
    /// `set_real_ip_from`: an address, a network, a name, or `unix:`.
    pub fn real_ip_from(&mut self, s: &Statement) -> Vec<AccessWho> {
        let word = &s.words[1];
        if word.value == b"unix:" {
            return vec![AccessWho::Unix];
        }
        if let Some((ip, length, clean)) = network(&word.value) {
            if !clean {
                self.warning(word.span, format!("low address bits of {} are meaningless", word.text()));
            }
            return vec![AccessWho::Net(ip, length)];
        }
        self.trusted_name(word)
    }

    fn trusted_name(&mut self, word: &Word) -> Vec<AccessWho> {
        match address::resolve(self.source, &Host::Name(word.text()), 0) {
            Ok(found) => found.iter().map(|a| AccessWho::Net(a.ip(), if a.is_ipv4() { 32 } else { 128 })).collect(),
            Err(problem) => {
                let message = format!("{problem} in set_real_ip_from \"{}\"", word.text());
                self.error_hint(word.span, message, "an address, a network such as 10.0.0.0/8, a host name, or unix:");
                Vec::new()
            }
        }
    }

    /// `real_ip_header`.
    pub fn real_ip_header(&mut self, s: &Statement) -> Option<RealIpHeader> {
        let name = &s.words[1].value;
        Some(match name.as_slice() {
            b"X-Real-IP" => RealIpHeader::XRealIp,
            b"proxy_protocol" => RealIpHeader::ProxyProtocol,
            _ => RealIpHeader::Field(name.to_ascii_lowercase().into()),
        })
    }

    /// `valid_referers`. Names of the server are added when they are known.
    pub fn valid_referers(&mut self, h: &mut HttpBlock, s: &Statement) {
        if h.given.is_first() {
            h.client().referers = Some(Arc::default());
            h.own.referers_at = Some(s.words[0].span);
        }
        let mut referers = h.settings.client.referers.as_deref().cloned().unwrap_or_default();
        for word in s.args() {
            match word.value.as_slice() {
                b"" => self.error(word.span, "invalid referer \"\""),
                b"none" => referers.none = true,
                b"blocked" => referers.blocked = true,
                b"server_names" => h.own.refers_to_names = true,
                b"~" => self.error(word.span, "empty regex in \"~\""),
                [b'~', pattern @ ..] => referers.regexes.extend(self.regex(pattern, true, word.span)),
                text => {
                    let slash = text.iter().position(|byte| *byte == b'/').unwrap_or(text.len());
                    let (host, path) = text.split_at(slash);
                    match add_referer(&mut referers, &host.to_ascii_lowercase(), path) {
                        Added::Yes => {}
                        Added::Known => {
                            let host = String::from_utf8_lossy(host).into_owned();
                            self.error(word.span, format!("conflicting parameter \"{host}\""));
                        }
                        Added::Invalid => {
                            let host = String::from_utf8_lossy(host).into_owned();
                            self.error(word.span, format!("invalid hostname or wildcard \"{host}\""));
                        }
                    }
                }
            }
        }
        h.client().referers = Some(Arc::new(referers));
    }

    /// Completes `valid_referers` of a block whose directives have all been read.
    pub fn complete_referers(&mut self, h: &mut HttpBlock) {
        let Some(span) = h.own.referers_at else { return };
        let mut referers = h.settings.client.referers.as_deref().cloned().unwrap_or_default();
        for name in h.written.server_names.iter().filter(|_| h.own.refers_to_names) {
            match name {
                NameDraft::Regex(regex) => referers.names.push(regex.clone()),
                // One that is listed too keeps its path.
                NameDraft::Plain(name) => {
                    add_referer(&mut referers, name, b"");
                }
            }
        }
        if (referers.none || referers.blocked) && referers.exact.is_empty() && referers.wildcards.is_empty() {
            let message = "the \"none\" or \"blocked\" referers are specified in the \"valid_referers\" directive \
                           without any valid referer";
            self.error(span, message);
        }
        h.client().referers = Some(Arc::new(referers));
    }

    /// `secure_link`, `secure_link_md5` and `secure_link_secret`: the two ways exclude one another.
    pub fn secure_link(&mut self, h: &mut HttpBlock, s: &Statement) {
        let by_secret = s.words[0].value == b"secure_link_secret";
        let by_md5 = h.given.has("secure_link") || h.given.has("secure_link_md5");
        if by_md5 && h.given.has("secure_link_secret") {
            let message = "\"secure_link_secret\" cannot be mixed with \"secure_link\" and \"secure_link_md5\"";
            return self.error(s.words[0].span, message);
        }
        if by_secret {
            let secret = s.words[1].value.as_slice().into();
            h.client().secure_link = SecureLink { secret: Some(secret), ..SecureLink::default() };
            return;
        }
        let template = self.template(&s.words[1]);
        let link = &mut h.client().secure_link;
        link.secret = None;
        if s.words[0].value == b"secure_link" {
            put(&mut link.link, template.map(Some));
        } else {
            put(&mut link.md5, template.map(Some));
        }
    }

    /// `userid`.
    pub fn user_id(&mut self, s: &Statement) -> Option<UserIdMode> {
        let modes =
            [("off", UserIdMode::Off), ("log", UserIdMode::Log), ("v1", UserIdMode::V1), ("on", UserIdMode::On)];
        self.choice(s, &modes)
    }

    /// A text of `userid_…`, or none for `none`.
    pub fn text_or_none(&mut self, s: &Statement) -> Option<Box<[u8]>> {
        let text = s.words[1].value.as_slice();
        (text != b"none").then(|| text.into())
    }

    /// `userid_expires`.
    pub fn user_id_expires(&mut self, s: &Statement) -> Option<UserIdExpires> {
        match s.words[1].value.as_slice() {
            b"max" => Some(UserIdExpires::Max),
            b"off" => Some(UserIdExpires::Off),
            text => {
                let time = values::seconds(text);
                if time.is_none() {
                    self.invalid_value(s, &s.words[1]);
                }
                time.map(|time| if time.is_zero() { UserIdExpires::Off } else { UserIdExpires::After(time) })
            }
        }
    }

    /// `userid_flags`.
    pub fn user_id_flags(&mut self, s: &Statement) -> Option<Box<[u8]>> {
        const FLAGS: [&str; 5] = ["secure", "httponly", "samesite=strict", "samesite=lax", "samesite=none"];
        let mut given = [false; FLAGS.len()];
        for word in s.args() {
            let text = word.text();
            if text == "off" && s.args().len() == 1 {
                return Some(Box::default());
            }
            let Some(index) = FLAGS.iter().position(|flag| *flag == text) else {
                let hint = format!("one of off, {}", FLAGS.join(", "));
                self.error_hint(word.span, format!("invalid value \"{text}\""), hint);
                return None;
            };
            if std::mem::replace(&mut given[index], true) {
                self.warning(word.span, format!("duplicate value \"{text}\""));
            }
        }
        let flags = FLAGS.iter().zip(given).filter(|(_, given)| *given);
        Some(flags.flat_map(|(flag, _)| [b"; ", flag.as_bytes()].concat()).collect())
    }

    /// `userid_mark`.
    pub fn user_id_mark(&mut self, s: &Statement) -> Option<Option<u8>> {
        match s.words[1].value.as_slice() {
            b"off" => Some(None),
            [mark] if mark.is_ascii_alphanumeric() || *mark == b'=' => Some(Some(*mark)),
            _ => {
                let message = "\"userid_mark\" directive value must be \"off\" or a single letter, digit or \"=\"";
                self.error(s.words[1].span, message);
                None
            }
        }
    }

    /// `modern_browser`.
    pub fn modern_browser(&mut self, browsers: &mut Browsers, s: &Statement) {
        let [name, version] = s.args() else {
            if s.words[1].value == b"unlisted" {
                browsers.unlisted_are_modern = true;
            } else {
                let hint = "\"unlisted\", or a browser and its first modern version";
                self.error_hint(s.words[1].span, format!("invalid value \"{}\"", s.words[1].text()), hint);
            }
            return;
        };
        let kind = BROWSERS.iter().find(|kind| kind.name.as_bytes().eq_ignore_ascii_case(&name.value));
        let Some(kind) = kind else {
            let names: Vec<&str> = BROWSERS.iter().map(|kind| kind.name).collect();
            let hint = format!("one of {}", names.join(", "));
            return self.error_hint(name.span, format!("unknown browser name \"{}\"", name.text()), hint);
        };
        if !version.value.iter().all(|byte| byte.is_ascii_digit() || *byte == b'.') {
            return self.error(version.span, format!("invalid browser version \"{}\"", version.text()));
        }
        let modern = &mut browsers.modern;
        if modern.is_empty() {
            // Opera calls itself by the names of others: it is looked for first, even if no version of it is modern.
            modern.push((BROWSERS[0], u64::MAX));
        }
        let least = browser_version(&version.value);
        if kind.name == BROWSERS[0].name && modern[0].1 == u64::MAX {
            modern[0].1 = least;
            return;
        }
        let place = |kind: &BrowserKind| BROWSERS.iter().position(|known| known == kind);
        let behind = modern.partition_point(|(other, _)| place(other) <= place(kind));
        modern.insert(behind, (*kind, least));
    }

    /// `ancient_browser`.
    pub fn ancient_browser(&mut self, browsers: &mut Browsers, s: &Statement) {
        for word in s.args() {
            match word.value.as_slice() {
                b"netscape4" => browsers.netscape4 = true,
                text => browsers.ancient.push(text.into()),
            }
        }
    }
}

/// Whether a host is valid now.
enum Added {
    Yes,
    Known,
    Invalid,
}

fn add_referer(referers: &mut Referers, host: &[u8], path: &[u8]) -> Added {
    let fresh = match classify(host) {
        NameKind::Invalid => return Added::Invalid,
        NameKind::Exact(name) => add_host(referers, name, path),
        kind @ NameKind::Dot(name) => {
            let fresh = referers.wildcards.insert(&kind, path.into());
            add_host(referers, name, path) && fresh
        }
        kind => referers.wildcards.insert(&kind, path.into()),
    };
    if fresh { Added::Yes } else { Added::Known }
}

fn add_host(referers: &mut Referers, name: &[u8], path: &[u8]) -> bool {
    match referers.exact.entry(name.into()) {
        std::collections::hash_map::Entry::Occupied(_) => false,
        std::collections::hash_map::Entry::Vacant(entry) => {
            entry.insert(path.into());
            true
        }
    }
}

/// The version that a text begins with, as one number.
pub fn browser_version(text: &[u8]) -> u64 {
    let (mut version, mut scale) = (0u64, MAJOR_VERSION);
    let mut number = 0u64;
    for byte in text {
        match byte {
            b'0'..=b'9' => number = number.saturating_mul(10).saturating_add(u64::from(byte - b'0')),
            b'.' => {
                version = version.saturating_add(number.saturating_mul(scale));
                number = 0;
                scale /= 100;
            }
            _ => break,
        }
    }
    version.saturating_add(number.saturating_mul(scale))
}

impl UserId {
    /// Whether clients get an identifier.
    pub fn is_set(&self) -> bool {
        self.mode >= UserIdMode::V1
    }
}
