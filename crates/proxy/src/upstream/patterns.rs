//! Rules that replace a text of a server: `proxy_redirect`, `proxy_cookie_domain`, `proxy_cookie_path`.

use balanza_config::model::{ProxyRedirect, RedirectPattern};

use crate::exchange::Exchange;
use crate::undecided::Undecided;
use crate::variables;

/// The text as the first rule that fits makes it. `fits` compares it with a pattern that is no expression, and says which
/// part of it is replaced; an expression replaces all of it.
///
/// # Errors
/// A regular expression is undecided.
pub(super) fn replaced(
    x: &mut Exchange,
    rules: &[ProxyRedirect],
    text: &[u8],
    fits: impl Fn(&[u8], &[u8]) -> Option<std::ops::Range<usize>>,
) -> Result<Option<Vec<u8>>, Undecided> {
    for rule in rules {
        let mut pattern = Vec::new();
        let range = match &rule.pattern {
            RedirectPattern::Regex(regex) => {
                if !regex.find(text, &mut x.values.captures).map_err(|error| x.undecided(&error))? {
                    continue;
                }
                variables::keep_named_groups(regex, x);
                0..text.len()
            }
            RedirectPattern::Prefix(template) => {
                variables::render(template, x, &mut pattern)?;
                let Some(range) = fits(text, &pattern) else { continue };
                range
            }
        };
        let mut out = text[..range.start].to_vec();
        variables::render(&rule.replacement, x, &mut out)?;
        out.extend_from_slice(&text[range.end..]);
        return Ok(Some(out));
    }
    Ok(None)
}

/// A text that begins with the pattern.
pub(super) fn prefix(text: &[u8], pattern: &[u8]) -> Option<std::ops::Range<usize>> {
    text.starts_with(pattern).then_some(0..pattern.len())
}
