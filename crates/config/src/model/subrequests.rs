//! Requests that are made for a client's request: `auth_request`, `mirror`, `ssi`.

use crate::template::{Template, UserSlot};

/// The requests that a location makes.
#[derive(Debug, Clone, Default)]
pub struct Subrequests {
    /// `auth_request`: the URI that is asked whether a client has access; `None` for `off`.
    pub auth: Option<Box<[u8]>>,
    /// `auth_request_set`: variables, and their values in that subrequest.
    pub auth_sets: Vec<(UserSlot, Template)>,
    /// `mirror`: the URIs that get a copy of each request; empty for `off`.
    pub mirrors: Vec<Box<[u8]>>,
    /// `mirror_request_body` (on): the copy has the body.
    pub mirror_request_body: bool,
    /// `log_subrequest` (off): subrequests are written to the access logs.
    pub log: bool,
    /// `subrequest_output_buffer_size` (4k): most bytes of a response that is kept as a variable.
    pub output_buffer: usize,
}
