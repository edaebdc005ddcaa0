//! Short texts as little-endian words, to be compared and looked up whatever the case of their letters.

const CASE: u64 = 0x2020_2020_2020_2020;

/// Up to 24 bytes as words, filled up with zeros. Of a longer text only the first 24 count.
#[inline(always)]
pub const fn words(text: &[u8]) -> [u64; 3] {
    match text.len() {
        0..8 => [short(text), 0, 0],
        8..16 => [eight(text, 0), tail(text, 8), 0],
        16..24 => [eight(text, 0), eight(text, 8), tail(text, 16)],
        _ => [eight(text, 0), eight(text, 8), eight(text, 16)],
    }
}

#[inline(always)]
const fn short(text: &[u8]) -> u64 {
    let n = text.len();
    if n >= 4 {
        return four(text, 0) | four(text, n - 4) << (8 * (n - 4));
    }
    let mut word = 0;
    let mut i = 0;
    while i < n {
        word |= (text[i] as u64) << (8 * i);
        i += 1;
    }
    word
}

/// From byte `at`, which is at most the length and at least 8, to the end.
#[inline(always)]
const fn tail(text: &[u8], at: usize) -> u64 {
    let n = text.len() - at;
    if n == 0 { 0 } else { eight(text, text.len() - 8) >> (8 * (8 - n)) }
}

#[inline(always)]
const fn eight(text: &[u8], at: usize) -> u64 {
    let (_, rest) = text.split_at(at);
    match rest.first_chunk() {
        Some(chunk) => u64::from_le_bytes(*chunk),
        None => 0,
    }
}

#[inline(always)]
const fn four(text: &[u8], at: usize) -> u64 {
    let (_, rest) = text.split_at(at);
    match rest.first_chunk() {
        Some(chunk) => u32::from_le_bytes(*chunk) as u64,
        None => 0,
    }
}

/// A text of at most 24 bytes to compare with, whatever the case of its letters.
#[derive(Debug, Clone, Copy)]
pub struct Pattern {
    words: [u64; 3],
    /// The bits that must be equal: all but the case bit of letters.
    exact: [u64; 3],
    len: usize,
}

impl Pattern {
    /// The pattern of a text in lower case.
    pub const fn new(text: &str) -> Pattern {
        let text = text.as_bytes();
        assert!(text.len() <= 24);
        let mut exact = [0xff; 24];
        let mut i = 0;
        while i < text.len() {
            assert!(!text[i].is_ascii_uppercase());
            if text[i].is_ascii_lowercase() {
                exact[i] = 0xdf;
            }
            i += 1;
        }
        Pattern { words: words(text), exact: words(&exact), len: text.len() }
    }

    /// Whether it is the text of these words, as many as its length needs, and this length.
    #[inline(always)]
    pub const fn is<const N: usize>(&self, words: [u64; N], len: usize) -> bool {
        let mut differs = 0;
        let mut i = 0;
        while i < N {
            differs |= (words[i] ^ self.words[i]) & self.exact[i];
            i += 1;
        }
        differs == 0 && len == self.len
    }

    /// Whether it is this text.
    #[inline(always)]
    pub const fn matches(&self, text: &[u8]) -> bool {
        text.len() == self.len && self.is(words(text), text.len())
    }
}

/// A number below `1 << bits` for a text of these two words or more, the same for all cases of its letters.
#[inline(always)]
pub const fn hash(words: [u64; 2], multiplier: u64, bits: u32) -> usize {
    let mixed = (words[0] ^ words[1].rotate_left(24)) | CASE;
    (mixed.wrapping_mul(multiplier) >> (64 - bits)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn words_are_padded(text in prop::collection::vec(any::<u8>(), 0..30)) {
            let mut padded = [0; 24];
            let len = text.len().min(24);
            padded[..len].copy_from_slice(&text[..len]);
            let expected = |at: usize| u64::from_le_bytes(padded[at..at + 8].try_into().unwrap());
            prop_assert_eq!(words(&text), [expected(0), expected(8), expected(16)]);
        }

        #[test]
        fn patterns_match_any_case(text in "[ -@\\[-~]{0,24}", other in "[ -~]{0,24}", upper: u32) {
            let pattern = Pattern::new(&text);
            let mut same = text.clone().into_bytes();
            for (_, b) in same.iter_mut().enumerate().filter(|(i, _)| upper >> i & 1 != 0) {
                b.make_ascii_uppercase();
            }
            prop_assert!(pattern.matches(&same));
            prop_assert_eq!(pattern.matches(other.as_bytes()), other.eq_ignore_ascii_case(&text));
        }
    }
}
