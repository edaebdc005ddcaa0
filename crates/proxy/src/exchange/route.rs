//! Where a request has got to: its virtual server, its location, and the URI that they were chosen by.

use std::rc::Rc;
use std::sync::Arc;

use balanza_config::model::{Location, Server};
use balanza_config::regex::Captures;
use balanza_net::listening::Peer;

use super::identity::UserIdentity;
use crate::lookup::Known;
use crate::ssi;

/// Internal redirects that a request may go through, and new searches for a location, as in NGINX.
pub const MAX_REDIRECTS: u8 = 10;

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
    /// The URI does not begin with what its location matched: `rewrite … break` has replaced it.
    pub detached: bool,
    /// Came here by an internal redirect or a `rewrite`.
    pub internal: bool,
    /// Internal redirects, and searches for another location after a `rewrite`, so far.
    pub redirects: u8,
    /// The status that whatever answers now must send, because it is an error's page; 0 for its own.
    pub error_status: u16,
    /// An `error_page` has been used: there is no second one.
    pub error_page_used: bool,
    /// The client's body is of no use any more, since an `error_page` answers.
    pub body_discarded: bool,
    /// An error page is asked for by GET, whatever the request's method was.
    pub method_is_get: bool,
    /// Where the redirect that is being answered leads.
    pub redirect: Option<Vec<u8>>,
    /// The request is part of a client's request, not a client's own.
    pub subrequest: bool,
    /// The client's request, which it is part of, is answered as a GET.
    pub main_is_get: bool,
    /// How many requests it is part of, one inside the other.
    pub depth: u8,
    /// What answers a subrequest in the place of an error.
    pub stub: Option<Box<Stub>>,
}

/// A response to a subrequest that has no better one.
pub struct Stub {
    /// The media type of the page that has it.
    pub content_type: Vec<u8>,
    /// The body.
    pub body: Vec<u8>,
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
            detached,
            internal,
            redirects,
            error_status,
            error_page_used,
            body_discarded,
            method_is_get,
            redirect,
            subrequest,
            main_is_get,
            depth,
            stub,
        } = self;
        (*depth, *stub) = (0, None);
        (*subrequest, *main_is_get) = (false, false);
        (*located, *extends_alias, *uri_changed, *internal) = (false, false, false, false);
        (*error_page_used, *method_is_get, *detached, *body_discarded) = (false, false, false, false);
        (*redirects, *error_status, *redirect) = (0, 0, None);
        uri.clear();
        args.clear();
    }

    /// Begins a request for a URI of the configuration, which is part of a request that has come this far.
    pub fn begin_subrequest(&mut self, main: &Route, uri: &[u8], args: &[u8]) {
        self.enter_server(main.server());
        self.uri.extend_from_slice(uri);
        self.args.extend_from_slice(args);
        (self.subrequest, self.internal, self.uri_changed) = (true, true, true);
        self.main_is_get = if main.subrequest { main.main_is_get } else { main.method_is_get };
        self.depth = main.depth + 1;
    }

    /// Enters a virtual server, whose own settings hold until a location is entered.
    pub fn enter_server(&mut self, server: &Arc<Server>) {
        self.located = false;
        if !self.server.as_ref().is_some_and(|mine| Arc::ptr_eq(mine, server)) {
            self.server = Some(Arc::clone(server));
        }
    }

    /// Leaves the location: the server's own settings hold until another one is entered.
    pub fn leave(&mut self) {
        self.located = false;
    }

    /// Enters a location.
    pub fn enter(&mut self, location: &Arc<Location>) {
        self.located = true;
        if !self.location.as_ref().is_some_and(|mine| Arc::ptr_eq(mine, location)) {
            self.location = Some(Arc::clone(location));
        }
    }

    /// Counts a redirect; false when there were too many.
    pub fn redirects_again(&mut self) -> bool {
        self.redirects = self.redirects.saturating_add(1).min(MAX_REDIRECTS + 1);
        self.redirects <= MAX_REDIRECTS
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
    /// What pages of the request have in common.
    pub pages: Option<Rc<ssi::Common>>,
    /// How `$date_local` and `$date_gmt` are written, if a page says so.
    pub time_format: Option<Box<[u8]>>,
}

impl Values {
    /// Exchanges the variables that a request and its subrequests have in common: all but the groups of the last regular
    /// expression.
    pub fn exchange_common(&mut self, other: &mut Values) {
        std::mem::swap(self, other);
        std::mem::swap(&mut self.captures, &mut other.captures);
    }

    /// A copy of the same variables.
    pub fn copy_common(&self) -> Values {
        Values {
            captures: Captures::default(),
            users: self.users.clone(),
            maps: self.maps.clone(),
            peer: self.peer,
            pipelined: self.pipelined,
            link_expires: self.link_expires.clone(),
            user_id: self.user_id.clone(),
            request_id: self.request_id,
            pages: self.pages.clone(),
            time_format: None,
        }
    }

    /// Forgets the request, and keeps the room.
    pub fn clear(&mut self) {
        let Values { captures, users, maps, peer, pipelined, link_expires, user_id, request_id, pages, time_format } =
            self;
        (*pages, *time_format) = (None, None);
        captures.clear();
        users.clear();
        maps.clear();
        (*peer, *pipelined, *request_id) = (None, false, None);
        (*link_expires, *user_id) = (None, None);
    }
}
