//! Whether an answer is the right one, without I/O.

use balanza_config::log_text::Escaped;
use balanza_config::model::{HeaderMatch, Match, ValueMatch};
use balanza_config::regex::{Captures, Regex};
use balanza_message::{Fields, Response};

/// Whether an expression matches; one that is undecided does not count as a match nor as none.
pub fn matches(regex: &Regex, subject: &[u8]) -> Result<bool, String> {
    regex.find(subject, &mut Captures::default()).map_err(|error| error.to_string())
}

/// `status` and `header`.
///
/// # Errors
/// What is wrong.
pub fn judge_head(expected: &Match, response: &Response) -> Result<(), String> {
    if let Some(status) = &expected.status
        && !status.holds(response.status)
    {
        return Err(format!("status {}", response.status));
    }
    for header in &expected.headers {
        if has(header, response)? == header.negated {
            return Err(format!("header \"{}\" is not as it must be", Escaped(&header.name)));
        }
    }
    Ok(())
}

/// Whether a field of the name has the value.
fn has(expected: &HeaderMatch, response: &Response) -> Result<bool, String> {
    for field in &response.fields {
        if !response.of(field.name).eq_ignore_ascii_case(&expected.name) {
            continue;
        }
        let value = response.of(field.value);
        let holds = match &expected.value {
            ValueMatch::Any => true,
            ValueMatch::Is(text) => **text == *value,
            ValueMatch::Regex(regex) => matches(regex, value)?,
        };
        if holds {
            return Ok(true);
        }
    }
    Ok(false)
}

/// `body`.
///
/// # Errors
/// What is wrong.
pub fn judge_body(expected: &Match, body: &[u8]) -> Result<(), String> {
    for (regex, positive) in &expected.bodies {
        if matches(regex, body)? != *positive {
            let verb = if *positive { "does not match" } else { "matches" };
            return Err(format!("the body {verb} \"{}\"", Escaped(regex.pattern().as_bytes())));
        }
    }
    Ok(())
}

/// The answer to a question about a gRPC server's health: its status, and for 0 whether the service is serving.
///
/// # Errors
/// What is wrong.
pub fn judge_grpc(response: &Response, trailers: &Fields, body: &[u8], expected: u32) -> Result<(), String> {
    if response.status != 200 {
        return Err(format!("status {}", response.status));
    }
    let in_head = response.fields.iter().find(|field| response.of(field.name).eq_ignore_ascii_case(b"grpc-status"));
    let in_trailers = || trailers.iter().find(|(name, _)| name.eq_ignore_ascii_case(b"grpc-status"));
    let status = in_head.map(|field| response.of(field.value)).or_else(|| in_trailers().map(|(_, value)| value));
    let Some(status) = status.and_then(balanza_message::decimal) else {
        return Err("no grpc-status".into());
    };
    if status != u64::from(expected) {
        return Err(format!("grpc-status {status}"));
    }
    match serving_status(body) {
        _ if expected != 0 => Ok(()),
        Some(1) => Ok(()),
        Some(2) => Err("the service is not serving".into()),
        Some(status) => Err(format!("serving status {status}")),
        None => Err("malformed answer".into()),
    }
}

