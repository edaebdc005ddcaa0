//! The Huffman code for strings (RFC 7541, 5.2 and Appendix B).

use super::Invalid;

/// The length in bits of each byte's code. The code is canonical, so the lengths define it.
#[rustfmt::skip]
const LENGTHS: [u8; 256] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
    6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10,
    13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28,
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
];

/// The length of the longest code.
const LONGEST: usize = 30;

/// Codes of at most this length are looked up in one step.
const SHORT: u32 = 9;

/// Tables that are computed from the lengths.
struct Code {
    /// The code of each byte.
    codes: [u32; 256],
    /// The bytes in the order of their codes.
    sorted: [u8; 256],
    /// For each length, the first code of that length and the number of shorter codes.
    first: [(u32, u32); LONGEST + 2],
    /// For each prefix of `SHORT` bits, the length and byte of its code; 0 if the code is longer.
    short: [u16; 1 << SHORT],
}

static CODE: Code = build();

const fn build() -> Code {
    let mut code = Code { codes: [0; 256], sorted: [0; 256], first: [(0, 0); LONGEST + 2], short: [0; 1 << SHORT] };
    let (mut next, mut count, mut length) = (0u32, 0u32, 1);
    while length <= LONGEST {
        code.first[length] = (next, count);
        let mut byte = 0;
        while byte < 256 {
            if LENGTHS[byte] as usize == length {
                code.codes[byte] = next;
                code.sorted[count as usize] = byte as u8;
                if length <= SHORT as usize {
                    let free = SHORT - length as u32;
                    let mut rest = 0;
                    while rest < 1 << free {
                        code.short[((next << free) + rest) as usize] = (length as u16) << 8 | byte as u16;
                        rest += 1;
                    }
                }
                next += 1;
                count += 1;
            }
            byte += 1;
        }
        next <<= 1;
        length += 1;
    }
    code.first[LONGEST + 1] = (next, count);
    code
}

/// Finds the code at the beginning of `bits`. Returns its byte and its length.
#[cold]
fn long(bits: u64) -> Result<(u8, u32), Invalid> {
    let mut length = SHORT as usize + 1;
    while length <= LONGEST {
        let prefix = (bits >> (64 - length)) as u32;
        let (first, shorter) = CODE.first[length];
        let index = shorter + prefix.wrapping_sub(first);
        if prefix >= first && index < CODE.first[length + 1].1 {
            return Ok((CODE.sorted[index as usize], length as u32));
        }
        length += 1;
    }
    // The end-of-string code, which is not allowed in a string.
    Err(Invalid)
}

/// Appends the decoded bytes of `input`.
///
/// # Errors
/// The input ends inside a code, has padding other than the fewest possible ones, or contains the end-of-string code.
pub fn decode(input: &[u8], out: &mut Vec<u8>) -> Result<(), Invalid> {
    out.reserve(input.len() * 8 / 5);
    // Bits that have been read and not decoded, left-aligned.
    let (mut bits, mut count) = (0u64, 0u32);
    let mut rest = input;
    loop {
        if count < 32 {
            if let Some((word, tail)) = rest.split_first_chunk::<4>() {
                bits |= u64::from(u32::from_be_bytes(*word)) << (32 - count);
                (count, rest) = (count + 32, tail);
            } else {
                while let Some((&byte, tail)) = rest.split_first() {
                    bits |= u64::from(byte) << (56 - count);
                    (count, rest) = (count + 8, tail);
                }
            }
        }
        let entry = CODE.short[(bits >> (64 - SHORT)) as usize];
        let (byte, length) = match entry {
            0 if count == 0 => break,
            0 => long(bits)?,
            entry => (entry as u8, u32::from(entry >> 8)),
        };
        if length > count {
            break;
        }
        out.push(byte);
        bits <<= length;
        count -= length;
    }
    let is_padding = count < 8 && bits >> (64 - 8) == 0xff & !(0xff >> count);
    if is_padding { Ok(()) } else { Err(Invalid) }
}

/// How many bytes the encoded form takes.
pub fn encoded_length(bytes: &[u8]) -> usize {
    let bits: usize = bytes.iter().map(|&byte| LENGTHS[byte as usize] as usize).sum();
    bits.div_ceil(8)
}

/// Appends the encoded form of these bytes.
pub fn encode(bytes: impl Iterator<Item = u8>, out: &mut Vec<u8>) {
    let (mut bits, mut count) = (0u64, 0u32);
    for byte in bytes {
        let length = u32::from(LENGTHS[byte as usize]);
        bits = bits << length | u64::from(CODE.codes[byte as usize]);
        count += length;
        if count >= 32 {
            count -= 32;
            out.extend_from_slice(&((bits >> count) as u32).to_be_bytes());
        }
    }
    // The last byte is padded with ones.
    let free = (8 - count % 8) % 8;
    bits = bits << free | ((1 << free) - 1);
    let whole = (count + free) / 8;
    out.extend_from_slice(&bits.to_be_bytes()[8 - whole as usize..]);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decoded(input: &[u8]) -> Result<Vec<u8>, Invalid> {
        let mut out = Vec::new();
        decode(input, &mut out).map(|()| out)
    }

    fn encoded(bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        encode(bytes.iter().copied(), &mut out);
        assert_eq!(out.len(), encoded_length(bytes));
        out
    }

    #[test]
    fn strings_of_the_standard() {
        let pairs: [(&[u8], &[u8]); 4] = [
            (b"www.example.com", b"\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff"),
            (b"no-cache", b"\xa8\xeb\x10\x64\x9c\xbf"),
            (b"302", b"\x64\x02"),
            (b"", b""),
        ];
        for (plain, code) in pairs {
            assert_eq!(encoded(plain), code);
            assert_eq!(decoded(code).as_deref(), Ok(plain));
        }
    }

    #[test]
    fn what_is_no_code_is_refused() {
        // A whole byte of padding, padding of zeros, eight ones after a code, the end-of-string code, half a code.
        for wrong in [&b"\xff"[..], b"\x00", b"\x07\xff\xff", b"\xff\xff\xff\xff", b"\xff\xff\xff\xfc", b"\xff\xff"] {
            assert_eq!(decoded(wrong), Err(Invalid), "{wrong:x?}");
        }
        assert_eq!(decoded(b"\x07").as_deref(), Ok(&b"0"[..]));
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            prop_assert_eq!(decoded(&encoded(&bytes)), Ok(bytes));
        }

        #[test]
        fn what_is_decoded_is_the_only_code(code in prop::collection::vec(any::<u8>(), 0..40)) {
            if let Ok(bytes) = decoded(&code) {
                prop_assert_eq!(encoded(&bytes), code);
            }
        }
    }
}
