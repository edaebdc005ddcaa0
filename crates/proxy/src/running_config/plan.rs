//! The result of the `proxy_*` directives, computed once for each `proxy_pass` and worker: which fields are forwarded
//! in each direction.

use balanza_config::model::{Location, ProxySettings};
use balanza_config::template::Template;
use balanza_message::Header;

/// Field names: the known ones as a set, the others by name.
#[derive(Default)]
pub struct Names {
    known: u64,
    others: Vec<Box<[u8]>>,
}

impl Names {
    fn add(&mut self, name: &[u8]) {
        match Header::recognise(name) {
            Header::Other => self.others.push(name.into()),
            header => self.known |= header.bit(),
        }
    }

    fn add_known(&mut self, header: Header) {
        self.known |= header.bit();
    }

    /// Whether a field has one of these names.
    pub fn contain(&self, header: Header, name: &[u8]) -> bool {
        match header {
            Header::Other => {
                !self.others.is_empty() && self.others.iter().any(|other| other.eq_ignore_ascii_case(name))
            }
            header => header.is_in(self.known),
        }
    }
}

/// The plan of one `proxy_pass`.
pub struct Plan {
    /// Fields of the client's request that do not go to the server: set by the configuration, or about the connection.
    pub dropped: Names,
    /// Whether the configuration sets TE.
    pub sets_te: bool,
    /// Indices into `ProxySettings::set_headers`, those about framing left out: a body's framing is ours.
    pub set: Vec<usize>,
    /// Fields of the server's response that do not go to the client.
    pub hidden: Names,
    /// The server's Server field goes to the client instead of ours.
    pub passes_server: bool,
    /// The server's Date field goes to the client instead of ours.
    pub passes_date: bool,
    /// Something is worked out anew for each server.
    pub per_server: bool,
}

impl Plan {
    /// Works out a location's plan.
    pub fn new(location: &Location) -> Plan {
        let proxy: &ProxySettings = &location.settings.proxy;
        let mut dropped = Names::default();
        for header in [
            Header::Connection,
            Header::KeepAlive,
            Header::ProxyConnection,
            Header::TransferEncoding,
            Header::ContentLength,
            Header::Te,
            Header::Trailer,
            Header::Upgrade,
            Header::Expect,
            Header::Http2Settings,
        ] {
            dropped.add_known(header);
        }
        let mut set = Vec::new();
        let sets_te = proxy.set_headers.iter().any(|header| header.name.eq_ignore_ascii_case(b"te"));
        for (index, header) in proxy.set_headers.iter().enumerate() {
            dropped.add(&header.name);
            if !matches!(Header::recognise(&header.name), Header::ContentLength | Header::TransferEncoding) {
                set.push(index);
            }
        }
        let mut hidden = Names::default();
        for name in &proxy.hide_headers {
            hidden.add(name);
        }
        let passes_server = !hidden.contain(Header::Server, b"server");
        let passes_date = !hidden.contain(Header::Date, b"date");
        for header in [
            Header::Connection,
            Header::KeepAlive,
            Header::ProxyConnection,
            Header::TransferEncoding,
            Header::ContentLength,
            Header::Trailer,
            Header::Upgrade,
        ] {
            hidden.add_known(header);
        }
        let per_server = proxy.per_server.is_any() || proxy.ssl_name.as_ref().is_some_and(Template::names_server);
        Plan { dropped, sets_te, set, hidden, passes_server, passes_date, per_server }
    }
}
