//! The access phase: who may ask.

use balanza_config::model::{Level, Location};

use super::auth_request;
use crate::access;
use crate::exchange::Exchange;
use crate::step::Step;

/// What a condition says of a request.
pub(super) enum Opinion {
    /// Nothing: the location does not have the condition.
    None,
    /// It holds.
    Allowed,
    /// It does not hold.
    Refused(u16),
    /// Whether it holds is not known. This is the response.
    Failed(Step),
}

/// Whether a location has any condition.
pub(super) fn is_restricted(location: &Location) -> bool {
    let settings = &location.settings;
    !settings.access.is_empty() || settings.subrequests.auth.is_some()
}

/// Refuses a request that may not be made.
///
/// # Errors
/// The response to it.
pub(super) async fn check(x: &mut Exchange, location: &Location) -> Result<(), Step> {
    let rules = &location.settings.access;
    if !rules.is_empty() && !access::is_allowed(rules, x.client().peer) {
        x.report(Level::Error, format_args!("access forbidden by rule"));
        return Err(Step::Error(403));
    }
    match auth_request::check(x, location).await {
        Opinion::None | Opinion::Allowed => Ok(()),
        Opinion::Refused(status) => Err(Step::Error(status)),
        Opinion::Failed(step) => Err(step),
    }
}
