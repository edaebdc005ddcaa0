//! The phases of a request: head, virtual server, location, rewriting, access, handler, error page, log.

use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use balanza_config::log_text::Escaped;
use balanza_config::model::{AddressGroup, ErrorPage, Handler, Level, Location, Matcher, Overwrite, Return, RewriteOp};
use balanza_http1::{Body, Limits, Parsed, RequestError};
use balanza_message::{Length, Method, uri};
use balanza_net::buffer::Buffer;
use balanza_net::clock::{self, Nanos};

use crate::body::{self, BodyError};
use crate::connection::{After, Client, SendError};
use crate::exchange::Exchange;
use crate::fault;
use crate::respond::{self, Local, Unsent};
use crate::variables::Undecided;
use crate::{access, log, reading, static_files, upstream, variables};

/// Internal redirects that a request may go through, as in NGINX.
const MAX_REDIRECTS: u8 = 10;

/// How long the rest of an unused body is read, so that the connection can be kept.
const DISCARD_TIME: Duration = Duration::from_secs(5);

/// The result of a handler.
pub enum Step {
    /// A response was sent, completely or not (`x.completed`).
    Sent,
    /// An error page is due.
    Error(u16),
    /// Start again with this URI and arguments.
    Internal(Vec<u8>, Vec<u8>),
    /// Go to a named location.
    Named(Vec<u8>),
    /// Close the connection without a response.
    Drop,
}

/// Serves the request that begins in `buffer`.
pub async fn serve_request(client: &mut Client, x: &mut Exchange, buffer: Buffer) -> After {
    x.started = clock::now();
    x.input = Some(buffer);
    adopt_configuration(client, x);
    let head = read_head(client, x).await;
    client.end_head();
    let after = match head {
        Ok(()) => {
            fault::point("request");
            run(client, x).await;
            None
        }
        Err(HeadError::Gone(status)) => {
            x.status = status;
            Some(After::Close)
        }
        Err(HeadError::NoMemory) => {
            client.worker.alert_of_memory(x.site());
            report(x, client, Level::Error, format_args!("no memory for the request's head"));
            Box::pin(refuse(client, x, 503)).await;
            // The head is large, and its rest is not needed.
            x.input = None;
            Some(After::Linger)
        }
        Err(HeadError::Refused(error)) => {
            report(x, client, Level::Info, format_args!("client sent invalid request: {}", error.reason));
            // Rare paths are boxed, because every connection's task is as large as its largest path.
            Box::pin(refuse(client, x, error.status)).await;
            Some(After::Linger)
        }
    };
    if !x.location().settings.access_logs.is_empty() {
        log::access::write(x, client);
    }
    match after {
        Some(after) => after,
        None => settle(client, x).await,
    }
}

/// Answers a request whose head is invalid; an `error_page` may do it.
async fn refuse(client: &mut Client, x: &mut Exchange, status: u16) {
    x.keep_alive = false;
    x.body.begin(Body::None, false);
    if !x.request.line.is_empty() {
        // The part read before the error can be logged, and an error page may use it.
        x.head_complete = true;
        take_uri(x);
    }
    match error_page(client, x, status) {
        Some(Begun::Find) => {
            let next = enter_location(client, x).await;
            follow(client, x, next).await;
        }
        Some(step) => follow(client, x, step).await,
        None => answer_error(client, x, status).await,
    }
}

/// Makes the connection ready for the next request, or returns how it ends.
async fn settle(client: &mut Client, x: &mut Exchange) -> After {
    if x.timed_out && x.location().settings.reset_timedout_connection {
        client.socket.reset_on_close();
        return After::Close;
    }
    client.patience = x.location().settings.keepalive_timeout;
    if !x.completed || !x.keep_alive {
        return if heard_all(x) || x.dropped { After::Close } else { After::Linger };
    }
    if x.body.is_finished() {
        return After::KeepAlive;
    }
    // A client that still waits for "100 Continue" may send the body or not: this cannot be known.
    if !x.body.continued {
        return After::Linger;
    }
    let deadline = clock::after(DISCARD_TIME);
    loop {
        let piece = std::future::poll_fn(|cx| match reading::poll_body_piece(cx, x, client) {
            Poll::Pending if client.timer.poll_expired(cx, deadline) => Poll::Ready(Err(BodyError::TimedOut)),
            piece => piece,
        })
        .await;
        match piece {
            Ok(_) if x.body.is_finished() => return After::KeepAlive,
            Ok(_) => {}
            Err(_) => return After::Close,
        }
    }
}

