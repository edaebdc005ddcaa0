//! Takes a subrequest through the phases: those of its location, without the access phase, as in NGINX.

use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use balanza_net::{clock, event_loop};

use super::{follow, log, server};
use crate::exchange::{Exchange, Stub};
use crate::response::{self, Local};
use crate::ssi;
use crate::step::Step;

/// After this time it is watched whether the client closes the connection.
const WATCH_CLIENT_AFTER: Duration = Duration::from_millis(100);

/// Answers a subrequest. It is boxed because the phases of a request contain it.
pub fn run(sub: &mut Exchange) -> Pin<Box<dyn Future<Output = ()> + '_>> {
    Box::pin(async move {
        sub.begin_subrequest = Some(begin);
        let step = server::own_rewriting(sub).await;
        follow(sub, step).await;
        if sub.location().settings.subrequests.log {
            log::write(sub);
        }
    })
}

/// Answers a subrequest whose response is put into that of its request, beside the request.
pub fn begin(mut sub: Box<Exchange>) {
    let pages = sub.pages();
    event_loop::spawn(async move {
        let _running = Running::begin(pages);
        run(&mut sub).await;
        if let Some(stub) = sub.route.stub.take()
            && sub.sent.is_complete()
            && sub.sent.body_bytes == 0
        {
            // As it is, since the head has gone without it.
            let sent = sub.downstream.send(&stub.body, b"", Duration::MAX).await;
            sub.sent.finish(sent.is_ok());
        }
        sub.downstream.end_page(sub.sent.is_complete());
    });
}

/// A subrequest that is counted, until this is dropped.
struct Running(Rc<ssi::Common>);

impl Running {
    fn begin(pages: Rc<ssi::Common>) -> Running {
        pages.running.set(pages.running.get() + 1);
        Running(pages)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.set(self.0.running.get() - 1);
    }
}

/// Answers a subrequest with what stands in for its response.
pub(super) fn answer_stub(sub: &mut Exchange) -> Pin<Box<dyn Future<Output = Step> + '_>> {
    Box::pin(async move {
        let Some(Stub { content_type, body }) = sub.route.stub.take().map(|stub| *stub) else { return Step::Sent };
        sub.route.forget_error_status();
        let local = Local { status: 200, content_type: &content_type, body: &body, field: None };
        match response::send(sub, local).await {
            Ok(()) => Step::Sent,
            Err(unsent) => unsent.step(sub),
        }
    })
}

/// Answers a subrequest that the request waits for; false if the client has gone.
pub async fn wait_for(x: &mut Exchange, sub: &mut Exchange) -> bool {
    let ignores_abort = x.location().settings.proxy.ignore_client_abort;
    let watch = clock::after(WATCH_CLIENT_AFTER);
    let mut running = run(sub);
    poll_fn(|cx| {
        if running.as_mut().poll(cx).is_ready() {
            return Poll::Ready(true);
        }
        let watches = !ignores_abort && x.downstream.timer.poll_expired(cx, watch);
        if watches && x.downstream.poll_peer_closed(cx).is_ready() {
            return Poll::Ready(false);
        }
        Poll::Pending
    })
    .await
}
