//! `gzip`, `gunzip`, `charset`, `sub_filter` and `ssi`.

use std::sync::Arc;

use super::block::HttpBlock;
use crate::block::put;
use crate::diagnostics::{Diagnostic, Severity, Span};
use crate::drafts::CharsetDrafts;
use crate::lexer::Word;
use crate::load::Builder;
use crate::model::{
    CharsetName, CharsetTable, Charsets, Filters, GzipProxied, GzipStatic, HttpVersion, MediaTypes, decode_utf8,
};
use crate::tree::Statement;

impl HttpBlock {
    /// The filters, which blocks share until one of them sets something.
    pub fn filters(&mut self) -> &mut Filters {
        Arc::make_mut(&mut self.settings.filters)
    }
}

impl Builder<'_> {
    /// `…_types`: `text/html` is always among them.
    pub fn media_types(&mut self, block: &mut HttpBlock, s: &Statement, types: fn(&mut Filters) -> &mut MediaTypes) {
        let first = block.given.is_first();
        let types = types(block.filters());
        if first {
            *types = MediaTypes::html();
        }
        for word in s.args() {
            if word.value == b"*" {
                types.any = true;
                return;
            }
            let name: Box<[u8]> = word.value.to_ascii_lowercase().into();
            if types.names.contains(&name) {
                self.warning(word.span, format!("duplicate MIME type \"{}\"", word.text()));
                continue;
            }
            types.names.push(name);
        }
    }

    pub fn gzip_level(&mut self, s: &Statement) -> Option<u32> {
        let level: u32 = self.number(s)?;
        if !(1..=9).contains(&level) {
            self.error(s.words[1].span, "value must be between 1 and 9");
            return None;
        }
        Some(level)
    }

    /// `gzip_window`: the number of bits of its size.
    pub fn gzip_window(&mut self, s: &Statement) -> Option<u8> {
        let size: u64 = self.size(s)?;
        let bits = (9..=15).find(|bits| size == 1 << bits);
        if bits.is_none() {
            self.error(s.words[1].span, "\"gzip_window\" directive must be 512, 1k, 2k, 4k, 8k, 16k, or 32k");
        }
        bits
    }

    pub fn gzip_http_version(&mut self, s: &Statement) -> Option<HttpVersion> {
        self.choice(s, &[("1.0", HttpVersion::Http10), ("1.1", HttpVersion::Http11)])
    }

    pub fn gzip_proxied(&mut self, block: &mut HttpBlock, s: &Statement) {
        let first = block.given.is_first();
        let proxied = &mut block.filters().gzip_clients.proxied;
        if first {
            *proxied = GzipProxied::default();
        }
        const NAMES: [&str; 9] =
            ["off", "expired", "no-cache", "no-store", "private", "no_last_modified", "no_etag", "auth", "any"];
        for word in s.args() {
            let field = match word.value.as_slice() {
                b"off" => &mut proxied.off,
                b"expired" => &mut proxied.expired,
                b"no-cache" => &mut proxied.no_cache,
                b"no-store" => &mut proxied.no_store,
                b"private" => &mut proxied.private,
                b"no_last_modified" => &mut proxied.no_last_modified,
                b"no_etag" => &mut proxied.no_etag,
                b"auth" => &mut proxied.auth,
                b"any" => &mut proxied.any,
                _ => {
                    let hint = format!("one of {}", NAMES.join(", "));
                    self.error_hint(word.span, format!("invalid value \"{}\"", word.text()), hint);
                    continue;
                }
            };
            if std::mem::replace(field, true) {
                self.warning(word.span, format!("duplicate value \"{}\"", word.text()));
            }
        }
    }

    pub fn gzip_disable(&mut self, block: &mut HttpBlock, s: &Statement) {
        let mut expressions = Vec::new();
        let mut msie6 = false;
        for word in s.args() {
            match word.value.as_slice() {
                b"msie6" => msie6 = true,
                // What NGINX did when memory was short.
                b"degradation" => {}
                pattern => expressions.extend(self.regex(pattern, true, word.span).map(Arc::new)),
            }
        }
        let first = block.given.is_first();
        let clients = &mut block.filters().gzip_clients;
        // NGINX inherits the two apart.
        if first && !expressions.is_empty() {
            clients.disable.clear();
        }
        clients.disable.extend(expressions);
        clients.disable_msie6 |= msie6;
    }

    pub fn gzip_static(&mut self, s: &Statement) -> Option<GzipStatic> {
        self.choice(s, &[("off", GzipStatic::Off), ("on", GzipStatic::On), ("always", GzipStatic::Always)])
    }

    pub fn sub_filter(&mut self, block: &mut HttpBlock, s: &Statement) {
        let first = block.given.is_first();
        let pairs = &mut block.filters().sub.pairs;
        if first {
            pairs.clear();
        }
        if s.words[1].value.is_empty() {
            return self.error(s.words[1].span, "empty search pattern");
        }
        if let (Some(search), Some(replacement)) = (self.template(&s.words[1]), self.template(&s.words[2])) {
            pairs.push((search, replacement));
        }
    }

    /// `ssi`: pages name variables, so that their names are needed in operation.
    pub fn ssi(&mut self, block: &mut HttpBlock, s: &Statement) {
        put(&mut block.filters().ssi.enabled, self.flag(s));
        self.variables.are_named_by_pages |= block.settings.filters.ssi.enabled;
    }

    /// `charset`, where `off` is none, and `source_charset`.
    pub fn charset_name(&mut self, s: &Statement, off: bool) -> Option<Option<CharsetName>> {
        let word = &s.words[1];
        if off && word.value == b"off" {
            return Some(None);
        }
        if word.value.first() == Some(&b'$') {
            return Some(Some(CharsetName::Dynamic(self.template(word)?)));
        }
        self.field_value(word)?;
        Some(Some(CharsetName::Known(self.charsets.index(&word.text()))))
    }

    /// Whether a text can stand in a field.
    fn field_value(&mut self, word: &Word) -> Option<()> {
        if word.value.iter().any(|byte| *byte < b' ' || *byte == 0x7f) {
            self.error(word.span, format!("invalid value \"{}\"", word.text()));
            return None;
        }
        Some(())
    }

    /// Notes the conversion that a complete block needs.
    pub fn note_charsets(&mut self, block: &HttpBlock, span: Option<Span>) {
        let charset = &block.settings.filters.charset;
        if let (Some(CharsetName::Known(target)), Some(CharsetName::Known(source))) = (&charset.target, &charset.source)
            && source != target
            && !self.charsets.needed.iter().any(|(from, to, _)| (from, to) == (source, target))
        {
            self.charsets.needed.push((*source, *target, span));
        }
    }

    /// `charset_map`.
    pub fn charset_map(&mut self, s: &Statement) {
        let [_, from, to] = s.words.as_slice() else { return };
        if self.field_value(from).is_none() || self.field_value(to).is_none() {
            return;
        }
        let (source, target) = (self.charsets.index(&from.text()), self.charsets.index(&to.text()));
        let between = format!("\"{}\" and \"{}\"", from.text(), to.text());
        if source == target {
            return self.error(s.span(), format!("\"charset_map\" between the same charsets {between}"));
        }
        if self.charsets.charsets.table(source, target).is_some() {
            return self.error(s.span(), format!("duplicate \"charset_map\" between {between}"));
        }
        let (there, back) = match to.value.eq_ignore_ascii_case(b"utf-8") {
            true => self.utf8_tables(s),
            false => self.byte_tables(s),
        };
        let tables = &mut self.charsets.charsets.tables;
        tables.push((source, target, Arc::new(there)));
        tables.push((target, source, Arc::new(back)));
    }

    /// The two words of a line of `charset_map`, the first as a number.
    fn charset_line<'s>(&mut self, line: &'s Statement) -> Option<(usize, &'s Word)> {
        if line.block.is_some() {
            self.error(line.span(), "unexpected \"{\"");
            return None;
        }
        let [source, target] = line.words.as_slice() else {
            self.error(line.span(), "invalid parameters number");
            return None;
        };
        match byte(&source.value) {
            Some(byte) => Some((usize::from(byte), target)),
            None => {
                self.error(source.span, format!("invalid value \"{}\"", source.text()));
                None
            }
        }
    }

    fn byte_tables(&mut self, s: &Statement) -> (CharsetTable, CharsetTable) {
        let plain: [u8; 256] = std::array::from_fn(|byte| if byte < 128 { byte as u8 } else { b'?' });
        let (mut there, mut back) = (Box::new(plain), Box::new(plain));
        for line in s.block.iter().flatten() {
            let Some((source, word)) = self.charset_line(line) else { continue };
            match byte(&word.value) {
                Some(target) => {
                    there[source] = target;
                    back[usize::from(target)] = source as u8;
                }
                None => self.error(word.span, format!("invalid value \"{}\"", word.text())),
            }
        }
        (CharsetTable::Bytes(there), CharsetTable::Bytes(back))
    }

    fn utf8_tables(&mut self, s: &Statement) -> (CharsetTable, CharsetTable) {
        let plain: [[u8; 4]; 256] = std::array::from_fn(|byte| [1, if byte < 128 { byte as u8 } else { b'?' }, 0, 0]);
        let mut there = Box::new(plain);
        let mut pages: Vec<Option<Box<[u8; 256]>>> = vec![None; 256];
        pages[0] = Some(Box::new(std::array::from_fn(|byte| if byte < 128 { byte as u8 } else { 0 })));
        for line in s.block.iter().flatten() {
            let Some((source, word)) = self.charset_line(line) else { continue };
            let Some((text, character)) = character(&word.value) else {
                self.error(word.span, format!("invalid value \"{}\"", word.text()));
                continue;
            };
            there[source] = [text.len() as u8, 0, 0, 0];
            there[source][1..=text.len()].copy_from_slice(&text);
            if let Some(page) = pages.get_mut((character >> 8) as usize) {
                page.get_or_insert_with(|| Box::new([0; 256]))[(character & 0xff) as usize] = source as u8;
            }
        }
        (CharsetTable::ToUtf8(there), CharsetTable::FromUtf8(pages))
    }

    /// All character sets. Every `charset_map` has been read.
    pub fn take_charsets(&mut self) -> Charsets {
        let CharsetDrafts { charsets, needed } = std::mem::take(&mut self.charsets);
        for (source, target, span) in needed {
            if charsets.table(source, target).is_none() {
                let (source, target) = (&charsets.names[source], &charsets.names[target]);
                let message = format!("no \"charset_map\" between the charsets \"{source}\" and \"{target}\"");
                match span {
                    Some(span) => self.error(span, message),
                    None => self.diagnostics.push(Diagnostic::new(Severity::Error, &message, None)),
                }
            }
        }
        charsets
    }
}

/// A number of one byte in hexadecimal digits.
fn byte(text: &[u8]) -> Option<u8> {
    let text = std::str::from_utf8(text).ok().filter(|text| !text.starts_with('+'))?;
    u8::try_from(u64::from_str_radix(text, 16).ok()?).ok()
}

/// The bytes of a character that are written in hexadecimal digits, and its number.
fn character(text: &[u8]) -> Option<(Vec<u8>, u32)> {
    let bytes: Option<Vec<u8>> = text.chunks(2).map(byte).collect();
    let bytes = bytes.filter(|bytes| text.len().is_multiple_of(2) && (1..=3).contains(&bytes.len()))?;
    let character = decode_utf8(&bytes)?.0?;
    (character <= 0xffff).then_some((bytes, character))
}
