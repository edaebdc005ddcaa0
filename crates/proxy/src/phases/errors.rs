//! `error_page`, and the built-in pages.

use std::sync::Arc;

use balanza_config::model::{ErrorPage, Overwrite};
use balanza_message::Method;

use crate::exchange::Exchange;
use crate::response::{self, Unsent};
use crate::step::{self, Step};
use crate::variables;

/// The `error_page` of this status; `None` for the built-in page.
pub fn error_page(x: &mut Exchange, status: u16) -> Option<Step> {
    if !x.route.may_use_error_page() || x.sent.head {
        return None;
    }
    let location = Arc::clone(x.location());
    let page: &ErrorPage = location.settings.error_pages.iter().find(|page| page.status == status)?;
    let mut target = Vec::new();
    if let Err(undecided) = variables::render(&page.target, x, &mut target) {
        x.route.forbid_error_page();
        return Some(undecided.into());
    }
    end_keep_alive_after(x, status);
    if !matches!(page.overwrite, Overwrite::Status(200) | Overwrite::Handler) {
        // As in NGINX, the client is not told to send the body.
        x.body.continued = true;
    }
    let shown = match page.overwrite {
        Overwrite::Keep => shown(status),
        Overwrite::Status(status) => status,
        Overwrite::Handler => 0,
    };
    x.route.use_error_page(shown, location.settings.recursive_error_pages);
    match target.first() {
        Some(b'/') => {
            x.route.method_is_get = x.request.method != Method::Head;
            let (path, args) = match target.iter().position(|byte| *byte == b'?') {
                Some(mark) => (target[..mark].to_vec(), target[mark + 1..].to_vec()),
                None => (target, Vec::new()),
            };
            Some(Step::Internal(path, args))
        }
        Some(b'@') => Some(Step::Named(target[1..].to_vec())),
        _ => {
            let status = match page.overwrite {
                Overwrite::Status(status @ (301 | 302 | 303 | 307 | 308)) => status,
                _ => 302,
            };
            x.route.forget_error_status();
            x.route.redirect = Some(target);
            Some(Step::Error(status))
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
        x.sent.end_connection();
    }
}

/// Sends the built-in page, or the redirect that is due.
pub async fn answer_error(x: &mut Exchange, status: u16) {
    end_keep_alive_after(x, status);
    if x.sent.head {
        // Too late for a page: the client gets a truncated response.
        x.sent.end_connection();
        return;
    }
    let mut sent = match x.route.redirect.take() {
        Some(target) => response::send_redirect(x, status, &target).await,
        None => response::send_error(x, status).await,
    };
    if let Err(Unsent::Undecided(_)) = sent {
        x.route.forget_error_status();
        x.sent.end_connection();
        sent = response::send_error(x, 500).await;
    }
    if let Err(Unsent::Client(error)) = sent {
        step::note_send_error(x, Err(error));
    }
}
