//! Numbers as text, without `fmt`.

/// Writes `value` in decimal into `out` and returns the digits.
#[inline]
pub fn write_decimal(out: &mut [u8; 20], mut value: u64) -> &[u8] {
    let mut at = out.len();
    loop {
        at -= 1;
        out[at] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            return &out[at..];
        }
    }
}

/// Appends `value` in decimal.
#[inline]
pub fn push_decimal(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(write_decimal(&mut [0; 20], value));
}

/// Appends `value` in lower-case hexadecimal, without leading zeros.
#[inline]
pub fn push_hex(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(write_hex(&mut [0; 16], value));
}

/// Writes `value` in lower-case hexadecimal into `out` and returns the digits, without leading zeros.
#[inline]
pub fn write_hex(out: &mut [u8; 16], mut value: u64) -> &[u8] {
    let mut at = out.len();
    loop {
        at -= 1;
        out[at] = b"0123456789abcdef"[(value & 15) as usize];
        value >>= 4;
        if value == 0 {
            return &out[at..];
        }
    }
}
