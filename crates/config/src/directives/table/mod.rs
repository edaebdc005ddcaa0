//! Every directive of NGINX 1.31's own modules on Linux, and Balanza's own: one row each, by module.
//!
//! A row says all about its directive: name, contexts, arguments, default, what reads it and where the value goes.
//! `super::row` has the forms of rows.

mod access;
mod api;
mod backends;
mod content;
mod grpc;
mod http;
mod mail;
mod main;
mod protocols;
mod proxy;
mod stream;
mod traces;
mod tunnel;
mod upstream;

use super::Directive;

/// What becomes of sizes of hash tables.
const HASH: &str = "tables have the size that they need";
/// What becomes of how responses are sent.
const PARTS: &str = "Balanza decides in which parts a response is sent";

/// The modules with their rows; "balanza" for what only Balanza has.
pub(super) fn modules() -> impl Iterator<Item = (&'static str, &'static [Directive])> {
    let files = [
        main::MODULES,
        http::MODULES,
        access::MODULES,
        api::MODULES,
        content::MODULES,
        proxy::MODULES,
        backends::MODULES,
        grpc::MODULES,
        tunnel::MODULES,
        upstream::MODULES,
        protocols::MODULES,
        traces::MODULES,
        stream::MODULES,
        mail::MODULES,
    ];
    files.into_iter().flatten().copied()
}
