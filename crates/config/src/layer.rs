//! What one level (`http`, `server`, `location`) sets, what it inherits, and the defaults.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::load::Builder;
use crate::model::{
    AccessLog, AccessLogTarget, AccessRule, AddHeader, ConnectionSettings, ErrorLog, ErrorPage, IfModifiedSince, Root,
    ServerTokens, Settings, TempPath,
};
use crate::proxy::ProxyLayer;
use crate::template::Template;

/// How `add_header` and `add_trailer` combine with the level above.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Inherit {
    /// Taken from above if the level has none.
    On,
    /// Never taken from above.
    Off,
    /// Those from above come first.
    Merge,
}

/// `types`.
pub(crate) type Types = Arc<HashMap<Box<str>, Box<str>>>;

macro_rules! layer {
    ($($field:ident: $type:ty,)*) => {
        /// What a level sets; `None` is inherited.
        #[derive(Debug, Clone, Default)]
        pub(crate) struct Layer {
            $(pub $field: Option<$type>,)*
            /// `add_header` and `add_trailer` have inheritance rules of their own.
            pub add_headers: Vec<AddHeader>,
            pub add_trailers: Vec<AddHeader>,
            pub proxy: ProxyLayer,
        }

        impl Layer {
            /// Takes what is not set from the level above.
            pub fn inherit(&mut self, above: &Layer) {
                $(if self.$field.is_none() {
                    self.$field.clone_from(&above.$field);
                })*
                inherit_list(&mut self.add_headers, &above.add_headers, self.add_header_inherit);
                inherit_list(&mut self.add_trailers, &above.add_trailers, self.add_trailer_inherit);
                self.proxy.inherit(&above.proxy);
            }
        }
    };
}

layer! {
    root: Root,
    index: Vec<Template>,
    error_pages: Vec<ErrorPage>,
    add_header_inherit: Inherit,
    add_trailer_inherit: Inherit,
    types: Types,
    default_type: Box<str>,
    server_tokens: ServerTokens,
    keepalive_timeout: (Duration, Option<Duration>),
    keepalive_requests: u64,
    keepalive_time: Duration,
    client_body_timeout: Duration,
    send_timeout: Duration,
    client_body_buffer_size: u64,
    client_body_temp_path: Arc<TempPath>,
    client_max_body_size: u64,
    limit_rate: Template,
    limit_rate_after: Template,
    access: Vec<AccessRule>,
    access_logs: Vec<AccessLog>,
    error_log: Vec<ErrorLog>,
    tcp_nodelay: bool,
    reset_timedout_connection: bool,
    log_not_found: bool,
    etag: bool,
    if_modified_since: IfModifiedSince,
    absolute_redirect: bool,
    server_name_in_redirect: bool,
    port_in_redirect: bool,
    client_header_timeout: Duration,
    client_header_buffer_size: u64,
    large_client_header_buffers: (usize, usize),
    max_headers: u64,
    ignore_invalid_headers: bool,
    underscores_in_headers: bool,
    merge_slashes: bool,
}

fn inherit_list(own: &mut Vec<AddHeader>, above: &[AddHeader], rule: Option<Inherit>) {
    match rule.unwrap_or(Inherit::On) {
        Inherit::Off => {}
        Inherit::On if own.is_empty() => own.extend_from_slice(above),
        Inherit::On => {}
        Inherit::Merge => {
            own.splice(0..0, above.iter().cloned());
        }
    }
}

/// Three types that NGINX knows without a `types` block.
fn default_types() -> Types {
    let types = [("html", "text/html"), ("gif", "image/gif"), ("jpg", "image/jpeg")];
    Arc::new(types.into_iter().map(|(extension, media)| (extension.into(), media.into())).collect())
}

