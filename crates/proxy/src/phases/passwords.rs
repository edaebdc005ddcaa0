//! `auth_basic`: users with passwords from a file.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use balanza_config::log_text::Escaped;
use balanza_config::model::{Level, Location};
use balanza_message::Method;
use balanza_net::shortage::describe;

use super::access::Opinion;
use crate::auth::{self, Unverified, htpasswd};
use crate::exchange::Exchange;
use crate::variables;

/// The longest file that is read.
const LONGEST_FILE: u64 = 64 << 20;

/// Whether the request has a user's name and password.
pub(super) async fn check(x: &mut Exchange, location: &Location) -> Opinion {
    let Some((realm, file)) = location.settings.auth_basic.given() else { return Opinion::None };
    let (mut text, mut path) = (Vec::new(), Vec::new());
    if let Err(undecided) = variables::render(realm, x, &mut text) {
        return Opinion::Failed(undecided.into());
    }
    if text == b"off" {
        return Opinion::None;
    }
    let Some(given) = auth::credentials(x) else {
        x.report(Level::Info, format_args!("no user/password was provided for basic authentication"));
        return challenge(x, &text);
    };
    if let Err(undecided) = variables::render(file, x, &mut path) {
        return Opinion::Failed(undecided.into());
    }
    let (user, shown) = (Escaped(&given.user), Escaped(&path));
    let users = match read(Path::new(OsStr::from_bytes(&path))) {
        Ok(users) => users,
        Err(error) => {
            let (level, status) = match error.kind() {
                io::ErrorKind::NotFound => (Level::Error, 403),
                _ => (Level::Crit, 500),
            };
            x.report(level, format_args!("open() \"{shown}\" failed {}", describe(&error)));
            return Opinion::Refused(status);
        }
    };
    let Some(hash) = htpasswd::find(&users, &given.user) else {
        x.report(Level::Error, format_args!("user \"{user}\" was not found in \"{shown}\""));
        return challenge(x, &text);
    };
    match auth::verify(hash, &given.password).await {
        Ok(true) => Opinion::Allowed,
        Ok(false) => {
            x.report(Level::Error, format_args!("user \"{user}\": password mismatch"));
            challenge(x, &text)
        }
        Err(Unverified::Unknown) => {
            let text = "has a password of an unknown or malformed kind in";
            x.report(Level::Error, format_args!("user \"{user}\" {text} \"{shown}\""));
            Opinion::Refused(500)
        }
        Err(Unverified::Busy) => {
            let text = "was not verified: too many passwords are being verified";
            x.report(Level::Error, format_args!("user \"{user}\" {text}"));
            Opinion::Refused(503)
        }
    }
}

/// Asks the client for a password.
fn challenge(x: &mut Exchange, realm: &[u8]) -> Opinion {
    x.checks.challenge = Some([b"Basic realm=\"", realm, b"\""].concat());
    Opinion::Refused(if x.method() == Method::Connect { 407 } else { 401 })
}

/// The users of a file. It is read each time, so that changes hold at once.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    File::open(path)?.take(LONGEST_FILE).read_to_end(&mut text)?;
    Ok(text)
}