/// Whether nothing that the client has sent is unread, as far as is known: a close then does not become a reset.
pub fn heard_all(x: &Exchange) -> bool {
    x.body.is_finished() && x.input.as_ref().is_none_or(Buffer::is_empty)
}

/// Takes the newest configuration and the default server of the local address.
fn adopt_configuration(client: &mut Client, x: &mut Exchange) {
    if let Some(newer) = client.worker.current(&client.listener) {
        client.listener = newer;
    }
    if !x.site.as_ref().is_some_and(|site| Rc::ptr_eq(site, &client.listener.site)) {
        x.site = Some(Rc::clone(&client.listener.site));
    }
    let group = address_group(client);
    enter_server(x, &client.listener.conf().groups[group].default_server);
}

/// The index of the group of virtual servers for the address that the client connected to.
fn address_group(client: &mut Client) -> usize {
    if client.listener.conf().groups.len() == 1 {
        return 0;
    }
    let local = client.local_address();
    let groups = &client.listener.conf().groups;
    let wanted = |group: &AddressGroup| match (group.local, local) {
        (Some(local), Some(mine)) => {
            local.ip().to_canonical() == mine.ip().to_canonical() && local.port() == mine.port()
        }
        (None, _) => true,
        _ => false,
    };
    groups.iter().position(wanted).unwrap_or(groups.len() - 1)
}

fn enter_server(x: &mut Exchange, server: &Arc<balanza_config::model::Server>) {
    if !x.server.as_ref().is_some_and(|mine| Arc::ptr_eq(mine, server)) {
        x.server = Some(Arc::clone(server));
    }
    x.located = false;
}

