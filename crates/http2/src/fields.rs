//! Fields on their way out, in the form of HTTP/2.

use balanza_message::{Fields, Header};
use http::header::{CONTENT_LENGTH, HeaderName, HeaderValue};
use http::{HeaderMap, Response, StatusCode};

/// Fields of a connection of HTTP/1, which have no meaning here (RFC 9113, 8.2.2).
const OF_A_CONNECTION: u64 = Header::Connection.bit()
    | Header::KeepAlive.bit()
    | Header::ProxyConnection.bit()
    | Header::TransferEncoding.bit()
    | Header::Upgrade.bit();

/// A head. A field that HTTP/2 does not know, or cannot carry, is left out.
pub(crate) fn head(status: u16, fields: &Fields, length: Option<u64>) -> Response<()> {
    let mut response = Response::new(());
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let map = response.headers_mut();
    // A WebSocket of HTTP/2 is agreed on without it (RFC 8441, 5).
    let left_out = OF_A_CONNECTION | Header::SecWebsocketAccept.bit();
    fill(map, fields, usize::from(length.is_some()), left_out);
    if let Some(length) = length {
        map.insert(CONTENT_LENGTH, HeaderValue::from(length));
    }
    response
}

/// The fields of a request; its Host is what the pseudo-field says.
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
        let header = Header::recognise(name);
        // TE may say one thing only (RFC 9113, 8.2.2).
        if header.is_in(left_out) || header == Header::Te && !value.eq_ignore_ascii_case(b"trailers") {
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
        let head = head(404, &fields, Some(7));
        assert_eq!(head.status(), 404);
        let pairs: Vec<_> = head.headers().iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
        let expected: [(&str, &[u8]); 4] =
            [("server", b"balanza"), ("set-cookie", b"a=1"), ("set-cookie", b"b=2"), ("content-length", b"7")];
        assert_eq!(pairs, expected);
    }
}
