//! Files of users and passwords, as Apache's htpasswd writes them: the lines, and the kinds of hashes.

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, SHA1_OUTPUT_LEN, digest};

use super::{decode_base64, des_crypt, md5_crypt};

/// The longest salt of MD5-crypt.
const MD5_SALT: usize = 8;

/// A hash of a kind that is not known, or a malformed one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unknown;

/// The password of a user in the text of a file: that of the first line with this name.
pub fn find<'a>(text: &'a [u8], user: &[u8]) -> Option<&'a [u8]> {
    text.split(|byte| *byte == b'\n').find_map(|line| {
        if matches!(line.first(), None | Some(b'#' | b'\r')) {
            return None;
        }
        let password = line.strip_prefix(user)?.strip_prefix(b":")?;
        password.split(|byte| matches!(byte, b'\r' | b':')).next()
    })
}

/// Whether verifying a password by this hash takes long.
pub fn is_slow(hash: &[u8]) -> bool {
    !hash.starts_with(b"{")
}

/// Whether the hash is that of the password.
///
/// # Errors
/// It is of a kind that is not known, or malformed.
pub fn verify(hash: &[u8], password: &[u8]) -> Result<bool, Unknown> {
    if let Some(plain) = hash.strip_prefix(b"{PLAIN}") {
        return Ok(is_same(plain, password));
    }
    if let Some(encoded) = hash.strip_prefix(b"{SHA}") {
        return Ok(decode_base64(encoded).is_some_and(|sum| is_same(&sum, &sha1(&[password]))));
    }
    if let Some(encoded) = hash.strip_prefix(b"{SSHA}") {
        let decoded = decode_base64(encoded).unwrap_or_default();
        let Some((sum, salt)) = decoded.split_at_checked(SHA1_OUTPUT_LEN) else { return Ok(false) };
        return Ok(is_same(sum, &sha1(&[password, salt])));
    }
    for magic in [&b"$apr1$"[..], b"$1$"] {
        if let Some(rest) = hash.strip_prefix(magic) {
            let end = rest.iter().position(|byte| *byte == b'$').unwrap_or(rest.len());
            let (salt, sum) = (&rest[..end.min(MD5_SALT)], rest.get(end + 1..).unwrap_or_default());
            return Ok(is_same(sum, &md5_crypt::hash(password, magic, salt)));
        }
    }
    let text = std::str::from_utf8(hash).map_err(|_| Unknown)?;
    if text.starts_with("$5$") || text.starts_with("$6$") {
        use sha_crypt::PasswordVerifier as _;
        return match sha_crypt::ShaCrypt::default().verify_password(password, text) {
            Ok(()) => Ok(true),
            Err(sha_crypt::password_hash::Error::PasswordInvalid) => Ok(false),
            Err(_) => Err(Unknown),
        };
    }
    if text.starts_with("$2") {
        return bcrypt::verify(password, text).map_err(|_| Unknown);
    }
    if let ([first, second, sum @ ..], des_crypt::LENGTH) = (hash, hash.len()) {
        let expected = des_crypt::hash(password, [*first, *second]).ok_or(Unknown)?;
        return Ok(is_same(sum, &expected));
    }
    Err(Unknown)
}

fn sha1(pieces: &[&[u8]]) -> [u8; SHA1_OUTPUT_LEN] {
    let sum = digest(&SHA1_FOR_LEGACY_USE_ONLY, &pieces.concat());
    sum.as_ref().try_into().unwrap_or_default()
}

/// Compares in a time that does not tell where they differ.
fn is_same(one: &[u8], other: &[u8]) -> bool {
    aws_lc_rs::constant_time::verify_slices_are_equal(one, other).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_as_nginx_reads_them() {
        let text = b"# comment:x\n\r\nab:1\na:2:comment\nb:3\r\n#c:4\nd:5";
        let find = |user: &[u8]| find(text, user).map(|hash| String::from_utf8_lossy(hash).into_owned());
        assert_eq!(find(b"a").as_deref(), Some("2"));
        assert_eq!(find(b"ab").as_deref(), Some("1"));
        assert_eq!(find(b"b").as_deref(), Some("3"));
        assert_eq!(find(b"d").as_deref(), Some("5"));
        assert_eq!((find(b"#c"), find(b"# comment"), find(b"e")), (None, None, None));
    }

    /// Made by htpasswd, mkpasswd and openssl.
    #[test]
    fn every_kind_knows_its_password() {
        for hash in KINDS {
            assert_eq!(verify(hash.as_bytes(), b"secret"), Ok(true), "{hash}");
            assert_eq!(verify(hash.as_bytes(), b"Secret"), Ok(false), "{hash}");
            assert_eq!(verify(hash.as_bytes(), b""), Ok(false), "{hash}");
        }
        for unknown in ["", "secret", "-hirteen-char", "$9$x$y", "$2y$05$short", "$6$"] {
            assert_eq!(verify(unknown.as_bytes(), b"secret"), Err(Unknown), "{unknown}");
        }
        assert_eq!(verify(b"{PLAIN}", b""), Ok(true));
        assert_eq!(verify(b"{SHA}", b""), Ok(false));
        assert_eq!(verify(b"{SSHA}", b""), Ok(false));
        assert_eq!(verify(b"$apr1$", b"secret"), Ok(false));
    }

    proptest::proptest! {
        #[test]
        fn nothing_panics(text: Vec<u8>, user: Vec<u8>, password: Vec<u8>) {
            if let Some(hash) = find(&text, &user) {
                assert!(!hash.iter().any(|byte| matches!(byte, b'\n' | b'\r' | b':')));
            }
            for magic in ["", "$1$", "$apr1$", "{SHA}", "{SSHA}", "$2y$04$", "$5$rounds=1000$", "$6$rounds=1000$"] {
                let _ = verify(&[magic.as_bytes(), &text].concat(), &password);
            }
            assert_eq!(verify(&[b"{PLAIN}", &password[..]].concat(), &password), Ok(true));
        }
    }

    const KINDS: &[&str] = &[
        "{PLAIN}secret",
        "abNANd1rDfiNc",
        "Zn7vxvXhn8lg6",
        "$apr1$Cqh7j6qQ$BrB4Dejejx8.tlh17nBIh.",
        "{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=",
        "$2y$05$GVPb2wm/GhtZV65OdLKE6.L4SegjQgImcfDLXOZHAiFrvbhFeXbV6",
        "$1$saltsalt$9xy1btjgzLYfb7hivXtC//",
        "$apr1$s$UoSp2veMyXxx3bp9uljYO/",
        "$5$saltsalt$0IyaXrmV7.sGNS6tirgqHLqX/G.FBvgkYA.lpPdS5sA",
        "$6$saltstring$AIsRs/Ee56G/tC8MEHhvReZTfx8u3rXXMl6eYrjCG9ibix19DxoMBLogdTET5Ukw9Sf7eZTITsuk0Ry5qulYz.",
        "$6$rounds=1000$saltsalt$LAV5VE5Y7w1d73x1mFNspYWUpazfmwv2SoepNXNKJ/otop/Zok96Hr8Q13LEv0DRY/x8v0/crpIjl8NJSAqXV/",
        "$2y$04$abcdefghijklmnopqrstuu2r9OfJnfCsdneAXAGHnS4UpFFP8WIrW",
        "{SSHA}D4kSuvPIF4rZzl+dW9Km/1788fBwZXBwZXI=",
    ];
}