/// Why there is no request.
enum HeadError {
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

async fn read_head(client: &mut Client, x: &mut Exchange) -> Result<(), HeadError> {
    let settings = &x.server().connection;
    let (count, size) = settings.large_client_header_buffers;
    let limits = Limits {
        line: size.max(settings.client_header_buffer_size),
        field: size.max(settings.client_header_buffer_size),
        // A body needs room behind the head.
        head: (settings.client_header_buffer_size + count * size)
            .min(balanza_net::buffer::CAPACITY - body::LEAST_SPACE),
        fields: settings.max_headers,
        underscores: settings.underscores_in_headers,
        ignore_invalid: settings.ignore_invalid_headers,
    };
    let deadline = head_deadline(client, x, settings.client_header_timeout);
    let mut input = x.input.take().expect("a request begins with bytes");
    let mut parsed_to = 0;
    let parsed = loop {
        // A head that arrives in many pieces is parsed again only when a line has ended.
        let news = &input.bytes()[parsed_to..input.end];
        if parsed_to > 0 && !news.contains(&b'\n') && input.end <= limits.line.min(limits.field) {
            parsed_to = input.end;
            match client.read_head(&mut input, deadline).await {
                Ok(()) => continue,
                Err(error) => break Err(error.into()),
            }
        }
        parsed_to = input.end;
        match parse_head(client, x, &input.bytes()[..input.end], &limits) {
            Ok(Parsed::Complete(length)) => break Ok(length),
            Ok(Parsed::Incomplete) if input.space().is_empty() => {
                let reason = "request head larger than its buffer";
                break Err(HeadError::Refused(RequestError { status: RequestError::TOO_LARGE, reason }));
            }
            Ok(Parsed::Incomplete) => match client.read_head(&mut input, deadline).await {
                Ok(()) => {}
                Err(error) => break Err(error.into()),
            },
            Err(error) => break Err(HeadError::Refused(error)),
        }
    };
    x.request_length = match &parsed {
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
    x.input = (!input.is_empty() || !x.body.is_finished()).then_some(input);
    parsed?;
    x.head_complete = true;
    Ok(())
}

/// Parses what has come of a head. One that is complete or refused becomes the request.
fn parse_head(client: &Client, x: &mut Exchange, bytes: &[u8], limits: &Limits) -> Result<Parsed, RequestError> {
    let mut head = client.worker.request_head.borrow_mut();
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

fn head_deadline(client: &Client, x: &Exchange, timeout: Duration) -> Nanos {
    let begin = if client.requests == 1 { client.accepted } else { x.started };
    begin.saturating_add(clock::nanos(timeout))
}

/// Finds the location that answers, runs it, and follows redirects and error pages.
async fn run(client: &mut Client, x: &mut Exchange) {
    let step = begin(client, x).await;
    follow(client, x, step).await;
}

async fn follow(client: &mut Client, x: &mut Exchange, mut step: Begun) {
    loop {
        step = match step {
            Begun::Find => enter_location(client, x).await,
            Begun::Step(Step::Sent) => return,
            Begun::Step(Step::Drop) => {
                x.keep_alive = false;
                x.dropped = true;
                return;
            }
            Begun::Step(Step::Error(status)) => {
                // An error on the way to an error's page has a status of its own.
                x.error_status = 0;
                match error_page(client, x, status) {
                    Some(next) => next,
                    None => return Box::pin(answer_error(client, x, status)).await,
                }
            }
            Begun::Step(Step::Internal(path, args)) => redirect(x, client, Some((path, args))),
            Begun::Step(Step::Named(name)) => match redirect(x, client, None) {
                Begun::Find => Box::pin(enter_named(client, x, &name)).await,
                failed => failed,
            },
        };
    }
}

async fn enter_named(client: &mut Client, x: &mut Exchange, name: &[u8]) -> Begun {
    let Some(location) = x.server().locations.named(name).cloned() else {
        report(x, client, Level::Error, format_args!("could not find named location \"{}\"", Escaped(name)));
        return Begun::Step(Step::Error(500));
    };
    x.enter(&location);
    Begun::Step(visit(client, x, &location).await)
}

/// What comes next.
enum Begun {
    /// Look for the location of `x.uri`.
    Find,
    /// Something else.
    Step(Step),
}

/// Chooses the virtual server, normalises the URI and runs the server's own rewriting.
async fn begin(client: &mut Client, x: &mut Exchange) -> Begun {
    if let Err(undecided) = choose_server(client, x) {
        return Begun::Step(undecided.into());
    }
    let settings = &x.location().settings;
    x.keep_alive = x.client_keeps_alive
        && !settings.keepalive_timeout.is_zero()
        && client.requests < settings.keepalive_requests
        && x.started - client.accepted < clock::nanos(settings.keepalive_time);
    if x.request.method == Method::Trace {
        return Begun::Step(Step::Error(405));
    }
    // RFC 9112, 3.2: a target has no fragment. A client that sends one may try to be misread.
    if !take_uri(x) || x.text(x.request.origin).contains(&b'#') {
        x.keep_alive = false;
        return Begun::Step(Step::Error(400));
    }
    if x.server().rewrite.is_empty() {
        return Begun::Find;
    }
    let server = Arc::clone(x.server());
    match rewrite(client, x, &server.rewrite).await {
        Some(step) => Begun::Step(step),
        None => Begun::Find,
    }
}

/// Decodes and normalises the path; false when it leads above the root or is malformed.
fn take_uri(x: &mut Exchange) -> bool {
    let mut path = std::mem::take(&mut x.uri);
    let merge_slashes = x.server().connection.merge_slashes;
    path.clear();
    let original = x.text(x.request.path);
    let valid = if x.request.plain_path || uri::is_plain(original) {
        path.extend_from_slice(original);
        true
    } else {
        uri::normalise(original, merge_slashes, &mut path).is_ok()
    };
    x.uri = path;
    let mut args = std::mem::take(&mut x.args);
    if let Some(query) = x.request.query {
        args.extend_from_slice(x.text(query));
    }
    x.args = args;
    valid
}

fn choose_server(client: &mut Client, x: &mut Exchange) -> Result<(), Undecided> {
    let listener = Rc::clone(&client.listener);
    let groups = &listener.conf().groups;
    let group = match groups.len() {
        1 => &groups[0],
        _ => &groups[address_group(client)],
    };
    let mut name = x.request.host.map_or(&b""[..], |host| x.request.of(host));
    if x.request.host_capitals {
        x.scratch.clear();
        x.scratch.extend_from_slice(name);
        x.scratch.make_ascii_lowercase();
        name = &x.scratch;
    }
    let found = group.names.find(name, &mut x.captures).map_err(|error| Undecided::report(&error, x, client))?;
    if let Some((server, regex)) = found {
        if let Some(regex) = regex {
            variables::keep_named_groups(regex, x);
        }
        enter_server(x, server);
    }
    Ok(())
}

/// Finds the location of the URI and runs it.
async fn enter_location(client: &mut Client, x: &mut Exchange) -> Begun {
    let server = x.server.as_ref().expect("a request begins with the default server");
    let location = match server.locations.find(&x.uri, &mut x.captures) {
        Ok(found) => Arc::clone(found.unwrap_or(&server.root)),
        Err(error) => return Begun::Step(Undecided::report(&error, x, client).into()),
    };
    let location = &location;
    x.enter(location);
    if let Matcher::Regex(regex) = &location.matcher {
        variables::keep_named_groups(regex, x);
    }
    if location.internal && !x.internal {
        return Begun::Step(Step::Error(404));
    }
    if location.redirects(&x.uri) {
        return Begun::Step(add_slash(x));
    }
    Begun::Step(visit(client, x, location).await)
}

/// The redirect to the same URI with a slash behind it.
pub fn add_slash(x: &mut Exchange) -> Step {
    let mut target = Vec::new();
    uri::escape(&x.uri, uri::Escape::Uri, &mut target);
    target.push(b'/');
    if !x.args.is_empty() {
        target.push(b'?');
        target.extend_from_slice(&x.args);
    }
    x.redirect = Some(target);
    Step::Error(301)
}

/// The phases of a location: limits, rewriting, access, handler.
async fn visit(client: &mut Client, x: &mut Exchange, location: &Arc<Location>) -> Step {
    let settings = &location.settings;
    if !x.internal
        && let Length::Known(length) = x.request.body
        && settings.client_max_body_size != 0
        && length > settings.client_max_body_size
    {
        report(x, client, Level::Error, format_args!("client intended to send too large body: {length} bytes"));
        return Step::Error(413);
    }
    if let Some(step) = rewrite(client, x, &location.rewrite).await {
        return step;
    }
    if !settings.access.is_empty() && !access::is_allowed(&settings.access, client.peer) {
        report(x, client, Level::Error, format_args!("access forbidden by rule"));
        return Step::Error(403);
    }
    match &location.handler {
        Handler::Static => Box::pin(static_files::serve(client, x, location)).await,
        Handler::Proxy(pass) => upstream::forward::serve(client, x, location, pass).await,
    }
}

/// Runs `set` and `return`; a step when one of them answers.
async fn rewrite(client: &mut Client, x: &mut Exchange, ops: &[RewriteOp]) -> Option<Step> {
    for op in ops {
        match op {
            RewriteOp::Set(slot, template) => {
                let mut value = Vec::new();
                if let Err(undecided) = variables::render(template, x, client, &mut value) {
                    return Some(undecided.into());
                }
                variables::set_user(x, *slot, Some(value));
            }
            RewriteOp::Return(found) => return Some(Box::pin(answer_return(client, x, found)).await),
        }
    }
    None
}

async fn answer_return(client: &mut Client, x: &mut Exchange, found: &Return) -> Step {
    if found.status == 444 {
        x.status = 444;
        return Step::Drop;
    }
    let mut text = Vec::new();
    match &found.text {
        Some(template) => {
            if let Err(undecided) = variables::render(template, x, client, &mut text) {
                return undecided.into();
            }
        }
        None if found.status >= 400 => return Step::Error(found.status),
        None => {}
    }
    if matches!(found.status, 301 | 302 | 303 | 307 | 308) {
        x.redirect = Some(text);
        return Step::Error(found.status);
    }
    let location = Arc::clone(x.location());
    let content_type = location.settings.default_type.as_bytes();
    let content_type = if found.status == 204 { b"" } else { content_type };
    let local = Local { status: found.status, content_type, body: &text, field: None };
    match respond::send(client, x, local).await {
        Ok(()) => Step::Sent,
        Err(unsent) => unsent.step(x),
    }
}

/// Remembers a time-out, so that the connection can be reset instead of closed.
pub fn note_send_error(x: &mut Exchange, sent: Result<(), SendError>) {
    x.timed_out |= sent == Err(SendError::TimedOut);
}

/// Prepares an internal redirect: to a URI, or, without one, to a named location.
fn redirect(x: &mut Exchange, client: &Client, to: Option<(Vec<u8>, Vec<u8>)>) -> Begun {
    if x.redirects >= MAX_REDIRECTS {
        let uri = Escaped(&x.uri);
        let text = "rewrite or internal redirection cycle while redirect to";
        report(x, client, Level::Error, format_args!("{text} \"{uri}\""));
        return Begun::Step(Step::Error(500));
    }
    x.redirects += 1;
    x.internal = true;
    if let Some((path, args)) = to {
        if climbs(&path) {
            report(x, client, Level::Error, format_args!("unsafe URI \"{}\" was detected", Escaped(&path)));
            return Begun::Step(Step::Error(404));
        }
        x.uri = path;
        x.args = args;
        x.uri_changed = true;
    }
    Begun::Find
}

/// Whether a path has a segment "..": a path from a variable or a server may leave its directory.
pub fn climbs(path: &[u8]) -> bool {
    path.split(|byte| *byte == b'/').any(|segment| segment == b"..")
}

/// The `error_page` of this status; `None` for the built-in page.
fn error_page(client: &Client, x: &mut Exchange, status: u16) -> Option<Begun> {
    if x.error_page_used || x.head_sent {
        return None;
    }
    let location = Arc::clone(x.location());
    let page: &ErrorPage = location.settings.error_pages.iter().find(|page| page.status == status)?;
    let mut target = Vec::new();
    if let Err(undecided) = variables::render(&page.target, x, client, &mut target) {
        x.error_page_used = true;
        return Some(Begun::Step(undecided.into()));
    }
    x.error_page_used = true;
    x.redirect = None;
    end_keep_alive_after(x, status);
    x.error_status = match page.overwrite {
        Overwrite::Keep => shown(status),
        Overwrite::Status(status) => status,
        Overwrite::Handler => 0,
    };
    match target.first() {
        Some(b'/') => {
            x.method_is_get = x.request.method != Method::Head;
            let (path, args) = match target.iter().position(|byte| *byte == b'?') {
                Some(mark) => (target[..mark].to_vec(), target[mark + 1..].to_vec()),
                None => (target, Vec::new()),
            };
            Some(Begun::Step(Step::Internal(path, args)))
        }
        Some(b'@') => Some(Begun::Step(Step::Named(target[1..].to_vec()))),
        _ => {
            let status = match page.overwrite {
                Overwrite::Status(status @ (301 | 302 | 303 | 307 | 308)) => status,
                _ => 302,
            };
            x.error_status = 0;
            x.redirect = Some(target);
            Some(Begun::Step(Step::Error(status)))
        }
    }
}

/// The status that the client gets: those from 494 on are internal.
fn shown(status: u16) -> u16 {
    if (494..=497).contains(&status) { 400 } else { status }
}

/// After some errors the next request may not begin at the next byte of the connection.
fn end_keep_alive_after(x: &mut Exchange, status: u16) {
    if matches!(status, 400 | 413 | 414 | 494..=497 | 500 | 501) {
        x.keep_alive = false;
    }
}

/// Sends the built-in page, or the redirect that is due.
async fn answer_error(client: &mut Client, x: &mut Exchange, status: u16) {
    end_keep_alive_after(x, status);
    if x.head_sent {
        // Too late for a page: the client gets a truncated response.
        x.keep_alive = false;
        return;
    }
    let mut sent = match x.redirect.take() {
        Some(target) => respond::send_redirect(client, x, status, &target).await,
        None => respond::send_error(client, x, status).await,
    };
    if let Err(Unsent::Undecided(_)) = sent {
        x.error_status = 0;
        x.keep_alive = false;
        sent = respond::send_error(client, x, 500).await;
    }
    if let Err(Unsent::Client(error)) = sent {
        note_send_error(x, Err(error));
    }
}

/// Writes to the error log of the location, with what identifies the request.
pub fn report(x: &Exchange, client: &Client, level: Level, message: std::fmt::Arguments<'_>) {
    log::error::report(x, client, level, message);
}
