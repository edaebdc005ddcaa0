//! Passwords of clients: how a request gives one, and whether it is that of a file.
//!
//! Most kinds of hashes are slow on purpose. They are computed by threads of their own, which the workers share, so that no
//! other connection waits. A worker remembers the passwords that were right.

mod des_crypt;
pub mod htpasswd;
mod md5_crypt;
mod verifier;

use balanza_message::{Header, Method};

pub use self::verifier::{Unverified, verify};
use crate::exchange::Exchange;

/// A user's name and password.
pub struct Credentials {
    /// The name; not empty.
    pub user: Vec<u8>,
    /// The password, up to a NUL.
    pub password: Vec<u8>,
}

/// What the request's Authorization field says, if it is of the Basic scheme; with CONNECT it is Proxy-Authorization.
pub fn credentials(x: &Exchange) -> Option<Credentials> {
    let is_proxy = x.method() == Method::Connect;
    let value = x.request_field(if is_proxy { Header::ProxyAuthorization } else { Header::Authorization })?;
    let (scheme, encoded) = value.split_at_checked(6)?;
    if !scheme.eq_ignore_ascii_case(b"basic ") {
        return None;
    }
    let mut user = decode_base64(encoded.trim_ascii())?;
    let colon = user.iter().position(|byte| *byte == b':').filter(|colon| *colon > 0)?;
    let mut password = user.split_off(colon + 1);
    user.truncate(colon);
    if let Some(end) = password.iter().position(|byte| *byte == 0) {
        password.truncate(end);
    }
    Some(Credentials { user, password })
}

pub(crate) fn decode_base64(text: &[u8]) -> Option<Vec<u8>> {
    use base64::engine::{DecodePaddingMode, Engine, GeneralPurpose, GeneralPurposeConfig};
    let lax = GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true);
    GeneralPurpose::new(&base64::alphabet::STANDARD, lax).decode(text).ok()
}
