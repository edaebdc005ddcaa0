//! The head of a request, from the form of HTTP/2 to that of every request.

use balanza_message::admission::{ONCE, keeps_name};
use balanza_message::bytes::{METHOD, PLAIN_NAME, TARGET, all, classes};
use balanza_message::{Field, Header, Length, Limits, Method, Request, RequestError, Span, Version, host, target};
use http::header::{CONTENT_LENGTH, COOKIE, HOST, SEC_WEBSOCKET_KEY};
use http::{HeaderMap, request};

/// Makes a request of a head. `ends` tells that no body follows.
///
/// # Errors
/// It is not valid, or larger than allowed. What was read before the fault is in `to`, so that it can be logged.
pub(crate) fn translate(
    head: &request::Parts,
    ends: bool,
    limits: &Limits,
    key: impl FnOnce() -> String,
    to: &mut Request,
) -> Result<(), RequestError> {
    to.clear();
    to.version = Version::Http2;
    take_line(head, limits, to)?;
    take_host(head, to)?;
    take_fields(head, limits, to)?;
    if opens_websocket(head) {
        push(to, Header::Connection, b"Connection", b"Upgrade");
        to.upgrade = Some(push(to, Header::Upgrade, b"Upgrade", b"websocket"));
        push(to, Header::SecWebsocketKey, b"Sec-WebSocket-Key", key().as_bytes());
        // What follows is no body, but what the WebSocket says.
        to.body = Length::None;
        return Ok(());
    }
    to.body = match content_length(&head.headers)? {
        None if ends => Length::None,
        Some(length) => Length::Known(length),
        None => Length::Unknown,
    };
    Ok(())
}

/// Whether it is an extended CONNECT that opens a WebSocket (RFC 8441).
pub(crate) fn opens_websocket(head: &request::Parts) -> bool {
    head.method == http::Method::CONNECT && protocol(head) == Some("websocket")
}

fn protocol(head: &request::Parts) -> Option<&str> {
    head.extensions.get::<h2::ext::Protocol>().map(h2::ext::Protocol::as_str)
}

/// The line that the request would have in HTTP/1: `$request`.
fn take_line(head: &request::Parts, limits: &Limits, to: &mut Request) -> Result<(), RequestError> {
    let method = if opens_websocket(head) { b"GET" } else { head.method.as_str().as_bytes() };
    let path = head.uri.path_and_query().map_or("", |path| path.as_str()).as_bytes();
    to.text.extend_from_slice(method);
    to.text.push(b' ');
    let begin = to.text.len();
    to.text.extend_from_slice(path);
    let (end, rest) = (to.text.len(), b" HTTP/2.0");
    to.text.extend_from_slice(rest);
    to.method = Method::recognise(method);
    to.method_name = Span::new(0, method.len());
    to.line = Span::new(0, to.text.len());
    to.text.extend_from_slice(b"\r\n");
    match to.method {
        Method::Connect if protocol(head).is_some() => {
            return Err(RequestError::new(501, "extended CONNECT with another protocol than \"websocket\""));
        }
        Method::Connect => return Err(RequestError::new(405, "CONNECT method is not allowed")),
        _ => {}
    }
    if !all(method, METHOD) {
        return Err(RequestError::bad("invalid method"));
    }
    if to.text.len() > limits.line {
        return Err(RequestError::new(414, "too long request line"));
    }
    if path.is_empty() || !all(path, TARGET) {
        return Err(RequestError::bad("invalid path"));
    }
    let parts = target::parse(&to.text, Span::new(begin, end), to.method).map_err(RequestError::bad)?;
    if parts.authority.is_some() {
        return Err(RequestError::bad("invalid path"));
    }
    (to.path, to.plain_path, to.query) = (parts.path, parts.plain, parts.query);
    (to.origin, to.empty_path) = (parts.origin, parts.empty_path);
    Ok(())
}

