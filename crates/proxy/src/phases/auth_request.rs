//! `auth_request`: asks a URI whether a client has access.

use balanza_config::model::{Level, Location};
use balanza_message::Header;

use super::access::Opinion;
use super::subrequest;
use crate::exchange::Exchange;
use crate::step::Step;
use crate::undecided::Undecided;
use crate::variables;

/// Asks the URI of `auth_request`, and sets the variables of `auth_request_set`.
pub(super) async fn check(x: &mut Exchange, location: &Location) -> Opinion {
    let Some(uri) = &location.settings.subrequests.auth else { return Opinion::None };
    let mut sub = x.subrequest(uri, b"");
    sub.route.method_is_get = true;
    let body = std::mem::replace(&mut x.request.body, balanza_message::Length::None);
    x.lend(&mut sub);
    let answered = subrequest::wait_for(x, &mut sub).await;
    let set = set_variables(&mut sub, location);
    x.lend(&mut sub);
    x.request.body = body;
    if !answered {
        x.status = 499;
        x.sent.end_connection();
        x.report(Level::Info, format_args!("client prematurely closed connection"));
        return Opinion::Failed(Step::Drop);
    }
    if sub.sent.drops_connection() {
        x.status = sub.status;
        return Opinion::Failed(Step::Drop);
    }
    if let Err(undecided) = set {
        return Opinion::Failed(undecided.into());
    }
    match sub.status {
        200..300 => Opinion::Allowed,
        403 => Opinion::Refused(403),
        401 => {
            take_challenges(x, &sub);
            Opinion::Refused(401)
        }
        status => {
            // This decides whatever other conditions say.
            x.report(Level::Error, format_args!("auth request unexpected status: {status}"));
            Opinion::Failed(Step::Error(500))
        }
    }
}

/// Sets variables to their values in the subrequest.
fn set_variables(sub: &mut Exchange, location: &Location) -> Result<(), Undecided> {
    for (slot, template) in &location.settings.subrequests.auth_sets {
        let mut value = Vec::new();
        variables::render(template, sub, &mut value)?;
        variables::set_user(sub, *slot, Some(value));
    }
    Ok(())
}

/// The client gets the challenges of the subrequest: that of its `auth_basic` or those of its server, and none that an
/// `add_header` has added.
fn take_challenges(x: &mut Exchange, sub: &Exchange) {
    let name: &[u8] = b"WWW-Authenticate";
    let kept = x.upstream.passed_fields.len();
    let passed = sub.upstream.passed_fields.iter().filter(|(field, _)| field.eq_ignore_ascii_case(name));
    for (_, value) in passed.chain(sub.checks.challenge.as_ref().map(|challenge| (name, &challenge[..]))) {
        x.upstream.passed_fields.push(name, value);
    }
    if x.upstream.passed_fields.len() == kept && sub.upstream.answered {
        x.upstream.pass_fields_of(&sub.upstream.response, |header, _| header == Header::WwwAuthenticate);
    }
}
