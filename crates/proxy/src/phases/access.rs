//! The access phase: who may ask.

use balanza_config::model::{Level, Location};

use crate::access;
use crate::exchange::Exchange;
use crate::step::Step;

/// Refuses a client that `allow` and `deny` keep out.
///
/// # Errors The response to it.
pub fn check(x: &mut Exchange, location: &Location) -> Result<(), Step> {
    let rules = &location.settings.access;
    if rules.is_empty() || access::is_allowed(rules, x.peer()) {
        return Ok(());
    }
    x.report(Level::Error, format_args!("access forbidden by rule"));
    Err(Step::Error(403))
}
