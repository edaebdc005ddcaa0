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
    let mut buf = [0; 20];
    let head = write_chunk_head(&mut buf, value);
    out.extend_from_slice(&head[..head.len() - 2]);
}

/// The line in front of a chunk of `len` bytes: the size in hexadecimal and CRLF. A length of 0 is the last chunk.
#[inline]
pub fn write_chunk_head(out: &mut [u8; 20], mut len: u64) -> &[u8] {
    out[18..].copy_from_slice(b"\r\n");
    let mut at = 18;
    loop {
        at -= 1;
        out[at] = b"0123456789abcdef"[(len & 15) as usize];
        len >>= 4;
        if len == 0 {
            return &out[at..];
        }
    }
}
