//! Eight bytes at a time: questions about each byte of a little-endian word, answered by bit 7 of the byte.
//!
//! Answers are cheap where they need not be exact: of [`equal`] only the lowest yes is right, and [`stops`] may see one too
//! early behind a byte 0xff, never too late.

use std::num::NonZeroU64;

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGH: u64 = 0x8080_8080_8080_8080;

/// The bytes with which `rest`, the end of `buf`, begins, and what follows them. Those past the end are zero.
#[inline(always)]
pub(crate) fn word<'a>(buf: &[u8], rest: &'a [u8]) -> (u64, &'a [u8]) {
    match rest.split_first_chunk() {
        Some((chunk, after)) => (u64::from_le_bytes(*chunk), after),
        None => (last_word(buf, rest.len()), &[]),
    }
}

/// The last `left` bytes of a buffer, fewer than eight.
#[inline(always)]
fn last_word(buf: &[u8], left: usize) -> u64 {
    match buf.last_chunk() {
        Some(chunk) if left > 0 => u64::from_le_bytes(*chunk) >> (64 - 8 * left as u32),
        // No whole head is shorter than a word: what the zeros say about it is decided elsewhere.
        _ => 0,
    }
}

/// The index of the lowest byte for which the answer was yes.
#[inline(always)]
pub(crate) fn first(answers: u64) -> Option<usize> {
    NonZeroU64::new(answers).map(|answers| answers.trailing_zeros() as usize / 8)
}

/// The bytes of a word before the lowest answer; all of them if there is none.
#[inline(always)]
pub(crate) const fn before(word: u64, answers: u64) -> u64 {
    let lowest = answers & answers.wrapping_neg();
    word & (lowest >> 7).wrapping_sub(1)
}

/// The bytes that are `b`; only the lowest yes is exact.
#[inline(always)]
pub(crate) const fn equal(word: u64, b: u8) -> u64 {
    let zero = word ^ (ONES * b as u64);
    zero.wrapping_sub(ONES) & !zero & HIGH
}

/// The bytes below `least`, and DEL. It may be yes for others too, but none before a byte 0xff.
#[inline(always)]
pub(crate) const fn stops(word: u64, least: u8) -> u64 {
    // One borrows into bit 7 for what is below, the other carries into it for DEL.
    (word.wrapping_sub(ONES * least as u64) | word.wrapping_add(ONES)) & !word & HIGH
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What is true of the bytes, as exact answers.
    fn truth(bytes: [u8; 8], question: impl Fn(u8) -> bool) -> u64 {
        u64::from_le_bytes(bytes.map(|b| if question(b) { 0x80 } else { 0 }))
    }

    fn check(bytes: [u8; 8], b: u8) {
        let word = u64::from_le_bytes(bytes);
        assert_eq!(first(equal(word, b)), bytes.iter().position(|&x| x == b));
        for least in [b' ', b'!'] {
            let exact = truth(bytes, |x| x < least || x == 0x7f);
            let answers = stops(word, least);
            assert_eq!(answers & exact, exact);
            if !bytes.contains(&0xff) {
                assert_eq!(first(answers), first(exact));
            }
        }
        let kept = bytes.iter().position(|&x| x == b).unwrap_or(8);
        assert_eq!(before(word, equal(word, b)), word & ((1u128 << (8 * kept)) - 1) as u64);
    }

    #[test]
    fn every_byte_at_every_place() {
        for b in 0..=255u8 {
            for at in 0..8 {
                let mut bytes = *b"abc.e01-";
                bytes[at] = b;
                check(bytes, b);
            }
        }
    }

    proptest! {
        #[test]
        fn any_word(bytes: [u8; 8], b: u8) {
            check(bytes, b);
        }

        #[test]
        fn words_are_padded(buf in prop::collection::vec(any::<u8>(), 8..30), at in any::<prop::sample::Index>()) {
            let at = at.index(buf.len() + 1);
            let mut padded = buf.clone();
            padded.resize(40, 0);
            let expected = u64::from_le_bytes(padded[at..at + 8].try_into().unwrap());
            prop_assert_eq!(word(&buf, &buf[at..]), (expected, &buf[(at + 8).min(buf.len())..]));
        }
    }
}