/// The status in a `HealthCheckResponse`, field 1 of an uncompressed message; 0 if it is not there.
fn serving_status(body: &[u8]) -> Option<u64> {
    let (head, rest) = body.split_at_checked(5)?;
    let length = u32::from_be_bytes(head[1..].try_into().ok()?) as usize;
    let mut message = rest.get(..length).filter(|_| head[0] == 0)?;
    let mut status = 0;
    while !message.is_empty() {
        let tag = varint(&mut message)?;
        match tag & 7 {
            0 => {
                let value = varint(&mut message)?;
                if tag == 8 {
                    status = value;
                }
            }
            2 => {
                let length = usize::try_from(varint(&mut message)?).ok()?;
                message = message.get(length..)?;
            }
            1 => message = message.get(8..)?,
            5 => message = message.get(4..)?,
            _ => return None,
        }
    }
    Some(status)
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use balanza_config::model::StatusMatch;
    use balanza_http1::{Method, Parsed, ResponseHead};
    use proptest::prelude::*;

    use super::*;

    fn response(head: &str) -> Response {
        let (mut parser, mut response) = (ResponseHead::default(), Response::default());
        let Ok(Parsed::Complete(length)) = parser.parse(head.as_bytes(), Method::Get, 65536) else { panic!("{head}") };
        parser.hand_over(head.as_bytes(), length, &mut response);
        response
    }

    fn regex(pattern: &str) -> Arc<Regex> {
        Arc::new(Regex::new(pattern, false).unwrap())
    }

    #[test]
    fn statuses() {
        let status = |ranges: &[(u16, u16)], negated| StatusMatch { ranges: ranges.to_vec(), negated };
        let holds = |status: &StatusMatch| [199, 200, 204, 399, 404].map(|code| status.holds(code));
        assert_eq!(holds(&status(&[(200, 200), (204, 204)], false)), [false, true, true, false, false]);
        assert_eq!(holds(&status(&[(200, 399)], false)), [false, true, true, true, false]);
        assert_eq!(holds(&status(&[(200, 399), (404, 404)], true)), [true, false, false, false, false]);
        let expected = Match { status: Some(status(&[(200, 200)], false)), ..Match::default() };
        assert_eq!(judge_head(&expected, &response("HTTP/1.1 503 x\r\n\r\n")), Err("status 503".into()));
    }

    #[test]
    fn headers() {
        let head = response("HTTP/1.1 200 OK\r\nX-State: up\r\nx-state: ready\r\nServer: a\r\n\r\n");
        let holds = |name: &str, value: ValueMatch, negated| {
            let header = HeaderMatch { name: name.as_bytes().into(), value, negated };
            judge_head(&Match { headers: vec![header], ..Match::default() }, &head).is_ok()
        };
        let is = |text: &str| ValueMatch::Is(text.as_bytes().into());
        let like = |text: &str| ValueMatch::Regex(regex(text));
        for (name, value, expected) in [
            ("X-STATE", ValueMatch::Any, true),
            ("x-other", ValueMatch::Any, false),
            ("X-State", is("ready"), true),
            ("X-State", is("read"), false),
            ("X-State", like("^r"), true),
            ("X-State", like("^x"), false),
            ("x-other", is(""), false),
        ] {
            assert_eq!(holds(name, value.clone(), false), expected, "{name} {value:?}");
            assert_eq!(holds(name, value.clone(), true), !expected, "{name} ! {value:?}");
        }
    }

    #[test]
    fn bodies() {
        let judge = |positive, body: &[u8]| {
            judge_body(&Match { bodies: vec![(regex("Welcome|ok"), positive)], ..Match::default() }, body).is_ok()
        };
        assert_eq!((judge(true, b"all ok"), judge(true, b"no"), judge(true, b"")), (true, false, false));
        assert_eq!((judge(false, b"all ok"), judge(false, b"no")), (false, true));
    }

    #[test]
    fn answers_of_grpc() {
        let head = |more: &str| response(&format!("HTTP/1.1 200 OK\r\n{more}\r\n"));
        let mut ok = Fields::default();
        ok.push(b"grpc-status", b"0");
        let serving = [0, 0, 0, 0, 2, 8, 1];
        assert_eq!(judge_grpc(&head(""), &ok, &serving, 0), Ok(()));
        assert_eq!(judge_grpc(&head(""), &ok, &[0, 0, 0, 0, 2, 8, 2], 0), Err("the service is not serving".into()));
        assert_eq!(judge_grpc(&head(""), &ok, &[0, 0, 0, 0, 0], 0), Err("serving status 0".into()));
        assert_eq!(judge_grpc(&head(""), &ok, &serving[..6], 0), Err("malformed answer".into()));
        assert_eq!(judge_grpc(&head(""), &Fields::default(), &serving, 0), Err("no grpc-status".into()));
        let unimplemented = head("grpc-status: 12\r\n");
        assert_eq!(judge_grpc(&unimplemented, &Fields::default(), b"", 12), Ok(()));
        assert_eq!(judge_grpc(&unimplemented, &Fields::default(), b"", 0), Err("grpc-status 12".into()));
        assert_eq!(judge_grpc(&head(""), &ok, &serving, 12), Err("grpc-status 0".into()));
        assert_eq!(judge_grpc(&response("HTTP/1.1 502 x\r\n\r\n"), &ok, &serving, 0), Err("status 502".into()));
    }

    proptest! {
        #[test]
        fn whatever_grpc_servers_send_is_read(body in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = serving_status(&body);
        }
    }
}
