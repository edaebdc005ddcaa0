//! The thread that answers.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::Receiver;

use anyhow::Context as _;

use super::plane::Plane;
use super::service::Service;
use super::{Failure, router};
use crate::desk::Question;

/// Starts the thread. It ends with what leaves the questions.
///
/// # Errors
/// The thread cannot be started.
pub fn start(plane: Box<dyn Plane>, questions: Receiver<Question>) -> anyhow::Result<()> {
    let run = move || work(Service::new(plane), &questions);
    std::thread::Builder::new().name("api".into()).spawn(run).context("cannot start the thread of the API")?;
    Ok(())
}

fn work(mut service: Service, questions: &Receiver<Question>) {
    while let Ok(Question { ask, answer }) = questions.recv() {
        // A client that has gone while it waited for its turn wants nothing any more.
        if answer.is_closed() {
            continue;
        }
        // A panic must not end the thread, which others need.
        let answered = catch_unwind(AssertUnwindSafe(|| router::answer(&mut service, &ask)));
        let broken = |_| Failure::new(500, "InternalError", "an error in Balanza").answer(&ask.request_id);
        let _ = answer.send(answered.unwrap_or_else(broken));
    }
}
