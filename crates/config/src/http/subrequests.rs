//! Values of `auth_request…` and `mirror`.

use super::block::HttpBlock;
use crate::load::Builder;
use crate::model::BodyFiles;
use crate::template::{Template, UserSlot};
use crate::tree::Statement;

impl Builder<'_> {
    /// `auth_request URI`, or `off`.
    pub fn auth_request(&mut self, s: &Statement) -> Option<Option<Box<[u8]>>> {
        let uri = s.words[1].value.as_slice();
        Some((uri != b"off").then(|| uri.into()))
    }

    /// `auth_request_set $VARIABLE VALUE`.
    pub fn auth_request_set(&mut self, s: &Statement) -> Option<(UserSlot, Template)> {
        let word = &s.words[1];
        let Some((b'$', name)) = word.value.split_first().filter(|(_, name)| !name.is_empty()) else {
            let hint = "the name of a variable begins with \"$\"";
            self.error_hint(word.span, format!("invalid variable name \"{}\"", word.text()), hint);
            return None;
        };
        let slot = self.define(&String::from_utf8_lossy(name), word.span)?;
        Some((slot, self.template(&s.words[2])?))
    }

    /// `mirror URI`, which may be repeated, or `off`, which stands alone.
    pub fn mirror(&mut self, block: &mut HttpBlock, s: &Statement) {
        let uri = s.words[1].value.as_slice();
        let first = block.given.is_first();
        let mirrors = block.given.list(&mut block.settings.subrequests.mirrors);
        // An empty list behind the first one is that of `off`.
        let after_off = !first && mirrors.is_empty();
        if after_off || uri == b"off" && !first {
            return self.duplicate(s);
        }
        if uri != b"off" {
            mirrors.push(uri.into());
        }
    }

    /// `client_body_in_file_only`.
    pub fn body_files(&mut self, s: &Statement) -> Option<BodyFiles> {
        self.choice(s, &[("off", BodyFiles::Off), ("on", BodyFiles::On), ("clean", BodyFiles::Clean)])
    }
}
