//! The rewrite phase: `set` and `return`.

use std::sync::Arc;

use balanza_config::model::{Return, RewriteOp};

use crate::exchange::Exchange;
use crate::response::{self, Local};
use crate::step::Step;
use crate::variables;

/// Runs `set` and `return`; a step when one of them answers.
pub async fn rewrite(x: &mut Exchange, ops: &[RewriteOp]) -> Option<Step> {
    for op in ops {
        match op {
            RewriteOp::Set(slot, template) => {
                let mut value = Vec::new();
                if let Err(undecided) = variables::render(template, x, &mut value) {
                    return Some(undecided.into());
                }
                variables::set_user(x, *slot, Some(value));
            }
            RewriteOp::Return(found) => return Some(Box::pin(answer_return(x, found)).await),
        }
    }
    None
}

async fn answer_return(x: &mut Exchange, found: &Return) -> Step {
    if found.status == 444 {
        x.status = 444;
        return Step::Drop;
    }
    let mut text = Vec::new();
    match &found.text {
        Some(template) => {
            if let Err(undecided) = variables::render(template, x, &mut text) {
                return undecided.into();
            }
        }
        None if found.status >= 400 => return Step::Error(found.status),
        None => {}
    }
    if matches!(found.status, 301 | 302 | 303 | 307 | 308) {
        x.route.redirect = Some(text);
        return Step::Error(found.status);
    }
    let location = Arc::clone(x.location());
    let content_type = location.settings.default_type.as_bytes();
    let content_type = if found.status == 204 { b"" } else { content_type };
    let local = Local { status: found.status, content_type, body: &text, field: None };
    match response::send(x, local).await {
        Ok(()) => Step::Sent,
        Err(unsent) => unsent.step(x),
    }
}
