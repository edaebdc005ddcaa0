//! The access phase: who may ask. Its conditions are addresses, passwords and the answer of a subrequest; `satisfy` says whether all of them must
//! hold or one is enough.

use balanza_config::model::{Level, Location, Satisfy};

use super::auth_request;
use super::passwords;
use super::waiting::wait;
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

/// The conditions, in their order.
#[derive(Clone, Copy)]
enum Condition {
    Addresses,
    Passwords,
    Subrequest,
}

const CONDITIONS: [Condition; 3] = [Condition::Addresses, Condition::Passwords, Condition::Subrequest];

/// Whether a location has any condition.
pub(super) fn is_restricted(location: &Location) -> bool {
    let settings = &location.settings;
    !settings.access.is_empty() || settings.auth_basic.given().is_some() || settings.subrequests.auth.is_some()
}

/// Refuses a request that may not be made.
///
/// # Errors The response to it.
pub(super) async fn check(x: &mut Exchange, location: &Location) -> Result<(), Step> {
    let satisfy = location.settings.satisfy;
    let mut refused = None;
    for condition in CONDITIONS {
        let opinion = match condition {
            Condition::Addresses => by_address(x, location),
            Condition::Passwords => passwords::check(x, location).await,
            Condition::Subrequest => auth_request::check(x, location).await,
        };
        match (opinion, satisfy) {
            (Opinion::None, _) | (Opinion::Allowed, Satisfy::All) => {}
            (Opinion::Allowed, Satisfy::Any) => {
                x.checks.challenge = None;
                return Ok(());
            }
            (Opinion::Refused(status @ (401 | 403 | 407)), Satisfy::Any) => {
                // The client may still have a password.
                if !matches!(refused, Some(401 | 407)) {
                    refused = Some(status);
                }
            }
            (Opinion::Refused(status), _) => return refuse(x, location, status).await,
            (Opinion::Failed(step), _) => return Err(step),
        }
    }
    match refused {
        None => Ok(()),
        Some(status) => {
            if status == 403 {
                forbidden(x);
            }
            refuse(x, location, status).await
        }
    }
}

/// `allow` and `deny`.
fn by_address(x: &Exchange, location: &Location) -> Opinion {
    match access::judge(&location.settings.access, x.peer()) {
        None => Opinion::None,
        Some(true) => Opinion::Allowed,
        Some(false) => {
            if location.settings.satisfy == Satisfy::All {
                forbidden(x);
            }
            Opinion::Refused(403)
        }
    }
}

fn forbidden(x: &Exchange) {
    x.report(Level::Error, format_args!("access forbidden by rule"));
}

/// `auth_delay` keeps clients from trying many passwords quickly.
async fn refuse(x: &mut Exchange, location: &Location, status: u16) -> Result<(), Step> {
    let delay = location.settings.auth_delay;
    if matches!(status, 401 | 407) && !delay.is_zero() {
        x.report(Level::Info, format_args!("delaying unauthorized request"));
        wait(x, delay).await?;
    }
    Err(Step::Error(status))
}
