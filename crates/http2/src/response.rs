//! Converts a response's head from the form of HTTP/2.

use balanza_message::{Field, Header, Length, Response};
use http::header::CONTENT_LENGTH;
use http::{HeaderMap, response};

/// Converts the head of a response. `ends` means that no body follows, `to_head` that the request's method was HEAD.
///
/// # Errors
/// The head is not valid.
pub(crate) fn translate(
    head: &response::Parts,
    ends: bool,
    to_head: bool,
    to: &mut Response,
) -> Result<(), &'static str> {
    to.clear();
    to.status = head.status.as_u16();
    if !(200..600).contains(&to.status) {
        return Err("upstream sent invalid status");
    }
    for (name, value) in &head.headers {
        push(to, name.as_str().as_bytes(), value.as_bytes());
    }
    to.content_length = content_length(&head.headers)?;
    to.body = match to.content_length {
        _ if to_head || matches!(to.status, 204 | 304) => Length::None,
        Some(length) => Length::Known(length),
        None if ends => Length::None,
        None => Length::Unknown,
    };
    Ok(())
}

/// Converts the head of an interim response.
pub(crate) fn translate_interim(head: &response::Parts, to: &mut Response) {
    to.clear();
    to.status = head.status.as_u16();
    for (name, value) in &head.headers {
        push(to, name.as_str().as_bytes(), value.as_bytes());
    }
}

fn push(to: &mut Response, name: &[u8], value: &[u8]) {
    let header = Header::recognise(name);
    to.has |= header.bit();
    to.fields.push(Field::write(&mut to.text, header, name, value));
}

fn content_length(fields: &HeaderMap) -> Result<Option<u64>, &'static str> {
    let mut values = fields.get_all(CONTENT_LENGTH).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let digits = value.as_bytes();
    let valid = values.next().is_none() && !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    let length = balanza_message::decimal(digits).filter(|_| valid);
    length.map(Some).ok_or("upstream sent invalid \"Content-Length\" header")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn translated(status: u16, fields: &[(&str, &str)], ends: bool, head: bool) -> Result<Response, &'static str> {
        let mut builder = http::Response::builder().status(status);
        for (name, value) in fields {
            builder = builder.header(*name, *value);
        }
        let mut response = Response::default();
        translate(&builder.body(()).unwrap().into_parts().0, ends, head, &mut response).map(|()| response)
    }

    #[test]
    fn a_head_reads_as_in_http_1() {
        let fields = [("content-type", "application/grpc"), ("set-cookie", "a=1"), ("set-cookie", "b=2")];
        let response = translated(200, &fields, false, false).unwrap();
        assert_eq!(response.text, b"content-type: application/grpc\r\nset-cookie: a=1\r\nset-cookie: b=2\r\n");
        assert_eq!(response.find(Header::ContentType), Some(&b"application/grpc"[..]));
        assert_eq!((response.status, response.body, response.fields.len()), (200, Length::Unknown, 3));
        assert!(response.reason.is_empty());
    }

    #[test]
    fn bodies_are_what_the_head_says() {
        let length = [("content-length", "7")];
        assert_eq!(translated(200, &length, false, false).unwrap().body, Length::Known(7));
        assert_eq!(translated(200, &[], true, false).unwrap().body, Length::None);
        let head = translated(200, &length, true, true).unwrap();
        assert_eq!((head.body, head.content_length), (Length::None, Some(7)));
        assert_eq!(translated(304, &length, true, false).unwrap().body, Length::None);
        for wrong in [&[("content-length", "7"), ("content-length", "7")][..], &[("content-length", "+7")]] {
            assert!(translated(200, wrong, false, false).is_err());
        }
        assert!(translated(101, &[], false, false).is_err());
        assert!(translated(600, &[], false, false).is_err());
    }
}
