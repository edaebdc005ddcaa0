//! The oldest crypt(3): DES (FIPS 46-3), 25 times, on zeros, with the password as key. The salt swaps bits of the expansion.
//!
//! Eight characters count. It is weak, and files of old systems have it.

const ALPHABET: &[u8; 64] = b"./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
/// Characters of a hash, with its salt.
pub const LENGTH: usize = 13;

// The tables of the standard: bits are counted from 1, the most significant first.
const INITIAL: [u8; 64] = [
    58, 50, 42, 34, 26, 18, 10, 2, 60, 52, 44, 36, 28, 20, 12, 4, 62, 54, 46, 38, 30, 22, 14, 6, 64, 56, 48, 40, 32,
    24, 16, 8, 57, 49, 41, 33, 25, 17, 9, 1, 59, 51, 43, 35, 27, 19, 11, 3, 61, 53, 45, 37, 29, 21, 13, 5, 63, 55, 47,
    39, 31, 23, 15, 7,
];
const PERMUTATION: [u8; 32] = [
    16, 7, 20, 21, 29, 12, 28, 17, 1, 15, 23, 26, 5, 18, 31, 10, 2, 8, 24, 14, 32, 27, 3, 9, 19, 13, 30, 6, 22, 11, 4,
    25,
];
const CHOICE_1: [u8; 56] = [
    57, 49, 41, 33, 25, 17, 9, 1, 58, 50, 42, 34, 26, 18, 10, 2, 59, 51, 43, 35, 27, 19, 11, 3, 60, 52, 44, 36, 63, 55,
    47, 39, 31, 23, 15, 7, 62, 54, 46, 38, 30, 22, 14, 6, 61, 53, 45, 37, 29, 21, 13, 5, 28, 20, 12, 4,
];
const CHOICE_2: [u8; 48] = [
    14, 17, 11, 24, 1, 5, 3, 28, 15, 6, 21, 10, 23, 19, 12, 4, 26, 8, 16, 7, 27, 20, 13, 2, 41, 52, 31, 37, 47, 55, 30,
    40, 51, 45, 33, 48, 44, 49, 39, 56, 34, 53, 46, 42, 50, 36, 29, 32,
];
const SHIFTS: [u32; 16] = [1, 1, 2, 2, 2, 2, 2, 2, 1, 2, 2, 2, 2, 2, 2, 1];
const BOXES: [[u8; 64]; 8] = [
    [
        14, 4, 13, 1, 2, 15, 11, 8, 3, 10, 6, 12, 5, 9, 0, 7, 0, 15, 7, 4, 14, 2, 13, 1, 10, 6, 12, 11, 9, 5, 3, 8, 4,
        1, 14, 8, 13, 6, 2, 11, 15, 12, 9, 7, 3, 10, 5, 0, 15, 12, 8, 2, 4, 9, 1, 7, 5, 11, 3, 14, 10, 0, 6, 13,
    ],
    [
        15, 1, 8, 14, 6, 11, 3, 4, 9, 7, 2, 13, 12, 0, 5, 10, 3, 13, 4, 7, 15, 2, 8, 14, 12, 0, 1, 10, 6, 9, 11, 5, 0,
        14, 7, 11, 10, 4, 13, 1, 5, 8, 12, 6, 9, 3, 2, 15, 13, 8, 10, 1, 3, 15, 4, 2, 11, 6, 7, 12, 0, 5, 14, 9,
    ],
    [
        10, 0, 9, 14, 6, 3, 15, 5, 1, 13, 12, 7, 11, 4, 2, 8, 13, 7, 0, 9, 3, 4, 6, 10, 2, 8, 5, 14, 12, 11, 15, 1, 13,
        6, 4, 9, 8, 15, 3, 0, 11, 1, 2, 12, 5, 10, 14, 7, 1, 10, 13, 0, 6, 9, 8, 7, 4, 15, 14, 3, 11, 5, 2, 12,
    ],
    [
        7, 13, 14, 3, 0, 6, 9, 10, 1, 2, 8, 5, 11, 12, 4, 15, 13, 8, 11, 5, 6, 15, 0, 3, 4, 7, 2, 12, 1, 10, 14, 9, 10,
        6, 9, 0, 12, 11, 7, 13, 15, 1, 3, 14, 5, 2, 8, 4, 3, 15, 0, 6, 10, 1, 13, 8, 9, 4, 5, 11, 12, 7, 2, 14,
    ],
    [
        2, 12, 4, 1, 7, 10, 11, 6, 8, 5, 3, 15, 13, 0, 14, 9, 14, 11, 2, 12, 4, 7, 13, 1, 5, 0, 15, 10, 3, 9, 8, 6, 4,
        2, 1, 11, 10, 13, 7, 8, 15, 9, 12, 5, 6, 3, 0, 14, 11, 8, 12, 7, 1, 14, 2, 13, 6, 15, 0, 9, 10, 4, 5, 3,
    ],
    [
        12, 1, 10, 15, 9, 2, 6, 8, 0, 13, 3, 4, 14, 7, 5, 11, 10, 15, 4, 2, 7, 12, 9, 5, 6, 1, 13, 14, 0, 11, 3, 8, 9,
        14, 15, 5, 2, 8, 12, 3, 7, 0, 4, 10, 1, 13, 11, 6, 4, 3, 2, 12, 9, 5, 15, 10, 11, 14, 1, 7, 6, 0, 8, 13,
    ],
    [
        4, 11, 2, 14, 15, 0, 8, 13, 3, 12, 9, 7, 5, 10, 6, 1, 13, 0, 11, 7, 4, 9, 1, 10, 14, 3, 5, 12, 2, 15, 8, 6, 1,
        4, 11, 13, 12, 3, 7, 14, 10, 15, 6, 8, 0, 5, 9, 2, 6, 11, 13, 8, 1, 4, 10, 7, 9, 5, 0, 15, 14, 2, 3, 12,
    ],
    [
        13, 2, 8, 4, 6, 15, 11, 1, 10, 9, 3, 14, 5, 0, 12, 7, 1, 15, 13, 8, 10, 3, 7, 4, 12, 5, 6, 11, 0, 14, 9, 2, 7,
        11, 4, 1, 9, 12, 14, 2, 0, 6, 10, 13, 15, 3, 5, 8, 2, 1, 14, 7, 4, 10, 8, 13, 15, 12, 9, 0, 3, 5, 6, 11,
    ],
];

