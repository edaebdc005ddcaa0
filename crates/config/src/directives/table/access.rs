//! Who may do what: access, limits, and what is known of a client.

use std::sync::Arc;

use crate::block::put;
use crate::directives::Directive;
use crate::directives::row::{
    FLAG, HSL, HSLE, HTTP, ONE, SL, TWO, at_least, between, block, exactly, http, no_effect, refused,
};
use crate::tuning;

use super::HASH;
pub(super) const MODULES: &[(&str, &[Directive])] = &[
    ("ngx_http_access_module", ACCESS),
    ("ngx_http_auth_basic_module", AUTH_BASIC),
    ("ngx_http_auth_request_module", AUTH_REQUEST),
    ("ngx_http_browser_module", BROWSER),
    ("ngx_http_geo_module", GEO),
    ("ngx_http_geoip_module", GEOIP),
    ("ngx_http_limit_conn_module", LIMIT_CONN),
    ("ngx_http_limit_req_module", LIMIT_REQ),
    ("ngx_http_realip_module", REALIP),
    ("ngx_http_referer_module", REFERER),
    ("ngx_http_secure_link_module", SECURE_LINK),
    ("ngx_http_split_clients_module", SPLIT_CLIENTS),
    ("ngx_http_userid_module", USERID),
];

const ACCESS: &[Directive] = &[
    http("allow", HSLE, ONE, "", |b, h, s| h.given.list(&mut h.settings.access).extend(b.access_rule(s, true)))
        .again()
        .sets("access"),
    http("deny", HSLE, ONE, "", |b, h, s| h.given.list(&mut h.settings.access).extend(b.access_rule(s, false)))
        .again()
        .sets("access"),
];

const AUTH_BASIC: &[Directive] = &[
    http("auth_basic", HSLE, ONE, "off", |b, h, s| put(&mut h.settings.auth_basic.realm, b.realm(s))),
    http("auth_basic_user_file", HSLE, ONE, "", |b, h, s| {
        put(&mut h.settings.auth_basic.user_file, b.file_template(s).map(Some))
    }),
];

const AUTH_REQUEST: &[Directive] = &[
    http("auth_request", HSL, ONE, "off", |b, h, s| put(&mut h.settings.subrequests.auth, b.auth_request(s))),
    http("auth_request_set", HSL, TWO, "", |b, h, s| {
        h.given.list(&mut h.settings.subrequests.auth_sets).extend(b.auth_request_set(s))
    })
    .again(),
];

const BROWSER: &[Directive] = &[
    http("ancient_browser", HSL, at_least(1), "", |b, h, s| {
        let first = h.given.is_first();
        let browsers = &mut h.client().browsers;
        if first {
            (browsers.ancient, browsers.netscape4) = (Vec::new(), false);
        }
        b.ancient_browser(browsers, s);
    })
    .again(),
    http("ancient_browser_value", HSL, ONE, "1", |_, h, s| {
        h.client().browsers.ancient_value = s.words[1].value.as_slice().into();
    }),
    http("modern_browser", HSL, between(1, 2), "", |b, h, s| {
        let first = h.given.is_first();
        let browsers = &mut h.client().browsers;
        if first {
            (browsers.modern, browsers.unlisted_are_modern) = (Vec::new(), false);
        }
        b.modern_browser(browsers, s);
    })
    .again(),
    http("modern_browser_value", HSL, ONE, "1", |_, h, s| {
        h.client().browsers.modern_value = s.words[1].value.as_slice().into();
    }),
];

const GEO: &[Directive] = &[block("geo", HTTP, between(1, 2).block()).again()];

const GEOIP: &[Directive] = &[
    refused("geoip_city", HTTP, between(1, 2)),
    refused("geoip_country", HTTP, between(1, 2)),
    refused("geoip_org", HTTP, between(1, 2)),
    refused("geoip_proxy", HTTP, ONE),
    refused("geoip_proxy_recursive", HTTP, FLAG),
];

