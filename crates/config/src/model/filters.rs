//! What changes the bodies of responses: `gzip`, `gunzip`, `charset`, `sub_filter`, `ssi`, `add_before_body`.

use std::sync::Arc;

use super::HttpVersion;
use crate::regex::Regex;
use crate::template::Template;

/// The filters of a location.
#[derive(Debug, Clone, Default)]
pub struct Filters {
    /// `gzip`.
    pub gzip: Gzip,
    /// When a client is taken to understand gzip.
    pub gzip_clients: GzipClients,
    /// `gunzip` (off).
    pub gunzip: bool,
    /// `charset…`.
    pub charset: CharsetFilter,
    /// `sub_filter…`.
    pub sub: SubFilter,
    /// `ssi…`.
    pub ssi: Ssi,
    /// `add_before_body`, `add_after_body`, `addition_types`.
    pub addition: Addition,
}

impl Filters {
    /// Whether a response may be changed at all.
    pub fn are_any(&self) -> bool {
        let CharsetFilter { target, source, .. } = &self.charset;
        let changes = self.gzip.enabled || self.gunzip || target.is_some() || source.is_some();
        changes || !self.sub.pairs.is_empty() || self.ssi.enabled || self.addition.is_any()
    }
}

/// `ssi…`.
#[derive(Debug, Clone, Default)]
pub struct Ssi {
    /// `ssi` (off).
    pub enabled: bool,
    /// `ssi_types`.
    pub types: MediaTypes,
    /// `ssi_last_modified` (off): the field is kept.
    pub last_modified: bool,
    /// `ssi_silent_errors` (off): errors leave no text.
    pub silent_errors: bool,
    /// `ssi_value_length` (255): most bytes of a parameter's value.
    pub value_length: usize,
}

/// What is added to the bodies of responses.
#[derive(Debug, Clone, Default)]
pub struct Addition {
    /// `add_before_body`: a URI; empty for none.
    pub before: Box<[u8]>,
    /// `add_after_body`: a URI; empty for none.
    pub after: Box<[u8]>,
    /// `addition_types`.
    pub types: MediaTypes,
}

impl Addition {
    /// Whether something is added.
    pub fn is_any(&self) -> bool {
        !self.before.is_empty() || !self.after.is_empty()
    }
}

/// `gzip` and how it compresses.
#[derive(Debug, Clone, Default)]
pub struct Gzip {
    /// `gzip` (off).
    pub enabled: bool,
    /// `gzip_comp_level` (1), up to 9.
    pub level: u32,
    /// `gzip_min_length` (20): shorter responses are not compressed.
    pub min_length: u64,
    /// `gzip_types`.
    pub types: MediaTypes,
    /// `gzip_window` (32k), as a number of bits.
    pub window: u8,
}

/// `gzip_vary` and what decides whether a client gets gzip.
#[derive(Debug, Clone, Default)]
pub struct GzipClients {
    /// `gzip_vary` (off).
    pub vary: bool,
    /// `gzip_http_version` (1.1): the oldest protocol.
    pub http_version: HttpVersion,
    /// `gzip_proxied`: responses to requests with a Via field.
    pub proxied: GzipProxied,
    /// `gzip_disable`: expressions that the User-Agent field must not match.
    pub disable: Vec<Arc<Regex>>,
    /// `gzip_disable msie6`.
    pub disable_msie6: bool,
}

/// `gzip_proxied`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(missing_docs)]
pub struct GzipProxied {
    pub off: bool,
    pub expired: bool,
    pub no_cache: bool,
    pub no_store: bool,
    pub private: bool,
    pub no_last_modified: bool,
    pub no_etag: bool,
    pub auth: bool,
    pub any: bool,
}

/// `gzip_static`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(missing_docs)]
pub enum GzipStatic {
    #[default]
    Off,
    On,
    Always,
}

/// Media types that a filter is for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MediaTypes {
    /// `*`.
    pub any: bool,
    /// Types in lower case.
    pub names: Vec<Box<[u8]>>,
}

impl MediaTypes {
    /// What every list begins with.
    pub fn html() -> MediaTypes {
        MediaTypes { any: false, names: vec![b"text/html".as_slice().into()] }
    }

    /// Whether a type, without parameters, is among them. `*` is also for a response without a type.
    pub fn contain(&self, media_type: &[u8]) -> bool {
        self.any || self.names.iter().any(|name| name.eq_ignore_ascii_case(media_type))
    }
}

/// `sub_filter…`.
#[derive(Debug, Clone, Default)]
pub struct SubFilter {
    /// Search strings and what replaces them.
    pub pairs: Vec<(Template, Template)>,
    /// `sub_filter_once` (on).
    pub once: bool,
    /// `sub_filter_types`.
    pub types: MediaTypes,
    /// `sub_filter_last_modified` (off): the field is kept.
    pub last_modified: bool,
}

/// `charset…`.
#[derive(Debug, Clone, Default)]
pub struct CharsetFilter {
    /// `charset`; `None` for `off`.
    pub target: Option<CharsetName>,
    /// `source_charset`.
    pub source: Option<CharsetName>,
    /// `override_charset` (off).
    pub override_given: bool,
    /// `charset_types`.
    pub types: MediaTypes,
}

/// A character set, or the text that names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CharsetName {
    /// An index into [`Charsets::names`].
    Known(usize),
    /// With variables.
    Dynamic(Template),
}

/// All character sets of a configuration, and how they are converted.
#[derive(Debug, Default)]
pub struct Charsets {
    /// Names as first written.
    pub names: Vec<Box<str>>,
    /// Conversions, by the indices of source and target.
    pub tables: Vec<(usize, usize, Arc<CharsetTable>)>,
}

impl Charsets {
    /// The number of a name, in any case.
    pub fn find(&self, name: &[u8]) -> Option<usize> {
        self.names.iter().position(|known| known.as_bytes().eq_ignore_ascii_case(name))
    }

    /// How one is converted into another.
    pub fn table(&self, source: usize, target: usize) -> Option<&Arc<CharsetTable>> {
        self.tables.iter().find(|(from, to, _)| (*from, *to) == (source, target)).map(|(_, _, table)| table)
    }
}

/// How a character set is converted into another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CharsetTable {
    /// Byte by byte.
    Bytes(Box<[u8; 256]>),
    /// Each byte to UTF-8: its length and the bytes.
    ToUtf8(Box<[[u8; 4]; 256]>),
    /// UTF-8 to bytes, in pages of 256 characters; 0 for a character without a byte.
    FromUtf8(Vec<Option<Box<[u8; 256]>>>),
}

/// Decodes the character at the beginning of a text as NGINX does: which bytes may follow the first is not checked fully.
/// `None` if it is not complete; else the character, or `None` for none, and its length.
pub fn decode_utf8(text: &[u8]) -> Option<(Option<u32>, usize)> {
    let first = u32::from(*text.first()?);
    let (mut character, least, length) = match first {
        0xf8.. => return Some((None, 1)),
        0xf0.. => (first & 0x07, 0x1_0000, 4),
        0xe0.. => (first & 0x0f, 0x800, 3),
        0xc2.. => (first & 0x1f, 0x80, 2),
        _ => return Some((None, 1)),
    };
    for index in 1..length {
        let next = u32::from(*text.get(index)?);
        if next < 0x80 {
            return Some((None, index + 1));
        }
        character = character << 6 | next & 0x3f;
    }
    Some((Some(character).filter(|character| *character >= least), length))
}
