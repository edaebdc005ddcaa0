//! A check of `http`: one request to one server, and what its answer must be.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use balanza_balancing::Outcome;
use balanza_config::model::{Handler, HealthCheck, Location, Match, Probe, Server};
use balanza_message::{Length, Method, Request, Span, Version};
use balanza_net::clock::{self, Nanos};

use super::judge::{judge_body, judge_grpc, judge_head};
use super::{Subject, Trouble};
use crate::client::Client;
use crate::downstream::Downstream;
use crate::exchange::Exchange;
use crate::running_config::Listener;
use crate::servers::pool::ServerConnection;
use crate::upstream::check::{Asked, NoAnswer, Question, ask};
use crate::values;
use crate::variables;

/// A connection that the next check may use.
#[derive(Default)]
pub struct Kept {
    connection: Option<Box<ServerConnection>>,
}

impl Kept {
    /// Closes a connection that has been used for long enough.
    fn expire(&mut self, time: Duration, now: Nanos) {
        let is_old = |it: &mut Box<ServerConnection>| now.saturating_sub(it.opened) >= clock::nanos(time);
        drop(self.connection.take_if(is_old));
    }
}

/// Checks a server once.
///
/// # Errors
/// It has not passed.
pub async fn check(
    subject: &Subject,
    listener: &Rc<Listener>,
    server: &Arc<Server>,
    location: &Arc<Location>,
    kept: &mut Kept,
) -> Result<(), Trouble> {
    let HealthCheck { probe, keepalive_time, .. } = &subject.plan.check;
    let Handler::Proxy(pass) = &location.handler else { return Ok(()) };
    kept.expire(keepalive_time.unwrap_or_default(), clock::now());
    let mut x = Exchange::boxed();
    let (uri, question): (&[u8], Question<'_>) = match probe {
        Probe::Grpc { service, .. } => (b"/", Question::Grpc(service)),
        Probe::Http { uri, .. } => (uri, Question::Uri),
        Probe::Stream { .. } => return Ok(()),
    };
    begin(&mut x, subject, listener, uri);
    x.route.enter_server(server);
    x.route.enter(location);
    let keeps = keepalive_time.is_some();
    let asked = Asked { name: &subject.configured_name, address: &subject.address };
    let answer = ask(&mut x, location, pass, asked, question, &mut kept.connection, keeps).await;
    let body = answer.map_err(trouble)?;
    let failed = |why: String| Err(Trouble::Server(why));
    match probe {
        Probe::Grpc { status, .. } => {
            judge_grpc(&x.upstream.response, &x.upstream.trailers, &body, *status).or_else(failed)
        }
        Probe::Http { expected: None, .. } => match x.upstream.response.status {
            200..=399 => Ok(()),
            status => failed(format!("status {status}")),
        },
        Probe::Http { expected: Some(expected), .. } => {
            judge_head(expected, &x.upstream.response).or_else(failed)?;
            judge_body(expected, &body).or_else(failed)?;
            require(expected, &mut x)
        }
        Probe::Stream { .. } => Ok(()),
    }
}

/// A request that no client has sent.
fn begin(x: &mut Exchange, subject: &Subject, listener: &Rc<Listener>, uri: &[u8]) {
    let client = Rc::new(Client::none(&subject.plan.thread));
    x.begin(&client, listener, 1);
    x.downstream = Downstream::nowhere();
    x.body.begin(balanza_http1::Body::None, false);
    let (method, version) = (b"GET ", b" HTTP/1.1");
    let mut text = method.to_vec();
    text.extend_from_slice(uri);
    text.extend_from_slice(version);
    let origin = Span::new(method.len(), method.len() + uri.len());
    let mark = uri.iter().position(|byte| *byte == b'?');
    let path = Span::new(method.len(), method.len() + mark.unwrap_or(uri.len()));
    x.route.uri.extend_from_slice(path.of(&text));
    if let Some(mark) = mark {
        x.route.args.extend_from_slice(&uri[mark + 1..]);
    }
    x.request = Request {
        method: Method::Get,
        method_name: Span::new(0, 3),
        line: Span::new(0, text.len()),
        origin,
        path,
        query: mark.map(|mark| Span::new(method.len() + mark + 1, method.len() + uri.len())),
        version: Version::Http11,
        body: Length::None,
        text,
        ..Request::default()
    };
    x.head_complete = true;
}

/// `require`: none of the values is empty or "0".
fn require(expected: &Match, x: &mut Exchange) -> Result<(), Trouble> {
    x.status = x.upstream.response.status;
    let mut value = Vec::new();
    for (index, template) in expected.required.iter().enumerate() {
        value.clear();
        if variables::render(template, x, &mut value).is_err() {
            return Err(Trouble::Own("a regular expression is undecided".into()));
        }
        if !values::is_true(&value) {
            return Err(Trouble::Server(format!("value {} of \"require\" is not set", index + 1)));
        }
    }
    Ok(())
}

/// Why there is no answer: a shortage of this machine says nothing about the server.
fn trouble(error: NoAnswer) -> Trouble {
    match error {
        NoAnswer::Undecided => Trouble::Own("a regular expression is undecided".into()),
        NoAnswer::Failed(failure) => {
            let why = failure.message().map_or_else(String::new, |(_, message)| message);
            if failure.outcome() == Outcome::Failure { Trouble::Server(why) } else { Trouble::Own(why) }
        }
    }
}
