//! What shows the state of what runs, and changes it.

use crate::directives::Directive;
use crate::directives::row::{
    HTTP, LOCATION, NONE, ONE, SLI, STREAM, STREAM_SERVER, at_least, between, exactly, http, stream,
};
use crate::model::Handler;

pub(super) const MODULES: &[(&str, &[Directive])] = &[
    ("balanza", OWN_API),
    ("ngx_http_api_module", API),
    ("ngx_http_keyval_module", KEYVAL),
    ("ngx_stream_api_module", STREAM_API),
    ("ngx_stream_keyval_module", STREAM_KEYVAL),
];

const API: &[Directive] = &[
    http("api", LOCATION, between(0, 1), "", |b, h, s| b.api(h, s)),
    http("status_zone", SLI, ONE, "", |b, h, s| b.http_status_zone(h, s)),
];

const STREAM_API: &[Directive] =
    &[stream("status_zone", STREAM_SERVER, ONE, "", |b, t, s| t.status_zone = b.zone_name(s))];

const KEYVAL: &[Directive] = &[
    // Its variable is read with those of `map`, before what uses it.
    http("keyval", HTTP, exactly(3), "", |_, _, _| {}).again(),
    http("keyval_zone", HTTP, at_least(1), "", |b, _, s| b.keyval_zone(s)).again(),
];

const STREAM_KEYVAL: &[Directive] = &[
    stream("keyval", STREAM, exactly(3), "", |_, _, _| {}).again(),
    stream("keyval_zone", STREAM, at_least(1), "", |b, _, s| b.keyval_zone(s)).again(),
];

const OWN_API: &[Directive] = &[
    http("dashboard", LOCATION, between(0, 1), "", |b, h, s| b.dashboard(h, s)),
    http("metrics", LOCATION, NONE, "", |b, h, _| {
        h.own.handler = Some(Handler::Metrics);
        b.is_controlled = true;
    }),
];
