//! What `stream` and its `server` set, what a server inherits, and the defaults.

use std::time::Duration;

use crate::load::Builder;
use crate::model::{AccessLog, AccessRule, ErrorLog, ProxyBind, StreamServer, StreamTarget};
use crate::tree::Statement;

macro_rules! layer {
    ($($field:ident: $type:ty,)*) => {
        /// What a level sets; `None` is inherited.
        #[derive(Debug, Clone, Default)]
        pub(super) struct StreamLayer {
            $(pub $field: Option<$type>,)*
        }

        impl StreamLayer {
            /// Takes what is not set from the level above.
            pub fn inherit(&mut self, above: &StreamLayer) {
                $(if self.$field.is_none() {
                    self.$field.clone_from(&above.$field);
                })*
            }
        }
    };
}

layer! {
    preread_buffer_size: u64,
    preread_timeout: Duration,
    tcp_nodelay: bool,
    access: Vec<AccessRule>,
    access_logs: Vec<AccessLog>,
    error_log: Vec<ErrorLog>,
    connect_timeout: Duration,
    timeout: Duration,
    next_upstream: bool,
    next_upstream_tries: u64,
    next_upstream_timeout: Duration,
    buffer_size: u64,
    bind: Option<ProxyBind>,
    socket_keepalive: bool,
    half_close: bool,
}

const MINUTE: Duration = Duration::from_secs(60);

impl StreamLayer {
    /// A server with these settings, and the defaults for those that are not set.
    pub fn server(self, target: StreamTarget) -> StreamServer {
        let size = |size: Option<u64>| usize::try_from(size.unwrap_or(16 * 1024)).unwrap_or(usize::MAX);
        StreamServer {
            target,
            prereads: false,
            preread_buffer_size: size(self.preread_buffer_size),
            preread_timeout: self.preread_timeout.unwrap_or(Duration::from_secs(30)),
            tcp_nodelay: self.tcp_nodelay.unwrap_or(true),
            access: self.access.unwrap_or_default(),
            access_logs: self.access_logs.unwrap_or_default(),
            error_log: self.error_log.unwrap_or_default(),
            connect_timeout: self.connect_timeout.unwrap_or(MINUTE),
            timeout: self.timeout.unwrap_or(10 * MINUTE),
            next_upstream: self.next_upstream.unwrap_or(true),
            next_upstream_tries: u32::try_from(self.next_upstream_tries.unwrap_or(0)).unwrap_or(u32::MAX),
            next_upstream_timeout: self.next_upstream_timeout.unwrap_or_default(),
            buffer_size: size(self.buffer_size),
            bind: self.bind.flatten(),
            socket_keepalive: self.socket_keepalive.unwrap_or(false),
            half_close: self.half_close.unwrap_or(false),
        }
    }
}

impl Builder<'_> {
    /// Reads a directive into a level.
    pub(super) fn stream_directive(&mut self, layer: &mut StreamLayer, s: &Statement) {
        match s.words[0].value.as_slice() {
            b"preread_buffer_size" => self.assign(&mut layer.preread_buffer_size, s, Self::buffer_size),
            b"preread_timeout" => self.assign(&mut layer.preread_timeout, s, |b, s| b.msec(s)),
            b"tcp_nodelay" => self.assign(&mut layer.tcp_nodelay, s, |b, s| b.flag(s)),
            b"allow" => self.access_rule(&mut layer.access, s, true),
            b"deny" => self.access_rule(&mut layer.access, s, false),
            b"access_log" => self.access_log(&mut layer.access_logs, s),
            b"error_log" => {
                let log = self.error_log(s);
                layer.error_log.get_or_insert_default().extend(log);
            }
            b"proxy_connect_timeout" => self.assign(&mut layer.connect_timeout, s, |b, s| b.msec(s)),
            b"proxy_timeout" => self.assign(&mut layer.timeout, s, |b, s| b.msec(s)),
            b"proxy_next_upstream" => self.assign(&mut layer.next_upstream, s, |b, s| b.flag(s)),
            b"proxy_next_upstream_tries" => self.assign(&mut layer.next_upstream_tries, s, |b, s| b.number(s)),
            b"proxy_next_upstream_timeout" => self.assign(&mut layer.next_upstream_timeout, s, |b, s| b.msec(s)),
            b"proxy_buffer_size" => self.assign(&mut layer.buffer_size, s, Self::buffer_size),
            b"proxy_bind" => self.assign(&mut layer.bind, s, Self::proxy_bind),
            b"proxy_socket_keepalive" => self.assign(&mut layer.socket_keepalive, s, |b, s| b.flag(s)),
            b"proxy_half_close" => self.assign(&mut layer.half_close, s, |b, s| b.flag(s)),
            _ => self.no_handler(s),
        }
    }

    /// A size that something fits into: a session with a buffer of 0 bytes, which NGINX takes, would stand still.
    fn buffer_size(&mut self, s: &Statement) -> Option<u64> {
        let size = self.size(s)?;
        if size == 0 {
            self.invalid_value(s, &s.words[1]);
            return None;
        }
        Some(size)
    }
}
