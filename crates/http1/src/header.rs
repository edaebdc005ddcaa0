//! The fields that somebody has to know, recognised once by length and bytes.

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
const SLOTS: usize = 512;

// `Header::bit` needs a bit for each.
const _: () = assert!(COUNT <= 64);

/// A name in three overlapping words, and which of their bits may differ: the case bit of letters.
#[derive(Clone, Copy)]
struct Pattern {
    words: [u64; 3],
    case: [u64; 3],
    len: usize,
}

static PATTERNS: [Pattern; COUNT] = patterns();
static TABLE: [u8; SLOTS] = table();

/// Words that cover a name of up to 24 bytes: the first eight, the last eight, and those in the middle of a longer one.
#[inline(always)]
const fn words(name: &[u8]) -> [u64; 3] {
    let n = name.len();
    if n >= 8 {
        let middle = if n > 16 { eight(name, 8) } else { 0 };
        [eight(name, 0), eight(name, n - 8), middle]
    } else if n >= 4 {
        [four(name, 0) | four(name, n - 4) << 32, 0, 0]
    } else {
        let mut word = 0;
        let mut i = 0;
        while i < n {
            word |= (name[i] as u64) << (8 * i);
            i += 1;
        }
        [word, 0, 0]
    }
}

#[inline(always)]
const fn eight(b: &[u8], i: usize) -> u64 {
    let (_, rest) = b.split_at(i);
    match rest.first_chunk() {
        Some(chunk) => u64::from_le_bytes(*chunk),
        None => 0,
    }
}

#[inline(always)]
const fn four(b: &[u8], i: usize) -> u64 {
    let (_, rest) = b.split_at(i);
    match rest.first_chunk() {
        Some(chunk) => u32::from_le_bytes(*chunk) as u64,
        None => 0,
    }
}

/// The slot of a name in `TABLE`, whatever the case of its letters. The multiplier was searched for: it gives every
/// known name a slot of its own, and the table does not compile if one is added that collides.
#[inline(always)]
const fn slot(words: [u64; 3], len: usize) -> usize {
    const CASE: u64 = 0x2020_2020_2020_2020;
    let mixed = (words[0] | CASE) ^ (words[1] | CASE).rotate_left(23) ^ (len as u64) << 56;
    (mixed.wrapping_mul(MULTIPLIER) >> (64 - 9)) as usize
}

const MULTIPLIER: u64 = 0xe8e2_5d94_0ed9_0475;

const fn patterns() -> [Pattern; COUNT] {
    let mut table = [Pattern { words: [0; 3], case: [0; 3], len: 0 }; COUNT];
    let mut i = 0;
    while i < Header::KNOWN.len() {
        let name = Header::KNOWN[i].name().as_bytes();
        assert!(name.len() <= LONGEST);
        let mut case = [0; LONGEST];
        let mut j = 0;
        while j < name.len() {
            if name[j].is_ascii_lowercase() {
                case[j] = 0x20;
            }
            j += 1;
        }
        let (case, _) = case.split_at(name.len());
        table[i + 1] = Pattern { words: words(name), case: words(case), len: name.len() };
        i += 1;
    }
    table
}

const fn table() -> [u8; SLOTS] {
    let mut table = [0; SLOTS];
    let mut i = 0;
    while i < Header::KNOWN.len() {
        let name = Header::KNOWN[i].name().as_bytes();
        let slot = slot(words(name), name.len());
        assert!(table[slot] == 0, "two names share a slot: search for another multiplier");
        table[slot] = (i + 1) as u8;
        i += 1;
    }
    table
}

static BY_NUMBER: [Header; COUNT] = {
    let mut all = [Header::Other; COUNT];
    let mut i = 0;
    while i < Header::KNOWN.len() {
        all[i + 1] = Header::KNOWN[i];
        i += 1;
    }
    all
};

impl Header {
    /// The field of this name, in any case; exact for any bytes.
    #[inline]
    pub fn recognise(name: &[u8]) -> Header {
        if name.len() > LONGEST {
            return Header::Other;
        }
        let words = words(name);
        let number = TABLE[slot(words, name.len())] as usize;
        let pattern = &PATTERNS[number];
        let differs = (words[0] ^ pattern.words[0]) & !pattern.case[0]
            | (words[1] ^ pattern.words[1]) & !pattern.case[1]
            | (words[2] ^ pattern.words[2]) & !pattern.case[2];
        if differs == 0 && name.len() == pattern.len { BY_NUMBER[number] } else { Header::Other }
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
        for (number, header) in BY_NUMBER.iter().enumerate() {
            assert_eq!(*header as usize, number);
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
