//! `proxy_store`.

use crate::template::Template;

/// Where responses of servers are kept as files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProxyStore {
    /// `on`: in the file that `root` or `alias` has for the URI.
    Root,
    /// In the file of this path.
    Path(Template),
}

impl super::ProxySettings {
    /// Whether a response is read to its end though the client has gone.
    pub fn reads_without_client(&self) -> bool {
        self.ignore_client_abort || self.store.is_some()
    }
}
