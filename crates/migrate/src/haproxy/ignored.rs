//! Lines that need no counterpart.

use super::lines::Line;

/// What Balanza does anyway, or what tunes how HAProxy works inside.
const NEEDLESS: &[&[&str]] = &[
    &["option", "httplog"],
    &["option", "tcplog"],
    &["option", "dontlognull"],
    &["option", "dontlog-normal"],
    &["option", "logasap"],
    &["option", "log-health-checks"],
    &["option", "log-separate-errors"],
    &["option", "http-server-close"],
    &["option", "http-keep-alive"],
    &["option", "http-use-htx"],
    &["option", "http-no-delay"],
    &["option", "redispatch"],
    &["option", "abortonclose"],
    &["option", "tcp-smart-accept"],
    &["option", "tcp-smart-connect"],
    &["option", "splice-auto"],
    &["option", "splice-request"],
    &["option", "splice-response"],
    &["option", "contstats"],
    &["option", "clitcpka"],
    &["option", "srvtcpka"],
    &["option", "tcpka"],
    &["option", "tcp-check"],
    &["option", "accept-invalid-http-request"],
    &["option", "prefer-last-server"],
    &["option", "socket-stats"],
    &["option", "h1-case-adjust-bogus-client"],
    &["option", "forceclose"],
    &["option", "httpclose"],
    &["no", "log"],
    &["no", "option"],
    &["log"],
    &["http-reuse"],
    &["fullconn"],
    &["description"],
    &["id"],
    &["guid"],
    &["enabled"],
    &["grace"],
    &["max-keep-alive-queue"],
    &["tcp-request", "inspect-delay"],
];

/// Whether a line can be left out without a word.
pub fn is_needless(line: &Line) -> bool {
    NEEDLESS.iter().any(|words| line.is(words))
}