/// `:authority`, which stands for Host; the two may not differ.
fn take_host(head: &request::Parts, to: &mut Request) -> Result<(), RequestError> {
    let mut given = head.headers.get_all(HOST).iter();
    let field = given.next().map(|value| value.as_bytes());
    let authority = head.uri.authority().map(|authority| authority.as_str().as_bytes());
    if given.next().is_some() {
        return Err(RequestError::bad("duplicate header line"));
    }
    let Some(value) = authority.or(field) else {
        return Err(RequestError::bad("client sent neither \":authority\" nor \"Host\" header"));
    };
    if field.is_some_and(|field| !field.eq_ignore_ascii_case(value)) {
        return Err(RequestError::bad("client sent \":authority\" and \"Host\" headers with different values"));
    }
    let value = push(to, Header::Host, b"Host", value);
    let Some(parsed) = host::parse_authority(value.of(&to.text)) else { return Err(RequestError::bad("invalid host")) };
    to.host = Some(Span { start: value.start, end: value.start + parsed.host as u32 });
    to.host_capitals = parsed.capitals;
    Ok(())
}

fn take_fields(head: &request::Parts, limits: &Limits, to: &mut Request) -> Result<(), RequestError> {
    let (fields, opens) = (&head.headers, opens_websocket(head));
    for name in fields.keys().filter(|name| *name != HOST) {
        // It is not used in HTTP/2, and a server of HTTP/1 gets one that is made here.
        if opens && *name == SEC_WEBSOCKET_KEY {
            continue;
        }
        let text = name.as_str().as_bytes();
        if !all(text, PLAIN_NAME) && !keeps_name(text, classes(text), limits)? {
            continue;
        }
        let header = Header::recognise(text);
        let mut values = fields.get_all(name).iter();
        if name == COOKIE {
            // Parts of one field may come as several (RFC 9113, 8.2.3).
            let crumbs: Vec<&[u8]> = values.map(|value| value.as_bytes()).collect();
            admit(to, header, text, &crumbs.join(&b"; "[..]), limits)?;
            continue;
        }
        if header.is_in(ONCE | Header::ContentLength.bit()) && fields.get_all(name).iter().nth(1).is_some() {
            return Err(RequestError::bad("duplicate header line"));
        }
        values.try_for_each(|value| admit(to, header, text, value.as_bytes(), limits))?;
    }
    if to.text.len() > limits.head {
        return Err(RequestError::too_large("too large request header"));
    }
    Ok(())
}

fn admit(to: &mut Request, header: Header, name: &[u8], value: &[u8], limits: &Limits) -> Result<(), RequestError> {
    if let [b' ' | b'\t', ..] | [.., b' ' | b'\t'] = value {
        return Err(RequestError::bad("white space around a field's value"));
    }
    if name.len() + value.len() + 4 > limits.field {
        return Err(RequestError::too_large("too long header line"));
    }
    if to.fields.len() == limits.fields {
        return Err(RequestError::too_large("too many header lines"));
    }
    push(to, header, name, value);
    Ok(())
}

/// Adds a field, and returns where its value is.
fn push(to: &mut Request, header: Header, name: &[u8], value: &[u8]) -> Span {
    let begin = to.text.len();
    to.text.extend_from_slice(name);
    to.text.extend_from_slice(b": ");
    let at = to.text.len();
    to.text.extend_from_slice(value);
    let value = Span::new(at, to.text.len());
    to.text.extend_from_slice(b"\r\n");
    to.has |= header.bit();
    to.fields.push(Field { name: Span::new(begin, begin + name.len()), value, header });
    value
}

