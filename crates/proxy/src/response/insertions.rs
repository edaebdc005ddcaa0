//! Performs what pages ask for, and puts the responses of subrequests into a response.

use std::fmt::Arguments;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

use balanza_config::log_text::Escaped;
use balanza_config::model::Level;
use balanza_message::Header;

use crate::downstream::{Downstream, SendError};
use crate::exchange::{Exchange, Stub};
use crate::filters::{Chain, Value};
use crate::insertion;
use crate::ssi::{Due, Effect, Host, Include};
use crate::undecided::Undecided;
use crate::variables;

/// Requests in requests, as in NGINX.
const MOST_DEPTH: u8 = 51;

/// Performs a command of a page.
pub fn perform(x: &mut Exchange, chain: &mut Chain, due: &Due) {
    let Some(page) = chain.page() else { return };
    let effect = page.perform(due, &mut Asking(x));
    if let Effect::Include(include) = effect
        && !begin(x, chain, include)
        && let Some(page) = chain.page()
    {
        page.fail();
    }
}

/// Asks a URI of the configuration, whose response is inserted here.
pub fn add(x: &mut Exchange, chain: &mut Chain, uri: &[u8]) {
    let (path, args) = (uri.to_vec(), Vec::new());
    begin(x, chain, Include { path, args, stub: None, variable: None, waits: false });
}

/// Begins a subrequest; false if requests are nested too deep.
fn begin(x: &mut Exchange, chain: &mut Chain, include: Include) -> bool {
    let Include { path, args, stub, variable, waits } = include;
    let (Some(joint), Some(begin)) = (chain.joint(), x.begin_subrequest) else { return false };
    if x.route.depth >= MOST_DEPTH {
        x.report(Level::Error, format_args!("subrequests cycle while processing \"{}\"", Escaped(&path)));
        return false;
    }
    // Its own pages share variables with those of this request.
    x.pages();
    let mut sub = x.subrequest(&path, &args);
    x.copy_to(&mut sub);
    sub.route.method_is_get = true;
    if let Some(body) = stub {
        let content_type = x.reply.fields.find(Header::ContentType).unwrap_or_default().to_vec();
        sub.route.stub = Some(Box::new(Stub { content_type, body }));
    }
    let (sender, receiver) = insertion::channel();
    sub.downstream = Downstream::page(sender);
    let value = variable.map(|name| Value { name, bytes: Vec::new() });
    joint.insert(receiver, value, waits);
    begin(sub);
    true
}

/// Waits until the subrequest that comes next has something.
///
/// # Errors
/// The client has gone.
pub async fn wait(x: &mut Exchange, chain: &mut Chain) -> Result<(), SendError> {
    let mut waited = false;
    poll_fn(|cx| {
        // Whatever wakes the task, the chain is asked.
        if std::mem::replace(&mut waited, true) {
            return Poll::Ready(Ok(()));
        }
        chain.wake(cx);
        match x.downstream.poll_peer_closed(cx) {
            Poll::Ready(()) => Poll::Ready(Err(SendError::Closed)),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// A request whose response is a page.
struct Asking<'a>(&'a mut Exchange);

impl Host for Asking<'_> {
    fn variable(&mut self, name: &[u8], out: &mut Vec<u8>) -> Result<bool, Undecided> {
        let running = Rc::clone(self.0.running());
        match running.config.http.variable_names.find(name) {
            Some(variable) => variables::value(&variable, self.0, out),
            None => Ok(false),
        }
    }

    fn path(&self) -> &[u8] {
        &self.0.route.uri
    }

    fn set_time_format(&mut self, format: &[u8]) {
        self.0.values.time_format = Some(format.into());
    }

    fn report(&self, message: Arguments<'_>) {
        self.0.report(Level::Error, message);
    }
}
