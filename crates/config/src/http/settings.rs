//! Values of directives of `http`, `server` and `location`, and what a complete block has.

use std::net::IpAddr;
use std::sync::Arc;

use balanza_balancing::registry::nearest;

use super::block::{HttpBlock, Inherit};
use crate::block::put;
use crate::lexer::Word;
use crate::load::Builder;
use crate::model::{
    AccessLog, AccessLogTarget, AccessRule, AccessWho, AddHeader, ErrorLog, ErrorPage, IfModifiedSince,
    KeepaliveDisable, LingeringClose, LogTarget, Overwrite, Root, ServerTokens, Settings,
};
use crate::template::{Part, Template, Variable};
use crate::tree::Statement;
use crate::tuning;
use crate::values;

impl Builder<'_> {
    /// The settings of a complete block. Its logs are to be opened: the default one is named by no directive.
    pub fn settings(&mut self, settings: Settings) -> Arc<Settings> {
        self.note_logs(&settings.access_logs, &settings.error_log);
        Arc::new(settings)
    }

    /// Notes the files of logs, which are to be opened.
    pub fn note_logs(&mut self, access_logs: &[AccessLog], error_logs: &[ErrorLog]) {
        for log in access_logs {
            if let AccessLogTarget::File(file) = &log.target
                && !self.access_log_files.contains(file)
            {
                self.access_log_files.insert(file.clone());
            }
        }
        for log in error_logs {
            if let LogTarget::File(file) = &log.target
                && !self.error_log_files.contains(file)
            {
                self.error_log_files.insert(file.clone());
            }
        }
    }

    pub fn inherit(&mut self, s: &Statement) -> Option<Inherit> {
        self.choice(s, &[("on", Inherit::On), ("off", Inherit::Off), ("merge", Inherit::Merge)])
    }

    pub fn server_tokens(&mut self, s: &Statement) -> Option<ServerTokens> {
        let word = &s.words[1];
        let choices = [("on", ServerTokens::On), ("off", ServerTokens::Off), ("build", ServerTokens::Build)];
        let is_choice = choices.iter().any(|(name, _)| name.as_bytes() == word.value);
        // One word that resembles another is a mistake rather than the name of a server.
        if is_choice || nearest(&word.text(), choices.iter().map(|(name, _)| *name)).is_some() {
            return self.choice(s, &choices);
        }
        self.template(word).map(ServerTokens::Text)
    }

    /// Conditions, which hold if they are neither empty nor "0".
    pub fn conditions(&mut self, s: &Statement) -> Vec<Template> {
        s.args().iter().filter_map(|word| self.template(word)).collect()
    }

    /// `lingering_close`.
    pub fn lingering_close(&mut self, s: &Statement) -> Option<LingeringClose> {
        let choices = [("off", LingeringClose::Off), ("on", LingeringClose::On), ("always", LingeringClose::Always)];
        self.choice(s, &choices)
    }

    /// `keepalive_disable none | msie6 | safari …`.
    pub fn keepalive_disable(&mut self, block: &mut HttpBlock, s: &Statement) {
        let disable = &mut block.settings.keepalive_disable;
        if block.given.is_first() {
            *disable = KeepaliveDisable::default();
        }
        for word in s.args() {
            match word.value.as_slice() {
                b"none" => {}
                b"msie6" => disable.msie6 = true,
                b"safari" => disable.safari = true,
                _ => {
                    let message = format!("invalid value \"{}\"", word.text());
                    return self.error_hint(word.span, message, "one of none, msie6, safari");
                }
            }
        }
    }

    pub fn if_modified_since(&mut self, s: &Statement) -> Option<IfModifiedSince> {
        let choices =
            [("off", IfModifiedSince::Off), ("exact", IfModifiedSince::Exact), ("before", IfModifiedSince::Before)];
        self.choice(s, &choices)
    }

    pub fn keepalive_timeout(&mut self, block: &mut HttpBlock, s: &Statement) {
        let Some(timeout) = self.msec(s) else { return };
        let header = match s.words.get(2) {
            None => None,
            Some(word) => match values::seconds(&word.value) {
                None => return self.invalid_value(s, word),
                Some(header) => Some(header).filter(|header| !header.is_zero()),
            },
        };
        block.settings.keepalive_timeout = timeout;
        block.settings.keepalive_header = header;
    }

    pub fn large_client_header_buffers(&mut self, block: &mut HttpBlock, s: &Statement) {
        put(&mut block.connection.large_client_header_buffers, self.buffers(s));
        block.written.header_buffers_at = Some(s.words[2].span);
    }

    pub fn connection_pool_size(&mut self, block: &mut HttpBlock, s: &Statement) {
        put(&mut block.written.connection_pool_size, tuning::pool_size(self, s));
        block.written.header_buffers_at.get_or_insert(s.words[1].span);
    }

    /// A check that NGINX makes once a server is complete.
    pub fn check_header_buffers(&mut self, block: &HttpBlock) {
        let least = block.written.connection_pool_size;
        if let Some(span) = block.written.header_buffers_at
            && block.connection.large_client_header_buffers.1 < least
        {
            let message = "the \"large_client_header_buffers\" size must be equal to or greater than \
                           \"connection_pool_size\"";
            self.error_hint(span, message, format!("the size must be {least} or more"));
        }
    }

    /// `root` or `alias`.
    pub fn root(&mut self, block: &mut HttpBlock, s: &Statement, alias: bool) {
        if alias && block.own.location.as_ref().is_some_and(|location| location.named) {
            let message = "the \"alias\" directive cannot be used inside the named location";
            return self.error(s.words[0].span, message);
        }
        let word = &s.words[1];
        let Some(mut template) = self.template(word) else { return };
        for part in template.parts() {
            let name = match part {
                Part::Variable(Variable::DocumentRoot) => "document_root",
                Part::Variable(Variable::RealpathRoot) => "realpath_root",
                _ => continue,
            };
            let message = format!("the ${name} variable cannot be used in the \"{}\" directive", s.name());
            return self.error(word.span, message);
        }
        let mut text = word.value.clone();
        if text.first() != Some(&b'$') {
            use std::os::unix::ffi::OsStringExt;
            text = self.path(&text).into_os_string().into_vec();
        }
        if !alias && text.last() == Some(&b'/') {
            text.pop();
        }
        if let Some(resolved) = self.template_of(&text, word.span, true) {
            template = resolved;
        }
        block.settings.root = if alias { Root::Alias(template) } else { Root::Root(template) };
    }

    pub fn index(&mut self, s: &Statement) -> Vec<Template> {
        let mut files = Vec::new();
        for (i, word) in s.args().iter().enumerate() {
            if word.value.is_empty() {
                self.error(word.span, format!("index \"{}\" in \"index\" directive is invalid", word.text()));
            } else if word.value[0] == b'/' && i + 1 < s.args().len() {
                self.warning(word.span, "only the last index in \"index\" directive should be absolute");
            }
            files.extend(self.template(word));
        }
        files
    }

    pub fn error_page(&mut self, block: &mut HttpBlock, s: &Statement) {
        let pages = block.given.list(&mut block.settings.error_pages);
        let args = s.args();
        let (Some((target, codes)), true) = (args.split_last(), args.len() >= 2) else { return };
        let mut codes = codes;
        let mut overwrite = None;
        if let Some((last, rest)) = codes.split_last()
            && last.value.first() == Some(&b'=')
        {
            overwrite = match &last.value[1..] {
                [] => Some(Overwrite::Handler),
                digits => values::number(digits).and_then(|n| u16::try_from(n).ok()).map(Overwrite::Status),
            };
            if overwrite.is_none() || rest.is_empty() {
                return self.error(last.span, format!("invalid value \"{}\"", last.text()));
            }
            codes = rest;
        }
        let Some(template) = self.template(target) else { return };
        for word in codes {
            let Some(status) = values::number(&word.value) else {
                self.error(word.span, format!("invalid value \"{}\"", word.text()));
                continue;
            };
            if !(300..=599).contains(&status) {
                self.error(word.span, format!("value \"{}\" must be between 300 and 599", word.text()));
                continue;
            }
            // 494 to 497 are NGINX's own statuses; clients see 400.
            let overwrite = match (overwrite, status) {
                (Some(overwrite), _) => overwrite,
                (None, 494..=497) => Overwrite::Status(400),
                (None, _) => Overwrite::Keep,
            };
            let page = ErrorPage { status: status as u16, overwrite, target: template.clone() };
            pages.push(page);
        }
    }

    pub fn add_header(&mut self, s: &Statement) -> Option<AddHeader> {
        if let Some(word) = s.words.get(3)
            && word.value != b"always"
        {
            self.invalid_parameter(word, &["always"]);
            return None;
        }
        self.field_name(&s.words[1])?;
        let value = self.template(&s.words[2])?;
        Some(AddHeader { name: s.words[1].value.as_slice().into(), value, always: s.words.len() == 4 })
    }

    /// Whether a text may name a header field: NGINX would send anything, and the message would be broken.
    pub fn field_name(&mut self, word: &Word) -> Option<()> {
        let token = |b: &u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(b);
        if word.value.is_empty() || !word.value.iter().all(token) {
            self.error(word.span, format!("invalid header name \"{}\"", word.text()));
            return None;
        }
        Some(())
    }

    pub fn types(&mut self, block: &mut HttpBlock, s: &Statement) {
        if block.given.is_first() {
            block.settings.types = Arc::default();
        }
        let types = Arc::make_mut(&mut block.settings.types);
        for line in s.block.iter().flatten() {
            if line.block.is_some() {
                self.error(line.span(), "unexpected \"{\"");
                continue;
            }
            let media: Box<str> = line.name().into();
            for word in line.args() {
                let extension: Box<str> = word.text().to_ascii_lowercase().into();
                match types.get(&extension).cloned() {
                    Some(previous) => {
                        let message = format!(
                            "duplicate extension \"{extension}\", content type: \"{media}\", previous content type: \
                             \"{previous}\""
                        );
                        self.warning(word.span, message);
                        types.insert(extension, media.clone());
                    }
                    None => {
                        types.insert(extension, media.clone());
                    }
                }
            }
        }
    }

    /// `allow` or `deny`.
    pub fn access_rule(&mut self, s: &Statement, allow: bool) -> Option<AccessRule> {
        let word = &s.words[1];
        let who = match word.value.as_slice() {
            b"all" => Some(AccessWho::All),
            b"unix:" => Some(AccessWho::Unix),
            text => match network(text) {
                Some((address, length, clean)) => {
                    if !clean {
                        self.warning(word.span, format!("low address bits of {} are meaningless", word.text()));
                    }
                    Some(AccessWho::Net(address, length))
                }
                None => {
                    self.invalid_parameter(word, &["all", "unix:"]);
                    None
                }
            },
        };
        who.map(|who| AccessRule { allow, who })
    }
}

