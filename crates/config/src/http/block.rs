//! What a block of `http` sets, and what the blocks inside it inherit.

use std::sync::Arc;

use crate::block::Given;
use crate::diagnostics::Span;
use crate::drafts::ClientDraft;
use crate::http::grpc;
use crate::http::proxy::{self, Pass};
use crate::listen::{ListenDraft, NameDraft};
use crate::model::{
    AddHeader, ClientSettings, ConnectionSettings, Handler, Limits, NextUpstream, ProxySettings, RewriteOp, SetHeader,
    Settings, Tracing, TryFiles,
};
use crate::tls::ServerDraft;
use crate::upstream::checks::CheckDraft;

/// `http`, `server` or `location` while it is read. It begins as a copy of the block around it.
#[derive(Debug, Default)]
pub(crate) struct HttpBlock {
    /// What a location has.
    pub settings: Settings,
    /// What a server has.
    pub connection: ConnectionSettings,
    /// `ssl_…`.
    pub tls: ServerDraft,
    /// `proxy_ssl_…`.
    pub proxy_tls: Arc<ClientDraft>,
    /// `grpc_…`, which a location with `grpc_pass` has in the place of `proxy_…`.
    pub grpc: Arc<ProxySettings>,
    /// `grpc_ssl_…`.
    pub grpc_tls: Arc<ClientDraft>,
    /// `tunnel_…`, which a location with `tunnel_pass` has in the place of `proxy_…`.
    pub tunnel: Arc<ProxySettings>,
    /// What is inherited as it is written, since the model has it in another form.
    pub written: Written,
    /// What is not inherited.
    pub own: Own,
    pub given: Given,
}

/// Lists that the model has combined with others, how they are combined, and what is only compared with other values.
#[derive(Debug, Clone, Default)]
pub(crate) struct Written {
    pub add_header_inherit: Inherit,
    pub add_trailer_inherit: Inherit,
    pub set_headers: Vec<SetHeader>,
    /// In lower case.
    pub hide_headers: Vec<Box<[u8]>>,
    /// In lower case.
    pub pass_headers: Vec<Box<[u8]>>,
    /// `grpc_set_header`, `grpc_hide_header`, `grpc_pass_header`.
    pub grpc: grpc::Written,
    pub connection_pool_size: usize,
    /// The directive that says how large header buffers or connection pools are.
    pub header_buffers_at: Option<Span>,
    pub temp_file_write_size: Option<usize>,
    /// A level has rules of `proxy_redirect`, or `off`; without them `proxy_pass` brings its own.
    pub redirects: bool,
    /// `server_name`, for `valid_referers server_names`.
    pub server_names: Arc<[NameDraft]>,
}

/// What a block has for itself.
#[derive(Debug, Default)]
pub(crate) struct Own {
    pub add_headers: Vec<AddHeader>,
    pub add_trailers: Vec<AddHeader>,
    pub listens: Vec<ListenDraft>,
    pub names: Vec<(NameDraft, Span)>,
    /// The rewrite module, without `if`.
    pub rewrite: Vec<RewriteOp>,
    pub internal: bool,
    /// What answers, unless it is a `…_pass` or files.
    pub handler: Option<Handler>,
    /// `status_zone`; none for `off`.
    pub status_zone: Option<Option<String>>,
    pub try_files: Option<TryFiles>,
    /// The location that this is.
    pub location: Option<LocationName>,
    pub pass: Option<Pass>,
    /// The first `valid_referers`.
    pub referers_at: Option<Span>,
    /// `valid_referers server_names`.
    pub refers_to_names: bool,
    /// `grpc_pass`.
    pub grpc_pass: Option<Pass>,
    pub health_checks: Vec<CheckDraft>,
}

/// What directives of a location must know of it.
#[derive(Debug)]
pub(crate) struct LocationName {
    pub name: String,
    /// It has no URI: `@name`.
    pub named: bool,
    /// It replaces a known part of a URI: neither `@name` nor a regular expression.
    pub replaces: bool,
}

/// How `add_header` and `add_trailer` combine with the level above.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Inherit {
    /// Taken from above if the level has none.
    #[default]
    On,
    /// Never taken from above.
    Off,
    /// Those from above come first.
    Merge,
}

impl HttpBlock {
    /// A block inside this one.
    pub fn inner(&self) -> HttpBlock {
        HttpBlock {
            settings: self.settings.clone(),
            connection: self.connection.clone(),
            tls: self.tls.clone(),
            proxy_tls: Arc::clone(&self.proxy_tls),
            grpc: Arc::clone(&self.grpc),
            grpc_tls: Arc::clone(&self.grpc_tls),
            tunnel: Arc::clone(&self.tunnel),
            written: self.written.clone(),
            own: Own::default(),
            given: Given::default(),
        }
    }

    /// `limit_…`, which blocks share until one of them sets something.
    pub fn limits(&mut self) -> &mut Limits {
        Arc::make_mut(&mut self.settings.limits)
    }

    /// `proxy_…`, which blocks share until one of them sets something.
    pub fn proxy(&mut self) -> &mut ProxySettings {
        Arc::make_mut(&mut self.settings.proxy)
    }

    /// What is known of a client; shared in the same way.
    pub fn client(&mut self) -> &mut ClientSettings {
        Arc::make_mut(&mut self.settings.client)
    }

    /// `otel_…`, in the same way.
    pub fn tracing(&mut self) -> &mut Tracing {
        Arc::make_mut(&mut self.settings.tracing)
    }

    /// `grpc_…`, in the same way.
    pub fn grpc(&mut self) -> &mut ProxySettings {
        Arc::make_mut(&mut self.grpc)
    }

    /// `tunnel_…`, in the same way.
    pub fn tunnel(&mut self) -> &mut ProxySettings {
        Arc::make_mut(&mut self.tunnel)
    }

    /// Puts the settings of what answers in the place of `proxy_…`.
    pub fn settle_for(&mut self, handler: &Handler) {
        match handler {
            Handler::Proxy(pass) if pass.grpc => self.settings.proxy = Arc::clone(&self.grpc),
            Handler::Tunnel(_) => self.settings.proxy = Arc::clone(&self.tunnel),
            _ => {}
        }
    }

    /// Makes the model's form of what has another when it is written. All directives of the block have been read.
    pub fn complete(&mut self) {
        self.settings.filtered = self.settings.filters.are_any();
        let tracing = &self.settings.tracing;
        self.settings.traced = tracing.on.is_some() || tracing.extract || tracing.inject;
        let (own, written) = (&mut self.own, &self.written);
        combine(&mut self.settings.add_headers, std::mem::take(&mut own.add_headers), written.add_header_inherit);
        combine(&mut self.settings.add_trailers, std::mem::take(&mut own.add_trailers), written.add_trailer_inherit);
        if self.given.has("proxy_set_header") {
            self.proxy().set_headers = proxy::request_headers(&self.written);
        }
        if self.given.has("proxy_hide_header") || self.given.has("proxy_pass_header") {
            self.proxy().hide_headers = proxy::hidden_headers(&self.written);
        }
        if self.given.has("proxy_next_upstream") && self.settings.proxy.next_upstream.off {
            self.proxy().next_upstream = NextUpstream { off: true, ..NextUpstream::default() };
        }
        self.complete_grpc();
        self.complete_tunnel();
    }
}

fn combine(inherited: &mut Vec<AddHeader>, own: Vec<AddHeader>, rule: Inherit) {
    match rule {
        Inherit::On if own.is_empty() => {}
        Inherit::On | Inherit::Off => *inherited = own,
        Inherit::Merge => inherited.extend(own),
    }
}