const LIMIT_CONN: &[Directive] = &[
    http("limit_conn", HSL, TWO, "", |b, h, s| {
        b.limit_conn(&h.given, Arc::make_mut(&mut h.settings.limits), s);
        h.settings.limited = true;
    })
    .again(),
    http("limit_conn_dry_run", HSL, FLAG, "off", |b, h, s| put(&mut h.limits().connection_dry_run, b.flag(s))),
    http("limit_conn_log_level", HSL, ONE, "error", |b, h, s| put(&mut h.limits().connection_level, b.limit_level(s))),
    http("limit_conn_status", HSL, ONE, "503", |b, h, s| put(&mut h.limits().connection_status, b.limit_status(s))),
    http("limit_conn_zone", HTTP, TWO, "", |b, _, s| b.limit_conn_zone(s)).again(),
];

const LIMIT_REQ: &[Directive] = &[
    http("limit_req", HSL, between(1, 3), "", |b, h, s| {
        b.limit_req(&h.given, Arc::make_mut(&mut h.settings.limits), s);
        h.settings.limited = true;
    })
    .again(),
    http("limit_req_dry_run", HSL, FLAG, "off", |b, h, s| put(&mut h.limits().request_dry_run, b.flag(s))),
    http("limit_req_log_level", HSL, ONE, "error", |b, h, s| put(&mut h.limits().request_level, b.limit_level(s))),
    http("limit_req_status", HSL, ONE, "503", |b, h, s| put(&mut h.limits().request_status, b.limit_status(s))),
    http("limit_req_zone", HTTP, exactly(3), "", |b, _, s| b.limit_req_zone(s)).again(),
];

const REALIP: &[Directive] = &[
    http("real_ip_header", HSL, ONE, "X-Real-IP", |b, h, s| put(&mut h.client().real_ip.header, b.real_ip_header(s))),
    http("real_ip_recursive", HSL, FLAG, "off", |b, h, s| put(&mut h.client().real_ip.recursive, b.flag(s))),
    http("set_real_ip_from", HSL, ONE, "", |b, h, s| {
        let first = h.given.is_first();
        let from = &mut h.client().real_ip.from;
        if first {
            from.clear();
        }
        from.extend(b.real_ip_from(s));
    })
    .again(),
];

const REFERER: &[Directive] = &[
    no_effect("referer_hash_bucket_size", SL, ONE, "64", tuning::number, HASH),
    no_effect("referer_hash_max_size", SL, ONE, "2048", tuning::number, HASH),
    http("valid_referers", SL, at_least(1), "", |b, h, s| b.valid_referers(h, s)).again(),
];

const SECURE_LINK: &[Directive] = &[
    http("secure_link", HSL, ONE, "", |b, h, s| b.secure_link(h, s)),
    http("secure_link_md5", HSL, ONE, "", |b, h, s| b.secure_link(h, s)),
    http("secure_link_secret", HSL, ONE, "", |b, h, s| b.secure_link(h, s)),
];

const SPLIT_CLIENTS: &[Directive] = &[block("split_clients", HTTP, TWO.block()).again()];

const USERID: &[Directive] = &[
    http("userid", HSL, ONE, "off", |b, h, s| put(&mut h.client().user_id.mode, b.user_id(s))),
    http("userid_domain", HSL, ONE, "none", |b, h, s| h.client().user_id.domain = b.text_or_none(s)),
    http("userid_expires", HSL, ONE, "off", |b, h, s| put(&mut h.client().user_id.expires, b.user_id_expires(s))),
    http("userid_flags", HSL, between(1, 3), "off", |b, h, s| {
        put(&mut h.client().user_id.flags, b.user_id_flags(s));
    }),
    http("userid_mark", HSL, ONE, "off", |b, h, s| put(&mut h.client().user_id.mark, b.user_id_mark(s))),
    http("userid_name", HSL, ONE, "uid", |_, h, s| h.client().user_id.name = s.words[1].value.as_slice().into()),
    http("userid_p3p", HSL, ONE, "none", |b, h, s| h.client().user_id.p3p = b.text_or_none(s)),
    http("userid_path", HSL, ONE, "/", |_, h, s| h.client().user_id.path = s.words[1].value.as_slice().into()),
    http("userid_service", HSL, ONE, "", |b, h, s| {
        // NGINX keeps the lower 32 bits of the number.
        let service: Option<u64> = b.number(s);
        put(&mut h.client().user_id.service, service.map(|number| Some((number & u64::from(u32::MAX)) as u32)));
    })
    .documented("the address that the client connected to"),
];
