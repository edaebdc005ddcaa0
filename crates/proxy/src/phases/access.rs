//! The access phase: who may ask.

use balanza_config::model::{Level, Location};

use super::auth_request::{self, Verdict};
use crate::access;
use crate::exchange::Exchange;
use crate::step::Step;

/// Refuses a client that `allow` and `deny` keep out, or the URI of `auth_request`.
///
/// # Errors
/// The response to it.
pub async fn check(x: &mut Exchange, location: &Location) -> Result<(), Step> {
    let rules = &location.settings.access;
    if !rules.is_empty() && !access::is_allowed(rules, x.client().peer) {
        x.report(Level::Error, format_args!("access forbidden by rule"));
        return Err(Step::Error(403));
    }
    if let Some(uri) = &location.settings.subrequests.auth {
        return match Box::pin(auth_request::ask(x, location, uri)).await {
            Verdict::Allowed => Ok(()),
            Verdict::Denied(status) => Err(Step::Error(status)),
            Verdict::Failed(step) => Err(step),
        };
    }
    Ok(())
}
