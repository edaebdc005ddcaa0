//! Reads the head of a request.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use balanza_config::model::ConnectionSettings;
use balanza_http1::{Limits, Parsed, RequestError};
use balanza_net::buffer::Buffer;
use balanza_net::clock::{self, Nanos};

use crate::body::{self, BodyError};
use crate::clients::Awaits;
use crate::exchange::{Exchange, is_too_large};

/// Why there is no request.
pub enum HeadError {
    /// The client closed the connection or was too slow; there is no response, and this status is logged.
    Gone(u16),
    /// The head is invalid.
    Refused(RequestError),
    /// Memory is short, and the head is not complete.
    NoMemory,
}

impl From<BodyError> for HeadError {
    fn from(error: BodyError) -> HeadError {
        match error {
            BodyError::NoMemory => HeadError::NoMemory,
            BodyError::TimedOut => HeadError::Gone(408),
            _ => HeadError::Gone(400),
        }
    }
}

/// What a server allows in a head.
pub fn limits(settings: &ConnectionSettings) -> Limits {
    let (count, size) = settings.large_client_header_buffers;
    Limits {
        line: size.max(settings.client_header_buffer_size),
        field: size.max(settings.client_header_buffer_size),
        // A body needs room behind the head.
        head: (settings.client_header_buffer_size + count * size)
            .min(balanza_net::buffer::CAPACITY - body::LEAST_SPACE),
        fields: settings.max_headers,
        underscores: settings.underscores_in_headers,
        ignore_invalid: settings.ignore_invalid_headers,
    }
}

/// Reads and parses the head of the request that begins in `x.body.input`.
///
/// # Errors
/// There is no request, or none that can be served.
pub async fn read(x: &mut Exchange) -> Result<(), HeadError> {
    let settings = &x.server().connection;
    let limits = limits(settings);
    let deadline = head_deadline(x, settings.client_header_timeout);
    let mut input = x.body.input.take().expect("a request begins with bytes");
    let mut parsed_to = 0;
    let parsed = loop {
        // A head that arrives in many pieces is parsed again only when a line has ended.
        let news = &input.bytes()[parsed_to..input.end];
        if parsed_to > 0 && !news.contains(&b'\n') && input.end <= limits.line.min(limits.field) {
            parsed_to = input.end;
            match read_more(x, &mut input, deadline).await {
                Ok(()) => continue,
                Err(error) => break Err(error.into()),
            }
        }
        parsed_to = input.end;
        if is_too_large(input.end) {
            break Err(HeadError::NoMemory);
        }
        match parse_head(x, &input.bytes()[..input.end], &limits) {
            Ok(Parsed::Complete(length)) => break Ok(length),
            Ok(Parsed::Incomplete) if input.space().is_empty() => {
                let reason = "request head larger than its buffer";
                break Err(HeadError::Refused(RequestError { status: RequestError::TOO_LARGE, reason }));
            }
            Ok(Parsed::Incomplete) => match read_more(x, &mut input, deadline).await {
                Ok(()) => {}
                Err(error) => break Err(error.into()),
            },
            Err(error) => break Err(HeadError::Refused(error)),
        }
    };
    x.head_length = match &parsed {
        Ok(length) => *length as u64,
        Err(_) => input.end as u64,
    };
    if parsed.is_err() && x.request.text.is_empty() {
        // For the log.
        let line = input.unread().split(|byte| *byte == b'\n').next().unwrap_or_default();
        x.request.text.extend_from_slice(line);
    }
    input.start = parsed.as_ref().map_or(0, |length| *length);
    // While the request is served, a client that has sent no more holds no buffer.
    x.body.input = (!input.is_empty() || !x.body.is_finished()).then_some(input);
    parsed?;
    x.head_complete = true;
    Ok(())
}

/// Parses what has come of a head. One that is complete or refused becomes the request.
fn parse_head(x: &mut Exchange, bytes: &[u8], limits: &Limits) -> Result<Parsed, RequestError> {
    let thread = Rc::clone(&x.client().thread);
    let mut head = thread.request_head.borrow_mut();
    let parsed = head.parse(bytes, limits);
    match parsed {
        Ok(Parsed::Incomplete) => {}
        Ok(Parsed::Complete(length)) => {
            x.client_keeps_alive = head.keep_alive;
            x.body.begin(head.body, head.expect_continue);
            head.hand_over(bytes, length, &mut x.request);
        }
        Err(_) => head.hand_over(bytes, bytes.len(), &mut x.request),
    }
    parsed
}

fn head_deadline(x: &Exchange, timeout: Duration) -> Nanos {
    let begin = if x.ordinal == 1 { x.client().accepted } else { x.started };
    begin.saturating_add(clock::nanos(timeout))
}

/// Reads more of a head, unless memory is short and this client has to be closed.
///
/// # Errors
/// The end of the stream, the deadline, or no memory.
async fn read_more(x: &mut Exchange, buffer: &mut Buffer, deadline: Nanos) -> Result<(), BodyError> {
    let entry = Rc::clone(&x.client().entry);
    x.client().thread.clients.awaits(&entry, Awaits::Head);
    poll_fn(|cx| {
        if is_too_large(buffer.end) || entry.evicted.get() {
            return Poll::Ready(Err(BodyError::NoMemory));
        }
        entry.watch(cx.waker());
        match x.downstream.poll_recv(cx, buffer) {
            Poll::Ready(Ok(read)) if read > 0 => {
                clock::now();
                Poll::Ready(Ok(()))
            }
            Poll::Ready(_) => Poll::Ready(Err(BodyError::Closed)),
            Poll::Pending if x.downstream.timer.poll_expired(cx, deadline) => Poll::Ready(Err(BodyError::TimedOut)),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}