fn usize_of(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

const MINUTE: Duration = Duration::from_secs(60);

impl Layer {
    /// The level above `http`: defaults that depend on the command line, so that `off` can be told from nothing.
    pub fn defaults(builder: &mut Builder<'_>, error_log: &[ErrorLog]) -> Layer {
        Layer {
            error_log: Some(error_log.to_vec()),
            types: Some(default_types()),
            access_logs: Some(vec![AccessLog {
                target: AccessLogTarget::File(builder.options.prefix.join(&builder.options.access_log)),
                format: builder.combined(),
                buffer: 0,
                flush: None,
                condition: None,
            }]),
            ..Layer::default()
        }
    }

    /// Everything that a location inherits, with defaults.
    pub fn settings(&self, prefix: &std::path::Path) -> Settings {
        let (keepalive_timeout, keepalive_header) = self.keepalive_timeout.unwrap_or((Duration::from_secs(75), None));
        Settings {
            root: self.root.clone().unwrap_or_else(|| Root::Root(path_template(prefix.join("html")))),
            index: self.index.clone().unwrap_or_else(|| vec![Template::literal(*b"index.html")]),
            error_pages: self.error_pages.clone().unwrap_or_default(),
            add_headers: self.add_headers.clone(),
            add_trailers: self.add_trailers.clone(),
            types: self.types.clone().unwrap_or_else(default_types),
            default_type: self.default_type.clone().unwrap_or_else(|| "text/plain".into()),
            server_tokens: self.server_tokens.clone().unwrap_or(ServerTokens::On),
            keepalive_timeout,
            keepalive_header,
            keepalive_requests: self.keepalive_requests.unwrap_or(1000),
            keepalive_time: self.keepalive_time.unwrap_or(Duration::from_secs(3600)),
            client_body_timeout: self.client_body_timeout.unwrap_or(MINUTE),
            send_timeout: self.send_timeout.unwrap_or(MINUTE),
            client_body_buffer_size: usize_of(self.client_body_buffer_size.unwrap_or(16 * 1024)),
            client_body_temp_path: self.client_body_temp_path.clone(),
            client_max_body_size: self.client_max_body_size.unwrap_or(1024 * 1024),
            limit_rate: self.limit_rate.clone(),
            limit_rate_after: self.limit_rate_after.clone(),
            access: self.access.clone().unwrap_or_default(),
            access_logs: self.access_logs.clone().unwrap_or_default(),
            error_log: self.error_log.clone().unwrap_or_default(),
            tcp_nodelay: self.tcp_nodelay.unwrap_or(true),
            reset_timedout_connection: self.reset_timedout_connection.unwrap_or(false),
            log_not_found: self.log_not_found.unwrap_or(true),
            etag: self.etag.unwrap_or(true),
            if_modified_since: self.if_modified_since.unwrap_or(IfModifiedSince::Exact),
            absolute_redirect: self.absolute_redirect.unwrap_or(true),
            server_name_in_redirect: self.server_name_in_redirect.unwrap_or(false),
            port_in_redirect: self.port_in_redirect.unwrap_or(true),
            proxy: Arc::new(self.proxy.settings()),
        }
    }

    /// What acts before a location is known.
    pub fn connection(&self) -> ConnectionSettings {
        ConnectionSettings {
            client_header_timeout: self.client_header_timeout.unwrap_or(MINUTE),
            client_header_buffer_size: usize_of(self.client_header_buffer_size.unwrap_or(1024)),
            large_client_header_buffers: self.large_client_header_buffers.unwrap_or((4, 8 * 1024)),
            max_headers: usize_of(self.max_headers.unwrap_or(1000)),
            ignore_invalid_headers: self.ignore_invalid_headers.unwrap_or(true),
            underscores_in_headers: self.underscores_in_headers.unwrap_or(false),
            merge_slashes: self.merge_slashes.unwrap_or(true),
        }
    }
}

/// A path as a template without variables.
pub(crate) fn path_template(path: PathBuf) -> Template {
    use std::os::unix::ffi::OsStringExt;
    Template::literal(path.into_os_string().into_vec())
}
