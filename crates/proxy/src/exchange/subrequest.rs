//! Requests that are part of a client's request: what they have of it.

use std::rc::Rc;

use balanza_http1::Body;
use balanza_message::Length;

use super::Exchange;
use crate::downstream::Downstream;
use crate::ssi;

impl Exchange {
    /// A request for a URI of the configuration that is part of this one, without a body.
    ///
    /// # Panics
    /// Before this request was begun.
    pub fn subrequest(&self, uri: &[u8], args: &[u8]) -> Box<Exchange> {
        // The subrequest has no connection that could tell the address.
        self.local_address();
        let mut sub = Exchange::boxed();
        sub.begin(self.client(), self.listener(), self.ordinal);
        sub.downstream = Downstream::nowhere();
        sub.head_complete = self.head_complete;
        sub.route.begin_subrequest(&self.route, uri, args);
        sub.body.begin(Body::None, false);
        sub
    }

    /// What pages of this request have in common.
    pub fn pages(&mut self) -> Rc<ssi::Common> {
        Rc::clone(self.values.pages.get_or_insert_default())
    }

    /// Lends head and variables to a subrequest that this request waits for, or takes them back.
    pub fn lend(&mut self, sub: &mut Exchange) {
        std::mem::swap(&mut self.request, &mut sub.request);
        self.values.exchange_common(&mut sub.values);
        sub.checks.inherit(&self.checks);
    }

    /// Gives a copy of head and variables to a subrequest that goes on beside this request.
    pub fn copy_to(&self, sub: &mut Exchange) {
        sub.request = self.request.clone();
        sub.request.body = Length::None;
        sub.values = self.values.copy_common();
        sub.checks.inherit(&self.checks);
        sub.weigh();
    }

    /// Counts a request that goes on beside this one.
    pub fn begin_beside(&mut self) -> super::background::Running {
        self.background.get_or_insert_with(Rc::default).begin()
    }
}
