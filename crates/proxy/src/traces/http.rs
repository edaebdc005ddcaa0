//! OTLP over HTTP/1.1: a connection to a collector, and requests on it, of
//! <https://opentelemetry.io/docs/specs/otlp/#otlphttp>.

use std::time::{Duration, SystemTime};

use balanza_config::model::Exporter;
use balanza_net::transport::Transport;

use super::failure::{Failure, Kind, Then};
use super::otlp;
use crate::VERSION;
use crate::discovery::{api, exchange};

const PROTOBUF: &str = "application/x-protobuf";
/// The longest answer.
const LONGEST: usize = 64 * 1024;

/// A collector.
pub struct Http<'a> {
    conf: &'a Exporter,
    path: &'a str,
    /// Kept from the request before.
    connection: Option<Transport>,
}

impl Http<'_> {
    /// One that is not connected to yet.
    pub fn new<'a>(conf: &'a Exporter, path: &'a str) -> Http<'a> {
        Http { conf, path, connection: None }
    }

    /// Sends a message; returns how many spans were rejected, and why.
    ///
    /// # Errors
    /// The collector does not have it.
    pub async fn send(&mut self, message: &[u8]) -> Result<(u64, String), Failure> {
        let kept = self.connection.take().filter(Transport::is_emptied);
        let is_kept = kept.is_some();
        let connection = match kept {
            Some(connection) => connection,
            None => api::connect(&self.conf.endpoint).await.map_err(|why| Failure::new(Kind::Connection, why))?,
        };
        let request = compose(self.conf, self.path, message);
        let answer = exchange::exchange(connection, &request).await.map_err(|trouble| {
            let (kind, then) = match (trouble.is_over, is_kept) {
                (false, _) => (Kind::Answer, Then::Drop),
                (true, false) => (Kind::Connection, Then::Drop),
                (true, true) => (Kind::Connection, Then::Reconnect),
            };
            Failure { kind, why: trouble.why, then }
        })?;
        let status = answer.status;
        let wait = answer.field("retry-after").and_then(|text| wait(text, SystemTime::now()));
        let is_protobuf = answer.field("content-type").is_some_and(is_protobuf);
        let body = match answer.whole(LONGEST).await {
            Ok((body, connection)) => {
                self.connection = connection;
                body
            }
            // The status decides all the same.
            Err(_) => Vec::new(),
        };
        judge(status, is_protobuf, &body, wait)
    }
}

/// The text of a request.
fn compose(conf: &Exporter, path: &str, message: &[u8]) -> Vec<u8> {
    let (authority, length) = (&conf.endpoint.authority, message.len());
    let mut text = format!("POST {path} HTTP/1.1\r\nHost: {authority}\r\nUser-Agent: {VERSION}\r\n");
    text.push_str(&format!("Content-Type: {PROTOBUF}\r\nContent-Length: {length}\r\n"));
    for (name, value) in &conf.headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    text.push_str("\r\n");
    let mut text = text.into_bytes();
    text.extend_from_slice(message);
    text
}

fn is_protobuf(content_type: &str) -> bool {
    content_type.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case(PROTOBUF)
}

/// The time in Retry-After: seconds, or a date.
fn wait(text: &str, now: SystemTime) -> Option<Duration> {
    let text = text.trim();
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Some(Duration::from_secs(text.parse().unwrap_or(u64::MAX)));
    }
    Some(httpdate::parse_http_date(text).ok()?.duration_since(now).unwrap_or_default())
}

