//! `tunnel_pass`.

use crate::template::Template;

/// Where the tunnels of a location lead. Their settings stand in [`super::Settings::proxy`], in the place of `proxy_…`.
#[derive(Debug, Clone)]
pub enum TunnelTarget {
    /// An index into [`super::Http::upstreams`].
    Fixed(usize),
    /// With variables: the name of an upstream, or a host or an address with a port. Without an argument it is
    /// `$host:$request_port`.
    Dynamic(Template),
}
