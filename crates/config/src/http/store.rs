//! Values of `proxy_store…`.

use crate::load::Builder;
use crate::model::ProxyStore;
use crate::tree::Statement;

impl Builder<'_> {
    /// `proxy_store on`, `off` or a path.
    pub fn proxy_store(&mut self, s: &Statement) -> Option<Option<ProxyStore>> {
        let word = &s.words[1];
        let path = match word.value.as_slice() {
            b"off" => return Some(None),
            b"on" => return Some(Some(ProxyStore::Root)),
            b"" => {
                self.error_hint(word.span, "empty path", "`on`, `off` or a path");
                return None;
            }
            [b'$', ..] => word.value.clone(),
            relative => {
                use std::os::unix::ffi::OsStringExt;
                self.path(relative).into_os_string().into_vec()
            }
        };
        Some(Some(ProxyStore::Path(self.template_of(&path, word.span, true)?)))
    }

    /// `user:rw`, `group:r` and the like.
    pub fn access_mode(&mut self, s: &Statement) -> Option<u32> {
        let mut mode = 0o600;
        for word in s.args() {
            let of_who = [(&b"user:"[..], 6), (b"group:", 3), (b"all:", 0)]
                .into_iter()
                .find_map(|(who, shift)| Some((word.value.strip_prefix(who)?, shift)));
            mode |= match of_who {
                Some((b"rw", shift)) => 0o6 << shift,
                Some((b"r", shift)) => 0o4 << shift,
                _ => {
                    let message = format!("invalid value \"{}\"", word.text());
                    self.error_hint(word.span, message, "`user:`, `group:` or `all:`, each with `r` or `rw`");
                    return None;
                }
            };
        }
        Some(mode)
    }
}
