//! The fields that Balanza uses, recognised once by length and bytes.

use crate::words::{Pattern, hash, words};

macro_rules! headers {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// A field name that is known.
        #[repr(u8)]
        #[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Debug)]
        #[allow(missing_docs)]
        pub enum Header {
            /// Any name that is not in this list.
            #[default]
            Other,
            $($(#[$doc])* $variant,)*
        }

        impl Header {
            /// Every known field, without `Other`.
            pub const KNOWN: &'static [Header] = &[$(Header::$variant,)*];

            /// The name in lower case; empty for `Other`.
            pub const fn name(self) -> &'static str {
                match self {
                    Header::Other => "",
                    $(Header::$variant => $name,)*
                }
            }
        }
    };
}

headers! {
    Host = "host",
    Connection = "connection",
    KeepAlive = "keep-alive",
    ProxyConnection = "proxy-connection",
    ContentLength = "content-length",
    TransferEncoding = "transfer-encoding",
    Te = "te",
    Trailer = "trailer",
    Upgrade = "upgrade",
    Expect = "expect",
    ContentType = "content-type",
    ContentEncoding = "content-encoding",
    ContentRange = "content-range",
    UserAgent = "user-agent",
    Accept = "accept",
    AcceptEncoding = "accept-encoding",
    AcceptLanguage = "accept-language",
    Referer = "referer",
    Origin = "origin",
    Cookie = "cookie",
    Authorization = "authorization",
    ProxyAuthorization = "proxy-authorization",
    ProxyAuthenticate = "proxy-authenticate",
    WwwAuthenticate = "www-authenticate",
    Range = "range",
    IfRange = "if-range",
    IfModifiedSince = "if-modified-since",
    IfUnmodifiedSince = "if-unmodified-since",
    IfMatch = "if-match",
    IfNoneMatch = "if-none-match",
    Forwarded = "forwarded",
    XForwardedFor = "x-forwarded-for",
    XForwardedHost = "x-forwarded-host",
    XForwardedProto = "x-forwarded-proto",
    XRealIp = "x-real-ip",
    XRequestId = "x-request-id",
    Via = "via",
    MaxForwards = "max-forwards",
    Pragma = "pragma",
    Server = "server",
    Date = "date",
    Age = "age",
    Location = "location",
    Refresh = "refresh",
    LastModified = "last-modified",
    Etag = "etag",
    SetCookie = "set-cookie",
    AcceptRanges = "accept-ranges",
    CacheControl = "cache-control",
    Expires = "expires",
    Vary = "vary",
    Link = "link",
    Http2Settings = "http2-settings",
    SecWebsocketKey = "sec-websocket-key",
    SecWebsocketAccept = "sec-websocket-accept",
    XAccelRedirect = "x-accel-redirect",
    XAccelBuffering = "x-accel-buffering",
    XAccelLimitRate = "x-accel-limit-rate",
    XAccelExpires = "x-accel-expires",
    XAccelCharset = "x-accel-charset",
    XPad = "x-pad",
}

const COUNT: usize = Header::KNOWN.len() + 1;
const LONGEST: usize = 24;
const SLOT_BITS: u32 = 9;

// `Header::bit` needs a bit for each.
const _: () = assert!(COUNT <= 64);

/// What each field is compared with, by its number; a power of two in size, to be found by a shift.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Known {
    pattern: Pattern,
    header: Header,
}

static KNOWN: [Known; COUNT] = known();
static TABLE: [u8; 1 << SLOT_BITS] = table();

/// Was searched for: it gives every known name a slot of its own, and the table does not compile if one is added that
/// collides.
const MULTIPLIER: u64 = 0x1484_05df_6aff_8737;

const fn known() -> [Known; COUNT] {
    let mut all = [Known { pattern: Pattern::new(""), header: Header::Other }; COUNT];
    let mut i = 0;
    while i < Header::KNOWN.len() {
        let header = Header::KNOWN[i];
        all[i + 1] = Known { pattern: Pattern::new(header.name()), header };
        i += 1;
    }
    all
}

const fn table() -> [u8; 1 << SLOT_BITS] {
    let mut table = [0; 1 << SLOT_BITS];
    let mut i = 0;
    while i < Header::KNOWN.len() {
        let [first, second, _] = words(Header::KNOWN[i].name().as_bytes());
        let slot = hash([first, second], MULTIPLIER, SLOT_BITS);
        assert!(table[slot] == 0, "two names share a slot: search for another multiplier");
        table[slot] = (i + 1) as u8;
        i += 1;
    }
    table
}

impl Header {
    /// The field of this name, in any case; exact for any bytes.
    #[inline]
    pub fn recognise(name: &[u8]) -> Header {
        if name.len() > LONGEST { Header::Other } else { Header::of_words(words(name), name.len()) }
    }

    /// The field whose name has these words (see `words::words`) and this length, of at most 24.
    #[inline(always)]
    pub fn of_words(words: [u64; 3], len: usize) -> Header {
        Header::check(hash([words[0], words[1]], MULTIPLIER, SLOT_BITS), words, len)
    }

    /// The same for a name that has no third word.
    #[inline(always)]
    pub fn of_two_words(words: [u64; 2], len: usize) -> Header {
        Header::check(hash(words, MULTIPLIER, SLOT_BITS), words, len)
    }

    /// The same for a name of one word.
    #[inline(always)]
    pub fn of_word(word: u64, len: usize) -> Header {
        Header::check(hash([word, 0], MULTIPLIER, SLOT_BITS), [word], len)
    }

    #[inline(always)]
    fn check<const N: usize>(slot: usize, words: [u64; N], len: usize) -> Header {
        let known = &KNOWN[TABLE[slot] as usize];
        if known.pattern.is(words, len) { known.header } else { Header::Other }
    }

    /// Its bit in a set of fields.
    #[inline]
    pub const fn bit(self) -> u64 {
        1 << self as u8
    }

    /// Fields that concern one connection and are never forwarded (RFC 9110, 7.6.1), Upgrade and TE among them.
    pub const HOP_BY_HOP: u64 = Header::Connection.bit()
        | Header::KeepAlive.bit()
        | Header::ProxyConnection.bit()
        | Header::TransferEncoding.bit()
        | Header::Te.bit()
        | Header::Upgrade.bit()
        | Header::Http2Settings.bit();

    /// Whether it is in a set of bits.
    #[inline]
    pub const fn is_in(self, set: u64) -> bool {
        self.bit() & set != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_name_is_recognised_in_any_case() {
        for &header in Header::KNOWN {
            let name = header.name();
            assert_eq!(Header::recognise(name.as_bytes()), header);
            assert_eq!(Header::recognise(name.to_ascii_uppercase().as_bytes()), header);
            for i in 0..name.len() {
                for b in 0..=255u8 {
                    let mut other = name.as_bytes().to_vec();
                    other[i] = b;
                    let same = other.eq_ignore_ascii_case(name.as_bytes());
                    assert_eq!(Header::recognise(&other) == header, same, "{other:?}");
                }
            }
        }
    }

    #[test]
    fn numbers_are_those_of_the_enum() {
        for (number, known) in KNOWN.iter().enumerate() {
            assert_eq!(known.header as usize, number);
        }
    }

    proptest! {
        #[test]
        fn anything_else_is_other(name in prop::collection::vec(any::<u8>(), 0..40)) {
            let expected = Header::KNOWN.iter().copied().find(|h| h.name().as_bytes().eq_ignore_ascii_case(&name));
            prop_assert_eq!(Header::recognise(&name), expected.unwrap_or(Header::Other));
        }
    }
}
