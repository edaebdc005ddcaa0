//! What limits and access rules have found of a request.

use crate::limits::{Place, Status};

/// What limits and access rules have found of a request.
#[derive(Default)]
pub struct Checks {
    /// `$limit_req_status`; a request is counted once, whatever it is redirected to.
    pub requests: Option<Status>,
    /// `$limit_conn_status`, for the same.
    pub connections: Option<Status>,
    /// Its places in zones of `limit_conn`, which it has until it ends.
    pub places: Vec<Place>,
    /// The WWW-Authenticate field of the response, or its Proxy-Authenticate.
    pub challenge: Option<Vec<u8>>,
    /// Room for a key.
    pub key: Vec<u8>,
}

impl Checks {
    /// A subrequest is counted with its request, as in NGINX.
    pub fn inherit(&mut self, request: &Checks) {
        (self.requests, self.connections) = (request.requests, request.connections);
    }

    /// Forgets the request, and keeps the room.
    pub fn clear(&mut self) {
        let Checks { requests, connections, places, challenge, key: _ } = self;
        (*requests, *connections, *challenge) = (None, None, None);
        places.clear();
    }
}
