//! Where a request has got to: its virtual server, its location, and the URI that they were chosen by.

use std::sync::Arc;

use balanza_config::model::{Location, Server};
use balanza_config::regex::Captures;
use balanza_net::listening::Peer;

use super::identity::UserIdentity;
use crate::lookup::Known;

/// Where a request has got to in the configuration.
#[derive(Default)]
pub struct Route {
    /// The virtual server. It stays when the request ends, so that the next one need not count it.
    server: Option<Arc<Server>>,
    /// The location, if `located`; else that of the last request, which stays for the same reason.
    location: Option<Arc<Location>>,
    /// A location was entered; before, the server's own settings hold.
    located: bool,
    /// `$uri`: decoded, normalised.
    pub uri: Vec<u8>,
    /// `$args`.
    pub args: Vec<u8>,
    /// The URI is a name that `try_files` has found under the `alias` of a regular expression, and belongs behind it.
    pub extends_alias: bool,
    /// The URI is no longer the client's: an internal redirect has replaced it.
    pub uri_changed: bool,
    /// Came here by an internal redirect.
    pub internal: bool,
    /// Internal redirects so far.
    pub redirects: u8,
    /// The status that whatever answers now must send, because it is an error's page; 0 for its own.
    pub error_status: u16,
    /// An `error_page` has been used: there is no second one.
    pub error_page_used: bool,
    /// An error page is asked for by GET, whatever the request's method was.
    pub method_is_get: bool,
    /// Where the redirect that is being answered leads.
    pub redirect: Option<Vec<u8>>,
}

impl Route {
    /// Forgets the request, and keeps the room.
    pub fn clear(&mut self) {
        let Route {
            server: _,
            location: _,
            located,
            uri,
            args,
            extends_alias,
            uri_changed,
            internal,
            redirects,
            error_status,
            error_page_used,
            method_is_get,
            redirect,
        } = self;
        (*located, *extends_alias, *uri_changed, *internal) = (false, false, false, false);
        (*error_page_used, *method_is_get) = (false, false);
        (*redirects, *error_status, *redirect) = (0, 0, None);
        uri.clear();
        args.clear();
    }

    /// Enters a virtual server, whose own settings hold until a location is entered.
    pub fn enter_server(&mut self, server: &Arc<Server>) {
        self.located = false;
        if !self.server.as_ref().is_some_and(|mine| Arc::ptr_eq(mine, server)) {
            self.server = Some(Arc::clone(server));
        }
    }

    /// Enters a location.
    pub fn enter(&mut self, location: &Arc<Location>) {
        self.located = true;
        if !self.location.as_ref().is_some_and(|mine| Arc::ptr_eq(mine, location)) {
            self.location = Some(Arc::clone(location));
        }
    }

    /// The virtual server.
    ///
    /// # Panics
    /// Before the request was begun.
    pub fn server(&self) -> &Arc<Server> {
        self.server.as_ref().expect("a request begins with the default server")
    }

    /// The location.
    ///
    /// # Panics
    /// Before the request was begun.
    pub fn location(&self) -> &Arc<Location> {
        match &self.location {
            Some(location) if self.located => location,
            _ => &self.server().root,
        }
    }
}

/// Values of variables that were set or worked out.
#[derive(Default)]
pub struct Values {
    /// Groups of the last regular expression.
    pub captures: Captures,
    /// User variables; empty when not set.
    pub users: Vec<Option<Vec<u8>>>,
    /// Values of `map`s, evaluated once.
    pub maps: Known,
    /// The client's address that a field or a header has told.
    pub peer: Option<Peer>,
    /// The request had arrived before the response to the one before it had gone out.
    pub pipelined: bool,
    /// `$secure_link_expires`, once `$secure_link` was worked out.
    pub link_expires: Option<Vec<u8>>,
    /// The identifier of `userid`, if it was asked for.
    pub user_id: Option<Box<UserIdentity>>,
    /// `$request_id`, made when asked for.
    pub request_id: Option<[u8; 32]>,
}

impl Values {
    /// Forgets the request, and keeps the room.
    pub fn clear(&mut self) {
        let Values { captures, users, maps, peer, pipelined, link_expires, user_id, request_id } = self;
        captures.clear();
        users.clear();
        maps.clear();
        (*peer, *pipelined, *request_id) = (None, false, None);
        (*link_expires, *user_id) = (None, None);
    }
}
