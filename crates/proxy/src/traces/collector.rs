//! OTLP over gRPC: a connection to a collector, and requests on it.

use std::future::poll_fn;
use std::rc::Rc;

use balanza_config::model::Exporter;
use balanza_http2::client::{self, Head, Line, Opener, Settings, StreamError};
use balanza_message::{Fields, Response};
use balanza_net::buffer::Buffer;
use balanza_net::event_loop::{self, TaskHandle};
use balanza_net::shortage::describe;

use super::otlp;
use crate::VERSION;
use crate::discovery::api;

/// The method of the service.
const PATH: &[u8] = b"/opentelemetry.proto.collector.trace.v1.TraceService/Export";
/// The longest answer.
const LONGEST: usize = 64 * 1024;
const SETTINGS: Settings = Settings { streams: 1, window: LONGEST as u32, head: LONGEST as u32 };

/// A collector.
pub struct Collector<'a> {
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

/// Why a request has failed.
struct Failure {
    why: String,
    /// The collector has not looked at it, because a connection that was kept is over.
    again: bool,
}

impl Failure {
    fn new(why: impl Into<String>) -> Failure {
        Failure { why: why.into(), again: false }
    }

    fn of(error: &StreamError) -> Failure {
        let again = matches!(error, StreamError::Unprocessed | StreamError::Connection(_));
        let why = match error {
            StreamError::Connection(error) => format!("the connection is lost {}", describe(error)),
            error => error.to_string(),
        };
        Failure { why, again }
    }
}

impl Collector<'_> {
    /// One that is not connected to yet.
    pub fn new(conf: &Exporter) -> Collector<'_> {
        Collector { conf, connection: None }
    }

    /// Closes the connection.
    pub fn hang_up(&mut self) {
        self.connection = None;
    }

    /// Sends a message; returns how many spans were rejected, and why.
    ///
    /// # Errors
    /// The collector does not have it.
    pub async fn send(&mut self, message: Vec<u8>) -> Result<(u64, String), String> {
        let is_kept = self.connection.is_some();
        let mut result = self.attempt(&message).await;
        if is_kept && matches!(&result, Err(failure) if failure.again) {
            self.hang_up();
            result = self.attempt(&message).await;
        }
        if result.is_err() {
            self.hang_up();
        }
        result.map_err(|failure| failure.why)
    }

    async fn attempt(&mut self, message: &[u8]) -> Result<(u64, String), Failure> {
        let connection = match &mut self.connection {
            Some(connection) => connection,
            none => none.insert(connect(self.conf).await.map_err(Failure::new)?),
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
        let head = Head::new(&line, &fields, None).map_err(Failure::new)?;
        let mut stream = connection.opener.open(head, false).map_err(|error| Failure::of(&error))?;
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
        let ends = ends.map_err(|error| Failure::of(&error))?;
        if response.status != 200 {
            return Err(Failure::new(format!("the collector answers with status {}", response.status)));
        }
        let (mut answer, mut trailers) = (Vec::new(), Fields::default());
        if !ends {
            let mut buffer = Buffer::take();
            loop {
                (buffer.start, buffer.end) = (0, 0);
                let read = poll_fn(|cx| stream.poll_body(cx, &mut buffer, usize::MAX)).await;
                if read.map_err(|error| Failure::of(&error))? == 0 {
                    break;
                }
                answer.extend_from_slice(buffer.unread());
                if answer.len() > LONGEST {
                    return Err(Failure::new("the answer is too long"));
                }
            }
            let read = poll_fn(|cx| stream.poll_trailers(cx, &mut trailers)).await;
            read.map_err(|error| Failure::of(&error))?;
        }
        let in_head = response.fields.iter().map(|it| (it.name.of(&response.text), it.value.of(&response.text)));
        let all: Vec<_> = trailers.iter().chain(in_head).collect();
        let field = |name: &str| all.iter().find(|(it, _)| it.eq_ignore_ascii_case(name.as_bytes())).map(|it| it.1);
        match field("grpc-status") {
            Some(b"0") => Ok(otlp::rejected(answer.get(5..).unwrap_or_default())),
            Some(status) => {
                let status = String::from_utf8_lossy(status);
                let message = String::from_utf8_lossy(field("grpc-message").unwrap_or_default());
                let message: String = message.chars().take(200).collect();
                Err(Failure::new(format!("the collector answers with gRPC status {status} {message}").trim_end()))
            }
            None => Err(Failure::new("the answer is not gRPC")),
        }
    }
}

async fn connect(conf: &Exporter) -> Result<Connection, String> {
    let transport = api::connect(&conf.endpoint).await?;
    let begun = client::begin(Rc::new(transport), SETTINGS).await;
    let (mut connection, opener) = begun.map_err(|error| format!("no HTTP/2 {}", describe(&error)))?;
    let driver = event_loop::spawn(async move { drop(poll_fn(|cx| connection.poll(cx)).await) });
    Ok(Connection { opener, driver: Some(driver) })
}
