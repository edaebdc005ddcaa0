//! OTLP over gRPC: a connection to a collector, and requests on it.

use std::future::poll_fn;
use std::rc::Rc;

use balanza_config::model::Exporter;
use balanza_http2::client::{self, Head, Line, Opener, Settings, StreamError};
use balanza_message::{Fields, Response};
use balanza_net::buffer::Buffer;
use balanza_net::event_loop::{self, TaskHandle};
use balanza_net::shortage::describe;

use super::failure::{Failure, Kind, Then};
use super::otlp;
use crate::VERSION;
use crate::discovery::api;

/// The method of the service.
const PATH: &[u8] = b"/opentelemetry.proto.collector.trace.v1.TraceService/Export";
/// The longest answer.
const LONGEST: usize = 64 * 1024;
const SETTINGS: Settings = Settings { streams: 1, window: LONGEST as u32, head: LONGEST as u32 };

/// A collector.
pub struct Grpc<'a> {
    conf: &'a Exporter,
    connection: Option<Connection>,
}

struct Connection {
    opener: Opener,
    driver: Option<TaskHandle>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let Some(driver) = self.driver.take() {
            driver.abort();
        }
    }
}

impl Grpc<'_> {
    /// One that is not connected to yet.
    pub fn new(conf: &Exporter) -> Grpc<'_> {
        Grpc { conf, connection: None }
    }

    /// Sends a message; returns how many spans were rejected, and why.
    ///
    /// # Errors
    /// The collector does not have it.
    pub async fn send(&mut self, message: &[u8]) -> Result<(u64, String), Failure> {
        let is_kept = self.connection.is_some();
        let mut result = self.attempt(message).await;
        if let Err(failure) = &mut result {
            if failure.then == Then::Reconnect && !is_kept {
                failure.then = Then::Drop;
            }
            self.connection = None;
        }
        result
    }

    async fn attempt(&mut self, message: &[u8]) -> Result<(u64, String), Failure> {
        let connection = match &mut self.connection {
            Some(connection) => connection,
            none => none.insert(connect(self.conf).await.map_err(|why| Failure::new(Kind::Connection, why))?),
        };
        let mut fields = Fields::default();
        for (name, value) in [("content-type", "application/grpc"), ("te", "trailers"), ("user-agent", VERSION)] {
            fields.push(name.as_bytes(), value.as_bytes());
        }
        for (name, value) in &self.conf.headers {
            fields.push(name.as_bytes(), value.as_bytes());
        }
        let host = self.conf.endpoint.authority.as_bytes();
        let line = Line { method: b"POST", secure: self.conf.endpoint.tls.is_some(), host: Some(host), path: PATH };
        let head = Head::new(&line, &fields, None).map_err(|why| Failure::new(Kind::Connection, why))?;
        let mut stream = connection.opener.open(head, false).map_err(|error| lost(&error))?;
        // In front of a message: whether it is compressed, and its length.
        let mut body = vec![0];
        body.extend_from_slice(&(message.len() as u32).to_be_bytes());
        body.extend_from_slice(message);
        let mut sent = 0;
        while sent < body.len() {
            match poll_fn(|cx| stream.poll_send(cx, &body[sent..], true)).await {
                Some(length) => sent += length,
                // The response says why.
                None => break,
            }
        }
        let mut response = Response::default();
        let ends = poll_fn(|cx| stream.poll_head(cx, false, &mut response)).await;
        let ends = ends.map_err(|error| lost(&error))?;
        if response.status != 200 {
            return Err(Failure::of_status(response.status, "", None));
        }
        let (mut answer, mut trailers) = (Vec::new(), Fields::default());
        if !ends {
            let mut buffer = Buffer::take();
            loop {
                (buffer.start, buffer.end) = (0, 0);
                let read = poll_fn(|cx| stream.poll_body(cx, &mut buffer, usize::MAX)).await;
                if read.map_err(|error| lost(&error))? == 0 {
                    break;
                }
                answer.extend_from_slice(buffer.unread());
                if answer.len() > LONGEST {
                    return Err(Failure::new(Kind::Answer, "the answer is too long"));
                }
            }
            let read = poll_fn(|cx| stream.poll_trailers(cx, &mut trailers)).await;
            read.map_err(|error| lost(&error))?;
        }
        let in_head = response.fields.iter().map(|it| (it.name.of(&response.text), it.value.of(&response.text)));
        let all: Vec<_> = trailers.iter().chain(in_head).collect();
        let field = |name: &str| all.iter().find(|(it, _)| it.eq_ignore_ascii_case(name.as_bytes())).map(|it| it.1);
        match field("grpc-status") {
            Some(b"0") => Ok(otlp::rejected(answer.get(5..).unwrap_or_default())),
            Some(status) => Err(refused(status, field("grpc-message").unwrap_or_default())),
            None => Err(Failure::new(Kind::Answer, "the answer is not gRPC")),
        }
    }
}

/// A status of gRPC other than success.
fn refused(status: &[u8], message: &[u8]) -> Failure {
    let (status, message) = (String::from_utf8_lossy(status), String::from_utf8_lossy(message));
    let message: String = message.chars().take(200).collect();
    let why = format!("the collector answers with gRPC status {status} {message}").trim_end().to_owned();
    match status.parse() {
        Ok(code @ 1..=16) => {
            // Those that OTLP calls retryable. RESOURCE_EXHAUSTED is only with a time to wait, which is not read.
            let then = if matches!(code, 1 | 4 | 10 | 11 | 14 | 15) { Then::Later(None) } else { Then::Drop };
            Failure { kind: Kind::Grpc(code), why, then }
        }
        _ => Failure::new(Kind::Answer, why),
    }
}

/// A stream or its connection has failed.
fn lost(error: &StreamError) -> Failure {
    let is_over = matches!(error, StreamError::Unprocessed | StreamError::Connection(_));
    let why = match error {
        StreamError::Connection(error) => format!("the connection is lost {}", describe(error)),
        error => error.to_string(),
    };
    let then = if is_over { Then::Reconnect } else { Then::Drop };
    Failure { kind: Kind::Connection, why, then }
}

async fn connect(conf: &Exporter) -> Result<Connection, String> {
    let transport = api::connect(&conf.endpoint).await?;
    let begun = client::begin(Rc::new(transport), SETTINGS).await;
    let (mut connection, opener) = begun.map_err(|error| format!("no HTTP/2 {}", describe(&error)))?;
    let driver = event_loop::spawn(async move { drop(poll_fn(|cx| connection.poll(cx)).await) });
    Ok(Connection { opener, driver: Some(driver) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_refusals_are_for_later() {
        let then = |status: &str| refused(status.as_bytes(), b"").then;
        for status in ["1", "4", "10", "11", "14", "15"] {
            assert_eq!(then(status), Then::Later(None), "{status}");
        }
        for status in ["2", "3", "5", "6", "7", "8", "9", "12", "13", "16", "17", "x", ""] {
            assert_eq!(then(status), Then::Drop, "{status}");
        }
        let failure = refused(b"14", b"not now");
        assert_eq!(
            (failure.kind, &*failure.why),
            (Kind::Grpc(14), "the collector answers with gRPC status 14 not now")
        );
        assert_eq!(refused(b"99", b"").kind, Kind::Answer);
    }
}
