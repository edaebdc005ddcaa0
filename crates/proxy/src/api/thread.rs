//! The thread that answers.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Instant, SystemTime};

use anyhow::Context as _;

use super::history::TICK;
use super::plane::Plane;
use super::service::Service;
use super::{Failure, router};
use crate::background;
use crate::desk::Question;

/// Starts the thread. It ends with what leaves the questions.
///
/// # Errors
/// The thread cannot be started.
pub fn start(plane: Box<dyn Plane>, questions: Receiver<Question>) -> anyhow::Result<()> {
    let run = move || work(Service::new(plane), &questions);
    background::spawn("api", run).context("cannot start the thread of the API")?;
    Ok(())
}

fn work(mut service: Service, questions: &Receiver<Question>) {
    let mut due = Instant::now();
    loop {
        let now = Instant::now();
        if now >= due {
            due = now + TICK;
            let Some(view) = service.plane.view() else { return };
            // A panic must not end the thread, which others need.
            let _ = catch_unwind(AssertUnwindSafe(|| service.history.tick(&view, SystemTime::now())));
        }
        if service.experiments.wait(now).is_zero() {
            let Some(view) = service.plane.view() else { return };
            let _ = catch_unwind(AssertUnwindSafe(|| service.drive_experiments(&view)));
        }
        let wait = due.saturating_duration_since(now).min(service.experiments.wait(now));
        let Question { ask, answer } = match questions.recv_timeout(wait) {
            Ok(question) => question,
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => return,
        };
        // A client that has gone while it waited for its turn wants nothing any more.
        if answer.is_closed() {
            continue;
        }
        let answered = catch_unwind(AssertUnwindSafe(|| router::answer(&mut service, &ask)));
        let broken = |_| Failure::new(500, "InternalError", "an error in Balanza").answer(&ask.request_id);
        let _ = answer.send(answered.unwrap_or_else(broken));
    }
}
