//! What shows the state of what runs, and changes it.

use crate::directives::Directive;
use crate::directives::row::{LOCATION, ONE, SLI, STREAM_SERVER, between, http, stream};

pub(super) const MODULES: &[(&str, &[Directive])] =
    &[("ngx_http_api_module", API), ("ngx_stream_api_module", STREAM_API)];

const API: &[Directive] = &[
    http("api", LOCATION, between(0, 1), "", |b, h, s| b.api(h, s)),
    http("status_zone", SLI, ONE, "", |b, h, s| b.http_status_zone(h, s)),
];

const STREAM_API: &[Directive] =
    &[stream("status_zone", STREAM_SERVER, ONE, "", |b, t, s| t.status_zone = b.zone_name(s))];
