//! Encodes fields into header blocks, without a dynamic table.

use balanza_message::{Header, write_decimal};

use super::huffman;

/// Appends a number, which begins in the low bits of `first` (RFC 7541, 5.1).
fn integer(out: &mut Vec<u8>, first: u8, bits: u32, mut value: usize) {
    let mask = (1 << bits) - 1;
    if value < mask {
        out.push(first | value as u8);
        return;
    }
    out.push(first | mask as u8);
    value -= mask;
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a string, Huffman-coded if that is shorter.
fn string(out: &mut Vec<u8>, text: &[u8]) {
    let code = huffman::encoded_length(text);
    if code < text.len() {
        integer(out, 0x80, 7, code);
        huffman::encode(text.iter().copied(), out);
    } else {
        integer(out, 0, 7, text.len());
        out.extend_from_slice(text);
    }
}

/// Sets the size of the dynamic table to 0. Required once after the peer has announced its limit.
pub fn size_update(out: &mut Vec<u8>) {
    out.push(0x20);
}

/// Appends `:status`.
pub fn status(out: &mut Vec<u8>, status: u16) {
    let known = match status {
        200 => 8,
        204 => 9,
        206 => 10,
        304 => 11,
        400 => 12,
        404 => 13,
        500 => 14,
        _ => {
            out.push(8);
            string(out, write_decimal(&mut [0; 20], status.into()));
            return;
        }
    };
    out.push(0x80 | known);
}

/// Appends a field, with its name in lower case.
pub fn field(out: &mut Vec<u8>, header: Header, name: &[u8], value: &[u8]) {
    match index(header) {
        0 => {
            out.push(0);
            lower_case(out, name);
        }
        index => integer(out, 0, 4, index),
    }
    string(out, value);
}

/// Appends a name in lower case.
fn lower_case(out: &mut Vec<u8>, name: &[u8]) {
    let mut lower = [0; 64];
    if let Some(lower) = lower.get_mut(..name.len()) {
        lower.copy_from_slice(name);
        lower.make_ascii_lowercase();
        string(out, lower);
    } else {
        string(out, &name.to_ascii_lowercase());
    }
}

/// Appends a field with a numeric value.
pub fn number(out: &mut Vec<u8>, header: Header, value: u64) {
    field(out, header, header.name().as_bytes(), write_decimal(&mut [0; 20], value));
}

/// The index of the name in the static table; 0 if it is not there.
fn index(header: Header) -> usize {
    INDEXES[header as usize].into()
}

static INDEXES: [u8; 64] = indexes();

const fn indexes() -> [u8; 64] {
    let mut indexes = [0; 64];
    let mut known = 0;
    while known < Header::KNOWN.len() {
        let name = Header::KNOWN[known].name().as_bytes();
        let mut index = 0;
        while index < super::table::STATIC.len() {
            if equal(super::table::STATIC[index].0, name) {
                indexes[Header::KNOWN[known] as usize] = index as u8 + 1;
                break;
            }
            index += 1;
        }
        known += 1;
    }
    indexes
}

const fn equal(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let mut i = 0;
    while i < a.len() {
        if a[i] != b[i] {
            return false;
        }
        i += 1;
    }
    true
}
