//! Where a request has got to: its virtual server, its location, and the URI that they were chosen by.

use std::rc::Rc;
use std::sync::Arc;

use balanza_config::model::{Location, Server};
use balanza_config::regex::Captures;
use balanza_net::listening::Peer;

use super::identity::UserIdentity;
use crate::lookup::Known;
use crate::ssi;
use crate::trace_context;

/// Internal redirects that a request may go through, and new searches for a location, as in NGINX.
const MAX_REDIRECTS: u8 = 10;

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
    extends_alias: bool,
    /// The URI is no longer the client's: an internal redirect has replaced it.
    uri_changed: bool,
    /// The URI does not begin with what its location matched: `rewrite … break` has replaced it.
    detached: bool,
    /// Came here by an internal redirect or a `rewrite`.
    internal: bool,
    /// Internal redirects, and searches for another location after a `rewrite`, so far.
    redirects: u8,
    /// The status that whatever answers now must send, because it is an error's page; 0 for its own.
    error_status: u16,
    /// An `error_page` has been used: there is no second one.
    error_page_used: bool,
    /// The client's body is of no use any more.
    body_discarded: bool,
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

    /// Whether this is where the client's request has come to first: no redirect, and no part of another request.
    pub fn is_first(&self) -> bool {
        self.redirects == 0 && self.depth == 0
    }

    /// An internal redirect leads on from here.
    pub fn redirect_internally(&mut self) {
        (self.internal, self.extends_alias) = (true, false);
    }

    /// Whether the request came here by an internal redirect or a `rewrite`.
    pub fn is_internal(&self) -> bool {
        self.internal
    }

    /// A `rewrite` replaces the URI; after `break` the new one need not begin with what its location matched.
    pub fn rewrite(&mut self, breaks: bool) {
        (self.internal, self.uri_changed) = (true, true);
        self.detached |= breaks;
    }

    /// Replaces the URI, decoded and normalised, and the arguments.
    pub fn replace_uri(&mut self, uri: Vec<u8>, args: Vec<u8>) {
        self.uri = uri;
        self.replace_args(args);
        self.detached = false;
    }

    /// Replaces the arguments.
    pub fn replace_args(&mut self, args: Vec<u8>) {
        self.args = args;
        self.uri_changed = true;
    }

    /// Whether the URI is no longer the client's.
    pub fn uri_changed(&self) -> bool {
        self.uri_changed
    }

    /// From here on the URI need not begin with what its location matched.
    pub fn detach(&mut self) {
        self.detached = true;
    }

    /// Whether the URI need not begin with what its location matched.
    pub fn is_detached(&self) -> bool {
        self.detached
    }

    /// The URI is now a name that belongs behind the `alias` of a regular expression.
    pub fn extend_alias(&mut self) {
        self.extends_alias = true;
    }

    /// Whether the URI is a name that belongs behind the `alias` of a regular expression.
    pub fn extends_alias(&self) -> bool {
        self.extends_alias
    }

    /// Whether an `error_page` may answer. After a cycle of redirects none may.
    pub fn may_use_error_page(&self) -> bool {
        !self.error_page_used && self.redirects <= MAX_REDIRECTS
    }

    /// Whether an `error_page` answers already, and no other one may.
    pub fn error_page_used(&self) -> bool {
        self.error_page_used
    }

    /// Only the built-in page may answer.
    pub fn forbid_error_page(&mut self) {
        self.error_page_used = true;
    }

    /// An `error_page` answers in the place of what was there, with this status or, if it is 0, with its own.
    pub fn use_error_page(&mut self, status: u16, recursive: bool) {
        self.error_page_used = !recursive;
        self.redirect = None;
        self.error_status = status;
    }

    /// From here on the client's body is of no use.
    pub fn discard_body(&mut self) {
        self.body_discarded = true;
    }

    /// The client's body is of no use any more.
    pub fn discards_body(&self) -> bool {
        self.body_discarded
    }

    /// The status that whatever answers now must send.
    pub fn error_status(&self) -> Option<u16> {
        Some(self.error_status).filter(|status| *status != 0)
    }

    /// What answers now sends its own status.
    pub fn forget_error_status(&mut self) {
        self.error_status = 0;
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
    /// The trace that the request belongs to, once something asks for it.
    pub trace: Option<Box<trace_context::Context>>,
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
            trace: self.trace.clone(),
            time_format: None,
        }
    }

    /// Forgets the request, and keeps the room.
    pub fn clear(&mut self) {
        let Values {
            captures,
            users,
            maps,
            peer,
            pipelined,
            link_expires,
            user_id,
            request_id,
            pages,
            trace,
            time_format,
        } = self;
        (*pages, *trace, *time_format) = (None, None, None);
        captures.clear();
        users.clear();
        maps.clear();
        (*peer, *pipelined, *request_id) = (None, false, None);
        (*link_expires, *user_id) = (None, None);
    }
}
