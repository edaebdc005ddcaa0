//! Classes of bytes, and the few small grammars that several parts share.

/// A byte of a token (RFC 9110, 5.6.2).
pub const TOKEN: u8 = 1;
/// A byte of a field name that NGINX takes as valid whatever its settings: letters, digits, hyphen.
pub const PLAIN_NAME: u8 = 2;
/// A byte that may stand in a field value: no control byte but the tab.
pub const VALUE: u8 = 4;
/// A byte that may stand in a request target: anything but controls and the space.
pub const TARGET: u8 = 8;
/// A byte of a registered name (RFC 3986, 3.2.2) in which there is nothing to see to: no capital, no `.`, no `%`.
pub const PLAIN_HOST: u8 = 16;
/// A byte of a method, as NGINX reads it: capitals, `-` and `_`.
pub const METHOD: u8 = 32;
/// A byte at which something happens in a path: `/ ? # %`, and what may not stand in a target.
pub const PATH_STOP: u8 = 64;

/// The classes of each byte.
pub static CLASS: [u8; 256] = table();

const fn table() -> [u8; 256] {
    let mut table = [0; 256];
    let mut i = 0;
    while i < 256 {
        let b = i as u8;
        let alphanumeric = b.is_ascii_alphanumeric();
        if alphanumeric || among(b, b"!#$%&'*+-.^_`|~") {
            table[i] |= TOKEN;
        }
        if alphanumeric || b == b'-' {
            table[i] |= PLAIN_NAME;
        }
        if b == b'\t' || (b >= b' ' && b != 0x7f) {
            table[i] |= VALUE;
        }
        if b > b' ' && b != 0x7f {
            table[i] |= TARGET;
        } else {
            table[i] |= PATH_STOP;
        }
        if b.is_ascii_lowercase() || b.is_ascii_digit() || among(b, b"-_~!$&'()*+,;=") {
            table[i] |= PLAIN_HOST;
        }
        if b.is_ascii_uppercase() || b == b'-' || b == b'_' {
            table[i] |= METHOD;
        }
        if among(b, b"/?#%") {
            table[i] |= PATH_STOP;
        }
        i += 1;
    }
    table
}

const fn among(b: u8, set: &[u8]) -> bool {
    let mut i = 0;
    while i < set.len() {
        if set[i] == b {
            return true;
        }
        i += 1;
    }
    false
}

/// Whether a byte is of this class.
#[inline]
pub fn is(b: u8, class: u8) -> bool {
    CLASS[b as usize] & class != 0
}

/// Whether all of them are of this class.
#[inline]
pub fn all(bytes: &[u8], class: u8) -> bool {
    classes(bytes) & class != 0
}

/// The classes that these bytes have in common; all of them if there are no bytes.
#[inline]
pub fn classes(bytes: &[u8]) -> u8 {
    bytes.iter().fold(u8::MAX, |acc, &b| acc & CLASS[b as usize])
}

/// Whether these bytes are a token (RFC 9110, 5.6.2): not empty, no separators, no controls.
pub fn is_token(bytes: &[u8]) -> bool {
    !bytes.is_empty() && all(bytes, TOKEN)
}

/// The members of a comma-separated list without the white space around them; empty members are left out
/// (RFC 9110, 5.6.1).
pub fn list(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|&b| b == b',').map(trim).filter(|member| !member.is_empty())
}

/// Without spaces and tabs at both ends.
#[inline]
pub fn trim(mut bytes: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = bytes {
        bytes = rest;
    }
    while let [rest @ .., b' ' | b'\t'] = bytes {
        bytes = rest;
    }
    bytes
}

/// A decimal number of nothing but digits: no sign, no space, no list. `None` if it is anything else, or above
/// `i64::MAX`, which no file or body can reach.
#[inline]
pub fn decimal(bytes: &[u8]) -> Option<u64> {
    if bytes.is_empty() {
        return None;
    }
    // So many digits cannot overflow.
    let (first, rest) = bytes.split_at(bytes.len().min(18));
    let mut value: u64 = 0;
    for &b in first {
        value = value * 10 + digit(b)?;
    }
    for &b in rest {
        value = value.checked_mul(10)?.checked_add(digit(b)?)?;
    }
    (value <= i64::MAX as u64).then_some(value)
}

#[inline]
fn digit(b: u8) -> Option<u64> {
    let digit = b.wrapping_sub(b'0');
    (digit <= 9).then_some(u64::from(digit))
}

/// The value of a hexadecimal digit, of either case.
#[inline]
pub fn hex_digit(b: u8) -> Option<u8> {
    match b {
        b'0'..=b'9' => Some(b - b'0'),
        b'a'..=b'f' => Some(b - b'a' + 10),
        b'A'..=b'F' => Some(b - b'A' + 10),
        _ => None,
    }
}
