//! What makes or changes the content of a response.

use crate::block::put;
use crate::directives::Directive;
use crate::directives::row::{
    FLAG, HSL, HSLI, HTTP, LE, LOCATION, NONE, ONE, SL, TWO, at_least, between, http, no_effect, refused,
};
use crate::model::Handler;
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
    http("add_after_body", HSL, ONE, "", |_, h, s| h.filters().addition.after = s.words[1].value.as_slice().into()),
    http("add_before_body", HSL, ONE, "", |_, h, s| h.filters().addition.before = s.words[1].value.as_slice().into()),
    http("addition_types", HSL, at_least(1), "", |b, h, s| b.media_types(h, s, |it| &mut it.addition.types))
        .again()
        .documented("text/html"),
];

const AUTOINDEX: &[Directive] = &[
    http("autoindex", HSL, FLAG, "off", |b, h, s| put(&mut h.answers().autoindex.enabled, b.flag(s))),
    http("autoindex_exact_size", HSL, FLAG, "on", |b, h, s| put(&mut h.answers().autoindex.exact_size, b.flag(s))),
    http("autoindex_format", HSL, ONE, "html", |b, h, s| b.listing_format(h, s)),
    http("autoindex_localtime", HSL, FLAG, "off", |b, h, s| put(&mut h.answers().autoindex.localtime, b.flag(s))),
];

/// What `charset` is for besides `text/html`, unless `charset_types` says something else.
const CHARSET_TYPES: &str = "text/xml text/plain text/vnd.wap.wml application/javascript application/rss+xml";

const CHARSET: &[Directive] = &[
    http("charset", HSLI, ONE, "off", |b, h, s| put(&mut h.filters().charset.target, b.charset_name(s, true))),
    http("charset_map", HTTP, TWO.block(), "", |b, _, s| b.charset_map(s)).again(),
    http("charset_types", HSL, at_least(1), CHARSET_TYPES, |b, h, s| b.media_types(h, s, |it| &mut it.charset.types))
        .again()
        .documented("text/html text/xml text/plain …"),
    http("override_charset", HSLI, FLAG, "off", |b, h, s| put(&mut h.filters().charset.override_given, b.flag(s))),
    http("source_charset", HSLI, ONE, "", |b, h, s| put(&mut h.filters().charset.source, b.charset_name(s, false))),
];

const COPY: &[Directive] = &[no_effect("output_buffers", HSL, TWO, "2 32k", tuning::buffers, PARTS)];

const DAV: &[Directive] = &[
    refused("create_full_put_path", HSL, FLAG),
    refused("dav_access", HSL, between(1, 3)),
    refused("dav_methods", HSL, at_least(1)),
    refused("min_delete_depth", HSL, ONE),
];

const DEGRADATION: &[Directive] = &[refused("degradation", HTTP, ONE), refused("degrade", HSL, ONE)];

const EMPTY_GIF: &[Directive] =
    &[http("empty_gif", LOCATION, NONE, "", |_, h, _| h.own.handler = Some(Handler::EmptyGif)).again()];

const FLV: &[Directive] = &[refused("flv", LOCATION, NONE)];

const GUNZIP: &[Directive] = &[
    http("gunzip", HSL, FLAG, "off", |b, h, s| put(&mut h.filters().gunzip, b.flag(s))),
    no_effect("gunzip_buffers", HSL, TWO, "32 4k", tuning::buffers, PARTS),
];

const GZIP: &[Directive] = &[
    http("gzip", HSLI, FLAG, "off", |b, h, s| put(&mut h.filters().gzip.enabled, b.flag(s))),
    no_effect("gzip_buffers", HSL, TWO, "32 4k", tuning::buffers, PARTS),
    http("gzip_comp_level", HSL, ONE, "1", |b, h, s| put(&mut h.filters().gzip.level, b.gzip_level(s))),
    no_effect("gzip_hash", HSL, ONE, "128k", tuning::gzip_hash, "the tables of the compressor have one size"),
    http("gzip_min_length", HSL, ONE, "20", |b, h, s| put(&mut h.filters().gzip.min_length, b.size(s))),
    no_effect("gzip_no_buffer", HSL, FLAG, "off", tuning::flag, PARTS),
    http("gzip_types", HSL, at_least(1), "", |b, h, s| b.media_types(h, s, |it| &mut it.gzip.types))
        .again()
        .documented("text/html"),
    http("gzip_window", HSL, ONE, "32k", |b, h, s| put(&mut h.filters().gzip.window, b.gzip_window(s))),
    no_effect("postpone_gzipping", HSL, ONE, "0", tuning::size, "compression begins with the first bytes"),
];

const GZIP_STATIC: &[Directive] =
    &[http("gzip_static", HSL, ONE, "off", |b, h, s| put(&mut h.settings.gzip_static, b.gzip_static(s)))];

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

const RANDOM_INDEX: &[Directive] =
    &[http("random_index", LOCATION, FLAG, "off", |b, h, s| put(&mut h.answers().random_index, b.flag(s)))];

const SLICE: &[Directive] = &[refused("slice", HSL, ONE)];

const SSI: &[Directive] = &[
    http("ssi", HSLI, FLAG, "off", |b, h, s| b.ssi(h, s)),
    no_effect("ssi_ignore_recycled_buffers", HSL, FLAG, "off", tuning::flag, PARTS),
    http("ssi_last_modified", HSL, FLAG, "off", |b, h, s| put(&mut h.filters().ssi.last_modified, b.flag(s))),
    no_effect("ssi_min_file_chunk", HSL, ONE, "1k", tuning::size, PARTS),
    http("ssi_silent_errors", HSL, FLAG, "off", |b, h, s| put(&mut h.filters().ssi.silent_errors, b.flag(s))),
    http("ssi_types", HSL, at_least(1), "", |b, h, s| b.media_types(h, s, |it| &mut it.ssi.types))
        .again()
        .documented("text/html"),
    http("ssi_value_length", HSL, ONE, "255", |b, h, s| put(&mut h.filters().ssi.value_length, b.size(s))),
];

const STUB_STATUS: &[Directive] =
    &[http("stub_status", SL, between(0, 1), "", |_, h, _| h.own.handler = Some(Handler::StubStatus)).again()];

const SUB: &[Directive] = &[
    http("sub_filter", HSL, TWO, "", |b, h, s| b.sub_filter(h, s)).again(),
    http("sub_filter_last_modified", HSL, FLAG, "off", |b, h, s| put(&mut h.filters().sub.last_modified, b.flag(s))),
    http("sub_filter_once", HSL, FLAG, "on", |b, h, s| put(&mut h.filters().sub.once, b.flag(s))),
    http("sub_filter_types", HSL, at_least(1), "", |b, h, s| b.media_types(h, s, |it| &mut it.sub.types))
        .again()
        .documented("text/html"),
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