/// The 11 characters behind the salt; none if the salt is malformed.
pub fn hash(password: &[u8], salt: [u8; 2]) -> Option<[u8; LENGTH - 2]> {
    let digit = |byte: u8| ALPHABET.iter().position(|known| *known == byte);
    let salt = digit(salt[0])? | digit(salt[1])? << 6;
    let mut key = [0; 8];
    for (byte, character) in key.iter_mut().zip(password) {
        *byte = character << 1;
    }
    let keys = schedule(u64::from_be_bytes(key));
    let block = (0..25).fold(0, |block, _| encrypt(block, &keys, salt as u64));
    // Six bits a character, the most significant first; two are missing at the end.
    let bits = u128::from(block) << 2;
    let mut text = [0; LENGTH - 2];
    for (index, character) in text.iter_mut().enumerate() {
        *character = ALPHABET[(bits >> (60 - 6 * index) & 63) as usize];
    }
    Some(text)
}

/// Takes the bits that a table names from a value of so many bits.
fn permute(value: u64, width: u32, table: &[u8]) -> u64 {
    table.iter().fold(0, |result, bit| result << 1 | value >> (width - u32::from(*bit)) & 1)
}

/// The keys of the rounds.
fn schedule(key: u64) -> [u64; 16] {
    const HALF: u64 = (1 << 28) - 1;
    let chosen = permute(key, 64, &CHOICE_1);
    let (mut left, mut right) = (chosen >> 28, chosen & HALF);
    SHIFTS.map(|shift| {
        let rotate = |half: u64| (half << shift | half >> (28 - shift)) & HALF;
        (left, right) = (rotate(left), rotate(right));
        permute(left << 28 | right, 56, &CHOICE_2)
    })
}

fn encrypt(block: u64, keys: &[u64; 16], salt: u64) -> u64 {
    let mixed = permute(block, 64, &INITIAL);
    let (mut left, mut right) = (mixed >> 32, mixed & 0xffff_ffff);
    for key in keys {
        (left, right) = (right, left ^ round(right, *key, salt));
    }
    // The halves change places, and the first step is undone.
    let last = right << 32 | left;
    INITIAL
        .iter()
        .enumerate()
        .fold(0, |result, (index, bit)| result | (last >> (63 - index) & 1) << (64 - u64::from(*bit)))
}

fn round(half: u64, key: u64, salt: u64) -> u64 {
    // Six bits for each four, with those beside them.
    let bit = |number: usize| half >> (31 - (number + 31) % 32) & 1;
    let mut expanded = (0..48).fold(0, |result, index| result << 1 | bit(index / 6 * 4 + index % 6));
    for index in 0..12 {
        let (high, low) = (47 - index, 23 - index);
        if salt >> index & 1 == 1 && (expanded >> high ^ expanded >> low) & 1 == 1 {
            expanded ^= 1 << high | 1 << low;
        }
    }
    expanded ^= key;
    let chosen = BOXES.iter().enumerate().fold(0, |result, (index, substitutes)| {
        let six = expanded >> (42 - 6 * index) & 63;
        let (row, column) = (six >> 4 & 2 | six & 1, six >> 1 & 15);
        result << 4 | u64::from(substitutes[(row * 16 + column) as usize])
    });
    permute(chosen, 32, &PERMUTATION)
}