/// An address or a network; whether the bits of the host were clear.
pub(crate) fn network(text: &[u8]) -> Option<(IpAddr, u8, bool)> {
    let text = std::str::from_utf8(text).ok()?;
    let (address, mask) = match text.split_once('/') {
        Some((address, mask)) => (address, Some(mask)),
        None => (text, None),
    };
    let address: IpAddr = address.parse().ok()?;
    let width: u8 = if address.is_ipv4() { 32 } else { 128 };
    let length = match mask {
        None => width,
        Some(mask) => match values::number(mask.as_bytes()) {
            Some(number) => u8::try_from(number).ok().filter(|length| *length <= width)?,
            None => {
                // NGINX takes a mask in place of a length: 10.0.0.0/255.0.0.0.
                let IpAddr::V4(mask) = mask.parse().ok()? else { return None };
                let bits = mask.to_bits();
                (bits.leading_ones() + bits.trailing_zeros() == 32 || bits == 0).then_some(())?;
                bits.leading_ones() as u8
            }
        },
    };
    let masked = match address {
        IpAddr::V4(ip) => {
            let mask = u32::MAX.checked_shl(u32::from(32 - length)).unwrap_or(0);
            IpAddr::V4((ip.to_bits() & mask).into())
        }
        IpAddr::V6(ip) => {
            let mask = u128::MAX.checked_shl(u32::from(128 - length)).unwrap_or(0);
            IpAddr::V6((ip.to_bits() & mask).into())
        }
    };
    Some((masked, length, masked == address))
}

/// The alias of an outer location in an inner one: the rest of the inner location's name follows the path.
pub(crate) fn nested_alias(alias: &Template, rest: &[u8]) -> Template {
    let mut parts = alias.parts().to_vec();
    match parts.last_mut() {
        _ if rest.is_empty() => {}
        Some(Part::Literal(last)) => *last = [&last[..], rest].concat().into(),
        _ => parts.push(Part::Literal(rest.into())),
    }
    Template::new(parts)
}
