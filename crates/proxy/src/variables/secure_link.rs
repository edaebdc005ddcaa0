//! `$secure_link`: whether a link has a valid checksum.

use std::sync::Arc;

use balanza_net::clock;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, Engine, GeneralPurpose, GeneralPurposeConfig};

use super::render;
use crate::exchange::Exchange;
use crate::undecided::Undecided;
use crate::values::found;

/// Appends the value; false when the link is not valid.
///
/// # Errors
/// A regular expression is undecided.
pub fn value(x: &mut Exchange, out: &mut Vec<u8>) -> Result<bool, Undecided> {
    let location = Arc::clone(x.location());
    let settings = &location.settings.client.secure_link;
    if let Some(secret) = &settings.secret {
        return Ok(found(by_secret(x.text(x.request.origin), secret), out));
    }
    let (Some(link), Some(md5)) = (&settings.link, &settings.md5) else { return Ok(false) };
    let mut text = Vec::new();
    render(link, x, &mut text)?;
    let mut sum = &text[..];
    let mut ends = None;
    if let Some(comma) = text.iter().position(|byte| *byte == b',') {
        let time = &text[comma + 1..];
        let Some(seconds) = balanza_message::decimal(time).filter(|seconds| *seconds > 0) else { return Ok(false) };
        sum = &text[..comma];
        ends = Some(seconds);
        x.values.link_expires = Some(time.to_vec());
    }
    let Some(sum) = decode(sum) else { return Ok(false) };
    let mut source = Vec::new();
    render(md5, x, &mut source)?;
    if md5::compute(&source).0 != sum {
        return Ok(false);
    }
    let over = ends.is_some_and(|ends| ends < clock::wall().as_secs());
    Ok(found(Some(if over { b"0" } else { b"1" }), out))
}

/// A checksum in base64url, with padding or without.
fn decode(text: &[u8]) -> Option<[u8; 16]> {
    let config = GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::RequireNone)
        .with_decode_allow_trailing_bits(true);
    if text.len() > 24 {
        return None;
    }
    // NGINX reads up to the first "=".
    let text = text.split(|byte| *byte == b'=').next().unwrap_or_default();
    GeneralPurpose::new(&alphabet::URL_SAFE, config).decode(text).ok()?.try_into().ok()
}

/// The link in "/prefix/checksum/link", if its checksum is right.
fn by_secret<'u>(uri: &'u [u8], secret: &[u8]) -> Option<&'u [u8]> {
    let rest = uri.get(1..)?;
    let slash = rest.iter().position(|byte| *byte == b'/')?;
    let rest = &rest[slash + 1..];
    let slash = rest.iter().position(|byte| *byte == b'/')?;
    let (sum, link) = (&rest[..slash], &rest[slash + 1..]);
    let wanted = format!("{:x}", md5::compute([link, secret].concat()));
    (!link.is_empty() && sum.eq_ignore_ascii_case(wanted.as_bytes())).then_some(link)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_with_a_secret() {
        let sum = format!("{:x}", md5::compute(b"linksecret"));
        let uri = format!("/p/{sum}/link");
        assert_eq!(by_secret(uri.as_bytes(), b"secret"), Some(&b"link"[..]));
        assert_eq!(by_secret(format!("/p/{}/link", sum.to_uppercase()).as_bytes(), b"secret"), Some(&b"link"[..]));
        assert_eq!(by_secret(uri.as_bytes(), b"other"), None);
        for wrong in ["", "/", "/p/", "/p/x/link", &format!("/p/{sum}/"), &format!("/{sum}/link")] {
            assert_eq!(by_secret(wrong.as_bytes(), b"secret"), None, "{wrong}");
        }
    }

    #[test]
    fn checksums_are_base64url() {
        let sum = [0xfb; 16];
        assert_eq!(decode(b"-_v7-_v7-_v7-_v7-_v7-w"), Some(sum));
        assert_eq!(decode(b"-_v7-_v7-_v7-_v7-_v7-w=="), Some(sum));
        for wrong in [&b""[..], b"+/v7-_v7-_v7-_v7-_v7-w", b"-_v7", b"-_v7-_v7-_v7-_v7-_v7-w==="] {
            assert_eq!(decode(wrong), None);
        }
    }
}
