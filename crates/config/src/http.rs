//! What the directives of `http` and of the blocks in it say.

mod answers;
mod api;
mod block;
mod filters;
mod grpc;
mod http2;
mod limits;
mod proxy;
mod rewrite;
mod settings;
mod store;
mod subrequests;
mod traces;
mod try_files;
mod tunnel;

pub(crate) use block::{HttpBlock, LocationName, Own};
pub(crate) use http2::application_protocols;
pub(crate) use proxy::{Pass, hidden_headers, keep_redirect_rule, request_headers};
pub(crate) use settings::{nested_alias, network};
