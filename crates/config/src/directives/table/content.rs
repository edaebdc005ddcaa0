//! What makes or changes the content of a response.

use crate::block::put;
use crate::directives::Directive;
use crate::directives::row::{
    FLAG, HSL, HSLI, HTTP, LE, LOCATION, NONE, ONE, SL, TWO, at_least, between, http, left_out, no_effect, only,
    refused,
};
use crate::tuning;

use super::PARTS;
pub(super) const MODULES: &[(&str, &[Directive])] = &[
    ("ngx_http_addition_module", ADDITION),
    ("ngx_http_autoindex_module", AUTOINDEX),
    ("ngx_http_charset_module", CHARSET),
    ("ngx_http_copy_module", COPY),
    ("ngx_http_dav_module", DAV),
    ("ngx_http_degradation_module", DEGRADATION),
    ("ngx_http_empty_gif_module", EMPTY_GIF),
    ("ngx_http_flv_module", FLV),
    ("ngx_http_gunzip_module", GUNZIP),
    ("ngx_http_gzip_module", GZIP),
    ("ngx_http_gzip_static_module", GZIP_STATIC),
    ("ngx_http_image_module", IMAGE),
    ("ngx_http_mirror_module", MIRROR),
    ("ngx_http_mp4_module", MP4),
    ("ngx_http_perl_module", PERL),
    ("ngx_http_random_index_module", RANDOM_INDEX),
    ("ngx_http_slice_module", SLICE),
    ("ngx_http_ssi_module", SSI),
    ("ngx_http_stub_status_module", STUB_STATUS),
    ("ngx_http_sub_module", SUB),
    ("ngx_http_xslt_module", XSLT),
];

const ADDITION: &[Directive] = &[
    refused("add_after_body", HSL, ONE),
    refused("add_before_body", HSL, ONE),
    refused("addition_types", HSL, at_least(1)),
];

const AUTOINDEX: &[Directive] = &[
    only("autoindex", HSL, FLAG, "off"),
    left_out("autoindex_exact_size", HSL, FLAG),
    left_out("autoindex_format", HSL, ONE),
    left_out("autoindex_localtime", HSL, FLAG),
];

const CHARSET: &[Directive] = &[
    only("charset", HSLI, ONE, "off"),
    refused("charset_map", HTTP, TWO.block()),
    left_out("charset_types", HSL, at_least(1)),
    left_out("override_charset", HSLI, FLAG),
    left_out("source_charset", HSLI, ONE),
];

const COPY: &[Directive] = &[no_effect("output_buffers", HSL, TWO, "2 32k", tuning::buffers, PARTS)];

const DAV: &[Directive] = &[
    refused("create_full_put_path", HSL, FLAG),
    refused("dav_access", HSL, between(1, 3)),
    refused("dav_methods", HSL, at_least(1)),
    refused("min_delete_depth", HSL, ONE),
];

const DEGRADATION: &[Directive] = &[refused("degradation", HTTP, ONE), refused("degrade", HSL, ONE)];

const EMPTY_GIF: &[Directive] = &[refused("empty_gif", LOCATION, NONE)];

const FLV: &[Directive] = &[refused("flv", LOCATION, NONE)];

const GUNZIP: &[Directive] = &[only("gunzip", HSL, FLAG, "off"), left_out("gunzip_buffers", HSL, TWO)];

const GZIP: &[Directive] = &[
    left_out("gzip", HSLI, FLAG).unless("off").note("nothing is compressed"),
    left_out("gzip_buffers", HSL, TWO),
    left_out("gzip_comp_level", HSL, ONE),
    left_out("gzip_hash", HSL, ONE),
    left_out("gzip_min_length", HSL, ONE),
    left_out("gzip_no_buffer", HSL, FLAG),
    left_out("gzip_types", HSL, at_least(1)),
    left_out("gzip_window", HSL, ONE),
    left_out("postpone_gzipping", HSL, ONE),
];

const GZIP_STATIC: &[Directive] = &[only("gzip_static", HSL, ONE, "off")];

const IMAGE: &[Directive] = &[
    refused("image_filter", LOCATION, between(1, 3)),
    refused("image_filter_buffer", HSL, ONE),
    refused("image_filter_interlace", HSL, FLAG),
    refused("image_filter_jpeg_quality", HSL, ONE),
    refused("image_filter_sharpen", HSL, ONE),
    refused("image_filter_transparency", HSL, FLAG),
    refused("image_filter_webp_quality", HSL, ONE),
];

const MIRROR: &[Directive] = &[
    http("mirror", HSL, ONE, "", |b, h, s| b.mirror(h, s)).again().documented("off"),
    http("mirror_request_body", HSL, FLAG, "on", |b, h, s| {
        put(&mut h.settings.subrequests.mirror_request_body, b.flag(s))
    }),
];

const MP4: &[Directive] = &[
    refused("mp4", LOCATION, NONE),
    refused("mp4_buffer_size", HSL, ONE),
    refused("mp4_max_buffer_size", HSL, ONE),
    refused("mp4_start_key_frame", HSL, FLAG),
];

const PERL: &[Directive] = &[
    refused("perl", LE, ONE),
    refused("perl_modules", HTTP, ONE),
    refused("perl_require", HTTP, ONE),
    refused("perl_set", HTTP, TWO),
];

const RANDOM_INDEX: &[Directive] = &[only("random_index", LOCATION, FLAG, "off")];

const SLICE: &[Directive] = &[refused("slice", HSL, ONE)];

const SSI: &[Directive] = &[
    only("ssi", HSLI, FLAG, "off"),
    refused("ssi_ignore_recycled_buffers", HSL, FLAG),
    refused("ssi_last_modified", HSL, FLAG),
    refused("ssi_min_file_chunk", HSL, ONE),
    refused("ssi_silent_errors", HSL, FLAG),
    refused("ssi_types", HSL, at_least(1)),
    refused("ssi_value_length", HSL, ONE),
];

const STUB_STATUS: &[Directive] =
    &[http("stub_status", SL, between(0, 1), "", |_, h, _| h.own.stub_status = true).again()];

const SUB: &[Directive] = &[
    refused("sub_filter", HSL, TWO),
    refused("sub_filter_last_modified", HSL, FLAG),
    refused("sub_filter_once", HSL, FLAG),
    refused("sub_filter_types", HSL, at_least(1)),
];

const XSLT: &[Directive] = &[
    refused("xml_external_entities", HSL, ONE),
    refused("xml_entities", HSL, ONE),
    refused("xslt_last_modified", HSL, FLAG),
    refused("xslt_param", HSL, TWO),
    refused("xslt_string_param", HSL, TWO),
    refused("xslt_stylesheet", LOCATION, at_least(1)),
    refused("xslt_types", HSL, at_least(1)),
];