/// What an answer means.
fn judge(status: u16, is_protobuf: bool, body: &[u8], wait: Option<Duration>) -> Result<(u64, String), Failure> {
    match status {
        200..300 if is_protobuf => Ok(otlp::rejected(body)),
        200..300 => Ok((0, String::new())),
        _ => {
            let said = match is_protobuf {
                true => otlp::reason(body),
                false => exchange::first_line(body),
            };
            Err(Failure::of_status(status, &said, wait))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use balanza_config::model::ExporterProtocol;
    use balanza_config::model::discover::{Api, Place};

    use super::*;

    #[test]
    fn a_request_has_the_path_the_fields_and_the_length() {
        let place = Place::Host("::1".into(), 4318);
        let endpoint = Api { place, authority: "[::1]:4318".into(), tls: None, token: None };
        let conf = Exporter {
            endpoint,
            protocol: ExporterProtocol::Http { path: "/in/traces?a=b".into() },
            headers: vec![("x-key".into(), "a b".into()), ("authorization".into(), "Bearer t".into())],
            interval: Duration::from_secs(1),
            batch_size: 1,
            batch_count: 1,
            resource: Vec::new(),
        };
        let expected = format!(
            "POST /in/traces?a=b HTTP/1.1\r\nHost: [::1]:4318\r\nUser-Agent: {VERSION}\r\n\
             Content-Type: application/x-protobuf\r\nContent-Length: 3\r\nx-key: a b\r\nauthorization: Bearer t\r\n\r\n"
        );
        assert_eq!(compose(&conf, "/in/traces?a=b", b"\x0a\0\xff"), [expected.as_bytes(), b"\x0a\0\xff"].concat());
    }

    #[test]
    fn times_to_wait_are_seconds_or_dates() {
        let now = UNIX_EPOCH + Duration::from_secs(784_111_777);
        let seconds = |text: &str| wait(text, now).map(|time| time.as_secs());
        assert_eq!([seconds("0"), seconds(" 30 ")], [Some(0), Some(30)]);
        assert_eq!(seconds("99999999999999999999999"), Some(u64::MAX));
        assert_eq!(seconds("Sun, 06 Nov 1994 08:50:07 GMT"), Some(30));
        assert_eq!(seconds("Sun, 06 Nov 1994 08:49:07 GMT"), Some(0), "the date is over");
        for text in ["", "-1", "+1", "1.5", "soon", "1 s"] {
            assert_eq!(seconds(text), None, "{text}");
        }
    }

    /// What is to be done, and what is said, if the body is text.
    fn failure(status: u16, body: &[u8], wait: Option<Duration>) -> (Then, String) {
        let failure = judge(status, false, body, wait).unwrap_err();
        assert_eq!(failure.kind, Kind::Http(status));
        (failure.then, failure.why)
    }

    #[test]
    fn the_status_decides() {
        for status in [200, 202, 204, 299] {
            assert_eq!(judge(status, false, b"{\"partialSuccess\":{}}", None), Ok((0, String::new())), "{status}");
        }
        let wait = Some(Duration::from_secs(3));
        for status in [429, 502, 503, 504] {
            assert_eq!(failure(status, b"", wait).0, Then::Later(wait), "{status}");
            assert_eq!(failure(status, b"", None).0, Then::Later(None), "{status}");
        }
        for status in [101, 301, 307, 400, 401, 404, 408, 413, 415, 500, 501, 505] {
            assert_eq!(failure(status, b"", wait).0, Then::Drop, "{status}");
        }
    }

    #[test]
    fn failures_say_what_the_answer_says() {
        let said = |body: &[u8]| failure(400, body, None).1;
        assert_eq!(said(b""), "the collector answers with status 400");
        assert_eq!(said(b"not so\nat all"), "the collector answers with status 400: not so");
        assert_eq!(said(&[b'a'; 1000]).len(), "the collector answers with status 400: ".len() + 200);
    }

    #[cfg(feature = "otel")]
    #[test]
    fn messages_are_read_if_they_are_protobuf() {
        // ExportTraceServiceResponse: field 1 with rejected_spans 3 and error_message "full".
        let partial = b"\x0a\x08\x08\x03\x12\x04full";
        assert_eq!(judge(200, true, partial, None), Ok((3, "full".into())));
        assert_eq!(judge(200, false, partial, None), Ok((0, String::new())));
        assert_eq!(judge(200, true, b"", None), Ok((0, String::new())));
        // Status: code 3, message "bad data".
        let failure = judge(400, true, b"\x08\x03\x12\x08bad data", None).unwrap_err();
        assert_eq!(failure.why, "the collector answers with status 400: bad data");
        assert!(is_protobuf("application/X-Protobuf; charset=x") && !is_protobuf("application/json"));
    }
}
