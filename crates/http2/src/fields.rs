//! Header fields and trailers in the form of HTTP/2.

use balanza_message::admission::NO_TRAILER;
use balanza_message::{Fields, Header};
use http::HeaderMap;
use http::header::{CONTENT_LENGTH, HeaderName, HeaderValue};

/// Connection-specific fields of HTTP/1, which HTTP/2 forbids (RFC 9113, 8.2.2).
pub(crate) const OF_A_CONNECTION: u64 = Header::Connection.bit()
    | Header::KeepAlive.bit()
    | Header::ProxyConnection.bit()
    | Header::TransferEncoding.bit()
    | Header::Upgrade.bit();

/// Trailers that are not passed on, among them fields that control framing or routing.
pub(crate) const NOT_IN_TRAILERS: u64 =
    NO_TRAILER | Header::TransferEncoding.bit() | Header::ContentLength.bit() | Header::Host.bit();

/// Whether a field is not sent: one of `left_out`, or TE with another value than "trailers", the only one that HTTP/2 allows
/// (RFC 9113, 8.2.2).
pub(crate) fn is_left_out(header: Header, value: &[u8], left_out: u64) -> bool {
    header.is_in(left_out) || header == Header::Te && !value.eq_ignore_ascii_case(b"trailers")
}

/// The fields of a request. Host is left out, because `:authority` carries it.
pub(crate) fn of_request(fields: &Fields, length: Option<u64>) -> HeaderMap {
    let mut map = HeaderMap::new();
    let left_out = OF_A_CONNECTION | Header::Host.bit() | Header::ContentLength.bit();
    fill(&mut map, fields, usize::from(length.is_some()), left_out);
    if let Some(length) = length {
        map.insert(CONTENT_LENGTH, HeaderValue::from(length));
    }
    map
}

/// The trailers.
pub(crate) fn trailers(fields: &Fields) -> HeaderMap {
    let mut map = HeaderMap::new();
    fill(&mut map, fields, 0, OF_A_CONNECTION);
    map
}

fn fill(map: &mut HeaderMap, fields: &Fields, more: usize, left_out: u64) {
    map.reserve(fields.len() + more);
    for (name, value) in fields.iter() {
        if is_left_out(Header::recognise(name), value, left_out) {
            continue;
        }
        if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name), HeaderValue::from_bytes(value)) {
            map.append(name, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_a_connection_stay_behind() {
        let mut fields = Fields::default();
        fields.push(b"Server", b"balanza");
        fields.push(b"Connection", b"close");
        fields.push(b"Set-Cookie", b"a=1");
        fields.push(b"Transfer-Encoding", b"chunked");
        fields.push(b"Set-Cookie", b"b=2");
        fields.push(b"bad name", b"x");
        let map = of_request(&fields, Some(7));
        let pairs: Vec<_> = map.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
        let expected: [(&str, &[u8]); 4] =
            [("server", b"balanza"), ("set-cookie", b"a=1"), ("set-cookie", b"b=2"), ("content-length", b"7")];
        assert_eq!(pairs, expected);
    }
}
