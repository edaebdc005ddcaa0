//! What the directives of `stream` and its `server` say.

mod block;
mod pass;

use crate::address::{self, Use};
use crate::load::Builder;
use crate::model::{RewriteOp, StreamTarget};
use crate::template::{Template, UserSlot};
use crate::tree::Statement;

pub(crate) use block::StreamBlock;

impl Builder<'_> {
    /// `set`.
    pub fn stream_set(&mut self, s: &Statement) -> Option<(UserSlot, Template)> {
        match self.set_variable(s)? {
            RewriteOp::Set(slot, template) => Some((slot, template)),
            // Other operations belong to variables of `http`.
            _ => None,
        }
    }

    /// `proxy_pass`.
    pub fn stream_pass(&mut self, s: &Statement) -> Option<StreamTarget> {
        let word = &s.words[1];
        let template = self.template(word)?;
        let Some(text) = template.as_literal() else { return Some(StreamTarget::Dynamic(template)) };
        if text.starts_with(b"http://") {
            let hint = "a stream has no URL: write host and port only";
            self.error_hint(word.span, format!("invalid host in upstream \"{}\"", word.text()), hint);
            return None;
        }
        match address::parse(text, 0, Use::Server) {
            Ok(address) => self.reference_upstream(&address, word.span).map(StreamTarget::Fixed),
            Err(problem) => {
                self.error(word.span, format!("{problem} in upstream \"{}\"", word.text()));
                None
            }
        }
    }
}
