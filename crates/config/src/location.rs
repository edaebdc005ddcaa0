//! `location`.

use std::collections::HashSet;
use std::sync::Arc;

use crate::check::Verdict;
use crate::directives::Context;
use crate::layer::Layer;
use crate::lexer::Word;
use crate::load::Builder;
use crate::locations::LocationTree;
use crate::model::{Handler, Location, Matcher, ProxyPass, RewriteOp, Root};
use crate::proxy::{Pass, Redirects};
use crate::settings::nested_alias;
use crate::tree::Statement;

/// The location around a location.
#[derive(Clone, Copy)]
pub(crate) struct Outer<'a> {
    name: &'a str,
    matcher: &'a Matcher,
}

impl Builder<'_> {
    /// The locations of one level.
    pub fn locations(&mut self, blocks: &[&Statement], above: &Layer, outer: Option<Outer<'_>>) -> LocationTree {
        let mut seen: HashSet<(u8, Vec<u8>)> = HashSet::new();
        let mut locations = Vec::new();
        for s in blocks {
            let Some((matcher, name)) = self.matcher(s, outer) else { continue };
            let key = match &matcher {
                Matcher::Exact(name) => Some((0, name.to_vec())),
                Matcher::Prefix { prefix, .. } => Some((1, prefix.to_vec())),
                Matcher::Named(name) => Some((2, name.to_vec())),
                Matcher::Regex(_) => None,
            };
            if let Some(key) = key
                && !seen.insert(key)
            {
                if name.starts_with('@') {
                    // NGINX takes the first and says nothing.
                    self.warning(s.span(), format!("duplicate location \"{name}\", ignored"));
                } else {
                    self.error(s.span(), format!("duplicate location \"{name}\""));
                }
                // Its contents are read for their errors.
                self.location(s, matcher, name, above, outer);
                continue;
            }
            locations.push(Arc::new(self.location(s, matcher, name, above, outer)));
        }
        LocationTree::new(locations)
    }

    /// How a location matches, and its name.
    fn matcher(&mut self, s: &Statement, outer: Option<Outer<'_>>) -> Option<(Matcher, String)> {
        let (matcher, word, name) = match s.args() {
            [modifier, word] => {
                let name = word.value.as_slice();
                let matcher = match modifier.value.as_slice() {
                    b"=" => Matcher::Exact(name.into()),
                    b"^~" => Matcher::Prefix { prefix: name.into(), no_regex: true },
                    b"~" => Matcher::Regex(self.regex(name, false, word.span)?),
                    b"~*" => Matcher::Regex(self.regex(name, true, word.span)?),
                    _ => {
                        let message = format!("invalid location modifier \"{}\"", modifier.text());
                        self.error_hint(modifier.span, message, "one of =, ^~, ~, ~*");
                        return None;
                    }
                };
                (matcher, word, name)
            }
            [word] => self.matcher_in_one_word(word)?,
            _ => return None,
        };
        let name = String::from_utf8_lossy(name).into_owned();
        if let Some(outer) = outer {
            let named = if matches!(matcher, Matcher::Named(_)) { format!("@{name}") } else { name.clone() };
            let problem = match (outer.matcher, &matcher) {
                (Matcher::Exact(_), _) => {
                    format!("location \"{named}\" cannot be inside the exact location \"{}\"", outer.name)
                }
                (Matcher::Named(_), _) => {
                    format!("location \"{named}\" cannot be inside the named location \"{}\"", outer.name)
                }
                (_, Matcher::Named(_)) => format!("named location \"{named}\" can be on the server level only"),
                (Matcher::Prefix { prefix, .. }, Matcher::Exact(inner) | Matcher::Prefix { prefix: inner, .. })
                    if !inner.starts_with(prefix) =>
                {
                    format!("location \"{named}\" is outside location \"{}\"", outer.name)
                }
                // As in NGINX, which compares the name with the pattern's text.
                (Matcher::Regex(_), Matcher::Exact(inner) | Matcher::Prefix { prefix: inner, .. })
                    if !inner.starts_with(outer.name.as_bytes()) =>
                {
                    format!("location \"{named}\" is outside location \"{}\"", outer.name)
                }
                _ => String::new(),
            };
            if !problem.is_empty() {
                self.error(word.span, problem);
                return None;
            }
        }
        let shown = if matches!(matcher, Matcher::Named(_)) { format!("@{name}") } else { name };
        Some((matcher, shown))
    }

    /// `location =/x`, `^~/x`, `~re`, `~*re`, `@name`, `/x`.
    fn matcher_in_one_word<'w>(&mut self, word: &'w Word) -> Option<(Matcher, &'w Word, &'w [u8])> {
        Some(match word.value.as_slice() {
            [b'=', name @ ..] => (Matcher::Exact(name.into()), word, name),
            [b'^', b'~', name @ ..] => (Matcher::Prefix { prefix: name.into(), no_regex: true }, word, name),
            [b'~', b'*', name @ ..] => (Matcher::Regex(self.regex(name, true, word.span)?), word, name),
            [b'~', name @ ..] => (Matcher::Regex(self.regex(name, false, word.span)?), word, name),
            [b'@', name @ ..] => (Matcher::Named(name.into()), word, name),
            name => (Matcher::Prefix { prefix: name.into(), no_regex: false }, word, name),
        })
    }

    fn location(
        &mut self,
        s: &Statement,
        matcher: Matcher,
        name: String,
        above: &Layer,
        outer: Option<Outer<'_>>,
    ) -> Location {
        let mut layer = Layer::default();
        let mut rewrite = Vec::new();
        let mut nested = Vec::new();
        let mut internal = false;
        let mut pass: Option<Pass> = None;
        for inner in s.block.iter().flatten() {
            if self.check(inner, Context::Location) == Verdict::Skip {
                continue;
            }
            match inner.words[0].value.as_slice() {
                b"internal" if internal => self.duplicate(inner),
                b"internal" => internal = true,
                b"location" => nested.push(inner),
                b"proxy_pass" if pass.is_some() => self.duplicate(inner),
                b"proxy_pass" => {
                    let uri_allowed = matches!(matcher, Matcher::Exact(_) | Matcher::Prefix { .. });
                    pass = self.proxy_pass(inner, uri_allowed.then_some(name.as_bytes()));
                }
                b"proxy_redirect" => self.proxy_redirect(&mut layer.proxy, inner, pass.as_ref()),
                b"alias" if matches!(matcher, Matcher::Named(_)) => {
                    let message = "the \"alias\" directive cannot be used inside the named location";
                    self.error(inner.words[0].span, message);
                }
                _ if self.rewrite_directive(&mut rewrite, inner) => {}
                _ if self.layer_directive(&mut layer, inner) => {}
                _ => self.no_handler(inner),
            }
        }
        let own_root = layer.root.is_some();
        self.warn_of_traps(s, &matcher, &layer, pass.as_ref());
        layer.inherit(above);
        if !own_root {
            // Whether files are served here, so that the path matters.
            let files = pass.is_none() && !rewrite.iter().any(|op| matches!(op, RewriteOp::Return(_)));
            self.inherit_alias(&mut layer, s, &matcher, outer, files);
        }
        self.check_proxy_buffers(&layer.proxy, s);
        // Without rules from any level `proxy_pass` brings its own, which levels further inside inherit.
        if layer.proxy.redirects.is_none()
            && let Some(rule) = pass.as_ref().and_then(|pass| pass.redirect.clone())
        {
            layer.proxy.redirects = Some(Redirects::Rules(vec![rule]));
        }
        let here = Outer { name: &name, matcher: &matcher };
        let nested = self.locations(&nested, &layer, Some(here));
        let auto_redirect = pass.is_some() && name.ends_with('/');
        let handler = match pass {
            None => Handler::Static,
            Some(pass) => {
                self.proxies += 1;
                Handler::Proxy(Box::new(ProxyPass { target: pass.target, id: self.proxies - 1 }))
            }
        };
        let settings = self.settings(&layer);
        Location { name, matcher, internal, rewrite, handler, settings, nested, auto_redirect }
    }

    /// An alias of the location around this one replaces what that one matched.
    fn inherit_alias(
        &mut self,
        layer: &mut Layer,
        s: &Statement,
        matcher: &Matcher,
        outer: Option<Outer<'_>>,
        files: bool,
    ) {
        let (Some(Root::Alias(alias)), Some(outer)) = (&layer.root, outer) else { return };
        match (outer.matcher, matcher) {
            (Matcher::Prefix { prefix, .. }, Matcher::Prefix { prefix: inner, .. } | Matcher::Exact(inner)) => {
                layer.root = Some(Root::Alias(nested_alias(alias, &inner[prefix.len()..])));
            }
            // An alias of a regular expression is the whole path.
            (Matcher::Regex(_), _) => {}
            _ if !files => {}
            _ => {
                let hint = "give this location a \"root\" or an \"alias\" of its own";
                let message = format!("\"alias\" of location \"{}\" inside a regular expression", outer.name);
                self.error_hint(s.span(), format!("{message} is possible in NGINX, but not in Balanza yet"), hint);
            }
        }
    }
}
