//! MD5-crypt, as FreeBSD has defined it (`$1$`) and as Apache writes it (`$apr1$`).

const ALPHABET: &[u8; 64] = b"./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
const ROUNDS: usize = 1000;
/// Which bytes of the digest make four characters, the most significant first. The last byte makes two.
const GROUPS: [[usize; 3]; 5] = [[0, 6, 12], [1, 7, 13], [2, 8, 14], [3, 9, 15], [4, 10, 5]];

/// The 22 characters behind the salt. `magic` is "$1$" or "$apr1$".
pub fn hash(password: &[u8], magic: &[u8], salt: &[u8]) -> [u8; 22] {
    let mut context = md5::Context::new();
    context.consume(password);
    context.consume(magic);
    context.consume(salt);
    let inner = digest(&[password, salt, password]);
    let mut left = password.len();
    while left > 0 {
        context.consume(&inner[..left.min(16)]);
        left = left.saturating_sub(16);
    }
    let mut bits = password.len();
    while bits > 0 {
        // Set bits of the length add a NUL, the others the first character.
        context.consume(if bits & 1 == 1 { &[0][..] } else { &password[..1] });
        bits >>= 1;
    }
    let mut current = context.finalize().0;
    for round in 0..ROUNDS {
        let before = current;
        let (first, last) = if round % 2 == 1 { (password, &before[..]) } else { (&before[..], password) };
        let salt = if round % 3 == 0 { b"" } else { salt };
        let again = if round % 7 == 0 { b"" } else { password };
        current = digest(&[first, salt, again, last]);
    }
    let mut text = [0; 22];
    for (group, characters) in GROUPS.iter().zip(text.chunks_exact_mut(4)) {
        let value = group.iter().fold(0, |value, index| value << 8 | u32::from(current[*index]));
        write(value, characters);
    }
    write(u32::from(current[11]), &mut text[20..]);
    text
}

/// Six bits a character, the least significant first.
fn write(mut value: u32, characters: &mut [u8]) {
    for character in characters {
        *character = ALPHABET[(value & 63) as usize];
        value >>= 6;
    }
}

fn digest(pieces: &[&[u8]]) -> [u8; 16] {
    let mut context = md5::Context::new();
    for piece in pieces {
        context.consume(piece);
    }
    context.finalize().0
}
