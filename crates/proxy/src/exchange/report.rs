//! A request in the error log.

use std::fmt::Arguments;

use balanza_config::log_text::Escaped;
use balanza_config::model::{Handler, Level};
use balanza_config::regex::MatchError;
use balanza_message::Header;

use super::Exchange;
use crate::undecided::Undecided;

impl Exchange {
    /// Writes to the error log of the location, with what identifies the request.
    pub fn report(&self, level: Level, message: Arguments<'_>) {
        report(self, level, message);
    }

    /// Logs why it is not known whether an expression matches.
    #[cold]
    pub fn undecided(&self, error: &MatchError) -> Undecided {
        self.report(Level::Alert, format_args!("{error}"));
        Undecided
    }
}

/// Writes a message about a request: what happened, the client, the server, the request line, the upstream, the host.
fn report(x: &Exchange, level: Level, message: Arguments<'_>) {
    let settings = &x.location().settings;
    if !settings.error_log.iter().any(|log| level <= log.level) {
        return;
    }
    let writer = x.running().errors_of(&settings.error_log);
    let peer = x.peer();
    let server = x.server().name.as_str();
    let mut request = String::new();
    if x.head_complete {
        request = format!(", request: \"{}\"", Escaped(x.text(x.request.line)));
    }
    if x.route.subrequest {
        request += &format!(", subrequest: \"{}\"", Escaped(&x.route.uri));
    }
    if let Some(attempt) = x.upstream.attempts.last().filter(|_| x.upstream.asking) {
        let (scheme, uri) = match (x.upstream.is_grpc(), x.upstream.target.tls) {
            _ if matches!(x.location().handler, Handler::Tunnel(_)) => ("", &b""[..]),
            (false, false) => ("http://", &x.upstream.uri[..]),
            (false, true) => ("https://", &x.upstream.uri[..]),
            (true, false) => ("grpc://", &b""[..]),
            (true, true) => ("grpcs://", &b""[..]),
        };
        let address = Escaped(attempt.address.as_deref().unwrap_or_default().as_bytes());
        request += &format!(", upstream: \"{scheme}{address}{}\"", Escaped(uri));
    }
    if let Some(host) = x.request_field(Header::Host) {
        request += &format!(", host: \"{}\"", Escaped(host));
    }
    writer.write(level, format_args!("*{} {message}, client: {peer}, server: {server}{request}", x.client().serial));
}
