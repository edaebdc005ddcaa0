//! What the connections of a worker thread share.

use std::cell::RefCell;

use balanza_http1::{RequestHead, ResponseHead};

use crate::clients::Clients;
use crate::running_config::Listeners;

/// What the connections of a worker thread share.
#[derive(Default)]
pub struct Thread {
    /// Its clients.
    pub clients: Clients,
    /// Its listening sockets.
    pub listeners: Listeners,
    /// Parses the heads of requests.
    pub request_head: RefCell<RequestHead>,
    /// Parses the heads of responses.
    pub response_head: RefCell<ResponseHead>,
}