fn content_length(fields: &HeaderMap) -> Result<Option<u64>, RequestError> {
    let Some(value) = fields.get(CONTENT_LENGTH) else { return Ok(None) };
    let digits = value.as_bytes();
    let valid = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    let length = balanza_message::decimal(digits).filter(|_| valid);
    length.map(Some).ok_or(RequestError::bad("invalid Content-Length"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(method: &str, uri: &str, fields: &[(&str, &str)]) -> request::Parts {
        let mut builder = http::Request::builder().method(method).uri(uri);
        for (name, value) in fields {
            builder = builder.header(*name, *value);
        }
        builder.body(()).unwrap().into_parts().0
    }

    fn translated(head: &request::Parts, ends: bool) -> Result<Request, RequestError> {
        let mut request = Request::default();
        translate(head, ends, &Limits::default(), || "key".to_owned(), &mut request).map(|()| request)
    }

    #[test]
    fn a_head_reads_as_in_http_1() {
        let head = head(
            "POST",
            "https://Shop.example:8443/cart/%61?id=7",
            &[("cookie", "a=1"), ("te", "trailers"), ("cookie", "b=2"), ("content-length", "12"), ("x_y", "dropped")],
        );
        let request = translated(&head, false).unwrap();
        assert_eq!(request.of(request.line), b"POST /cart/%61?id=7 HTTP/2.0");
        assert_eq!((request.of(request.path), request.plain_path), (&b"/cart/%61"[..], false));
        assert_eq!(request.query.map(|query| request.of(query)), Some(&b"id=7"[..]));
        assert_eq!(request.host.map(|host| request.of(host)), Some(&b"Shop.example"[..]));
        assert!(request.host_capitals);
        assert_eq!(request.find(Header::Host), Some(&b"Shop.example:8443"[..]));
        assert_eq!(request.find(Header::Cookie), Some(&b"a=1; b=2"[..]));
        assert_eq!((request.body, request.version), (Length::Known(12), Version::Http2));
        assert_eq!(request.fields.len(), 4);
    }

    #[test]
    fn a_websocket_is_opened_as_in_http_1() {
        let extended = |protocol: &'static str, fields: &[(&str, &str)]| {
            let mut head = head("CONNECT", "https://a/chat?x=1", fields);
            head.extensions.insert(h2::ext::Protocol::from_static(protocol));
            head
        };
        let fields = [("sec-websocket-version", "13"), ("sec-websocket-key", "not this one")];
        let request = translated(&extended("websocket", &fields), false).unwrap();
        assert_eq!(request.of(request.line), b"GET /chat?x=1 HTTP/2.0");
        assert_eq!((request.method, request.body), (Method::Get, Length::None));
        assert_eq!(request.find(Header::Upgrade), Some(&b"websocket"[..]));
        assert_eq!(request.find(Header::SecWebsocketKey), Some(&b"key"[..]));
        assert_eq!(request.fields.len(), 5, "Host, the version, and what opens it");
        let other = translated(&extended("connect-udp", &[]), false).map(|_| ()).map_err(|error| error.status);
        assert_eq!(other, Err(501));
    }

    #[test]
    fn a_body_may_have_no_length() {
        let head = head("GET", "http://a/", &[]);
        assert_eq!(translated(&head, true).unwrap().body, Length::None);
        assert_eq!(translated(&head, false).unwrap().body, Length::Unknown);
    }

    #[test]
    fn what_is_ambiguous_is_refused() {
        let status = |method: &str, uri: &str, fields: &[(&str, &str)]| {
            translated(&head(method, uri, fields), true).map(|_| ()).map_err(|error| error.status)
        };
        assert_eq!(status("GET", "http://a/", &[("host", "A")]), Ok(()));
        assert_eq!(status("GET", "http://a/", &[("host", "b")]), Err(400));
        assert_eq!(status("GET", "/", &[("host", "a")]), Ok(()));
        assert_eq!(status("GET", "/", &[]), Err(400));
        assert_eq!(status("GET", "/", &[("host", "a"), ("host", "a")]), Err(400));
        assert_eq!(status("GET", "http://u@a/", &[]), Err(400));
        assert_eq!(status("POST", "http://a/", &[("content-length", "+1")]), Err(400));
        assert_eq!(status("POST", "http://a/", &[("content-length", "1"), ("content-length", "1")]), Err(400));
        assert_eq!(status("GET", "http://a/", &[("content-length_", "1")]), Err(400));
        assert_eq!(status("GET", "http://a/", &[("if-range", "a"), ("if-range", "b")]), Err(400));
        assert_eq!(status("CONNECT", "a:1", &[]), Err(405));
        assert_eq!(status("GET", "http://a/", &[("x", " a")]), Err(400));
        assert_eq!(status("get", "http://a/", &[]), Err(400));
        let long = "x".repeat(8192);
        assert_eq!(status("GET", &format!("http://a/{long}"), &[]), Err(414));
        assert_eq!(status("GET", "http://a/", &[("x", &long)]), Err(494));
        let half = "x".repeat(4000);
        let many: Vec<_> = (0..10).map(|_| ("x", half.as_str())).collect();
        assert_eq!(status("GET", "http://a/", &many), Err(494));
    }
}
