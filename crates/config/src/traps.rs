//! Warnings of locations that mean what NGINX means by them, which lets in what their author wanted to keep out.

use crate::http::HttpBlock;
use crate::load::Builder;
use crate::model::{Matcher, ProxyTarget, Root};
use crate::regex::repeats;
use crate::template::Part;
use crate::tree::Statement;
use crate::values;

impl Builder<'_> {
    /// Looks at what a location has for itself.
    pub fn warn_of_traps(&mut self, s: &Statement, matcher: &Matcher, block: &HttpBlock) {
        match matcher {
            Matcher::Prefix { prefix, .. } if !prefix.ends_with(b"/") => {
                self.warn_of_half_segments(s, &String::from_utf8_lossy(prefix), block);
            }
            Matcher::Regex(regex)
                if restricts(s.block.as_deref().unwrap_or_default()) && repeats::are_nested(regex.pattern()) =>
            {
                let pattern = regex.pattern();
                let message = format!("\"{pattern}\" repeats without limit a part that repeats without limit");
                let hint = "the location restricts access, and a request whose URI takes too long to match gets status 500; \
                            limit the inner repeat (\"{1,64}\") or make it possessive (\"++\")";
                self.warning_hint(s.args()[s.args().len() - 1].span, message, hint);
            }
            _ => {}
        }
        let passwords = &block.settings.auth_basic;
        if block.given.has("auth_basic") && passwords.realm.is_some() && passwords.user_file.is_none() {
            let named = |inner: &&Statement| inner.words[0].value == b"auth_basic";
            if let Some(at) = s.block.iter().flatten().find(named) {
                let message = "\"auth_basic\" asks for no password without \"auth_basic_user_file\"";
                self.warning_hint(at.span(), message, "add \"auth_basic_user_file\"");
            }
        }
    }

    /// "/files" also begins "/files../x", whose rest behind "/files" climbs out of what ends with "/".
    fn warn_of_half_segments(&mut self, s: &Statement, name: &str, block: &HttpBlock) {
        let alias = match &block.settings.root {
            Root::Alias(alias) if block.given.has("root") => {
                matches!(alias.parts().last(), Some(Part::Literal(text)) if text.ends_with(b"/"))
            }
            _ => false,
        };
        // There is nothing to climb out of below the server's root.
        let uri = match block.own.pass.as_ref().map(|pass| &pass.target) {
            Some(ProxyTarget::Fixed { uri: Some(uri), .. }) => uri.len() > 1 && uri.ends_with(b"/"),
            _ => false,
        };
        for (_, directive, what) in
            [(alias, "alias", "directory"), (uri, "proxy_pass", "path")].iter().filter(|it| it.0)
        {
            let Some(at) = s.block.iter().flatten().find(|inner| inner.words[0].value == directive.as_bytes()) else {
                continue;
            };
            let message = format!(
                "\"{directive}\" ends with \"/\" and location \"{name}\" does not: \"{name}../\" leaves the {what}"
            );
            self.warning_hint(at.span(), message, format!("write location \"{name}/\""));
        }
    }
}

/// Whether a location or one inside it refuses requests.
fn restricts(block: &[Statement]) -> bool {
    block.iter().any(|inner| match (inner.words[0].value.as_slice(), inner.args()) {
        (b"deny" | b"internal", _) => true,
        (b"auth_basic", [realm]) => realm.value != b"off",
        (b"return", [status, ..]) => values::number(&status.value).is_some_and(|status| status >= 400),
        (b"location" | b"if" | b"limit_except", _) => restricts(inner.block.as_deref().unwrap_or_default()),
        _ => false,
    })
}
