//! `location`.

use std::collections::HashSet;
use std::sync::Arc;

use super::nested::Around;
use crate::directives::Context;
use crate::drafts::ClientUse;
use crate::http::{HttpBlock, LocationName, Pass, keep_redirect_rule, nested_alias};
use crate::lexer::Word;
use crate::load::Builder;
use crate::model::{Handler, HttpVersion, Location, LocationTree, Matcher, ProxyPass, ProxyTarget, RewriteOp, Root};
use crate::tree::Statement;
use crate::upstream::checks::Target;

/// `proxy_pass` or `grpc_pass` of a block, and whether it is the latter.
pub(super) fn take_pass(block: &mut HttpBlock) -> (Option<Pass>, bool) {
    let (proxy, grpc) = (block.own.pass.take(), block.own.grpc_pass.take());
    let is_grpc = grpc.is_some();
    (grpc.or(proxy), is_grpc)
}

/// The location around a location.
#[derive(Clone, Copy)]
pub(crate) struct Outer<'a> {
    name: &'a str,
    matcher: &'a Matcher,
}

impl Builder<'_> {
    /// The locations of one level.
    pub fn locations(&mut self, blocks: &[&Statement], above: &HttpBlock, outer: Option<Outer<'_>>) -> LocationTree {
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
        above: &HttpBlock,
        outer: Option<Outer<'_>>,
    ) -> Location {
        let mut block = above.inner();
        block.own.location = Some(LocationName {
            name: name.clone(),
            named: matches!(matcher, Matcher::Named(_)),
            replaces: matches!(matcher, Matcher::Exact(_) | Matcher::Prefix { .. }),
        });
        let mut nested = Vec::new();
        let (mut ifs, mut except) = (Vec::new(), None);
        for inner in s.block.iter().flatten() {
            match self.check(inner, Context::Location) {
                Some(directive) if directive.name == "location" => nested.push(inner),
                Some(directive) if directive.name == "if" => ifs.push((block.own.rewrite.len(), inner)),
                Some(directive) if directive.name == "limit_except" && except.is_none() => {
                    self.http_directive(&mut block, directive, inner);
                    except = Some(inner);
                }
                Some(directive) => self.http_directive(&mut block, directive, inner),
                None => {}
            }
        }
        self.warn_of_traps(s, &matcher, &block);
        block.complete();
        self.complete_referers(&mut block);
        self.note_charsets(&block, Some(s.words[0].span));
        let (pass, is_grpc) = take_pass(&mut block);
        let mut rewrite = std::mem::take(&mut block.own.rewrite);
        if !block.given.has("root") {
            // Whether files are served here, so that the path matters.
            let files = pass.is_none()
                && block.own.handler.is_none()
                && !rewrite.iter().any(|op| matches!(op, RewriteOp::Return(_)));
            self.inherit_alias(&mut block, s, &matcher, outer, files);
        }
        self.check_proxy_buffers(&block, s);
        keep_redirect_rule(&mut block, pass.as_ref());
        let here = Outer { name: &name, matcher: &matcher };
        let nested = self.locations(&nested, &block, Some(here));
        let auto_redirect = pass.is_some() && name.ends_with('/');
        let handler = self.handler(pass, is_grpc, &block, s);
        let target = match &handler {
            Handler::Proxy(pass) => Target::Http(&pass.target, pass.grpc),
            _ => Target::None,
        };
        let health_checks = self.health_checks(std::mem::take(&mut block.own.health_checks), target);
        let around = Around { name: &name, matcher: &matcher, handler: &handler };
        self.location_ifs(&ifs, &block, around, &mut rewrite);
        let limit_except = except.and_then(|s| self.limit_except(s, &block, around));
        let (internal, try_files) = (block.own.internal, block.own.try_files.take());
        block.settle_for(&handler);
        let settings = self.settings(block.settings);
        Location {
            name,
            matcher,
            internal,
            rewrite,
            limit_except,
            try_files,
            handler,
            settings,
            nested,
            health_checks,
            auto_redirect,
        }
    }

    /// What answers in a location.
    pub(super) fn handler(&mut self, pass: Option<Pass>, grpc: bool, block: &HttpBlock, s: &Statement) -> Handler {
        let Some(pass) = pass else {
            return block.own.handler.clone().unwrap_or(Handler::Static);
        };
        self.check_ntlm(&pass.target, grpc, block, s);
        self.proxies += 1;
        let speaks_tls = match &pass.target {
            ProxyTarget::Fixed { tls, .. } => *tls,
            ProxyTarget::Dynamic(_) => true,
        };
        let (draft, usage) = match block.settings.proxy.http_version {
            _ if grpc => (&block.grpc_tls, ClientUse::Grpc),
            HttpVersion::Http2 => (&block.proxy_tls, ClientUse::Http2),
            _ => (&block.proxy_tls, ClientUse::Http1),
        };
        let tls = speaks_tls.then(|| self.client_tls(draft, usage, s.words[0].span)).flatten();
        Handler::Proxy(Box::new(ProxyPass { target: pass.target, id: self.proxies - 1, grpc, tls }))
    }

    /// With `ntlm` a connection belongs to one client, but requests of all clients share a connection of HTTP/2, and one of
    /// HTTP/1.0 ends with its response.
    fn check_ntlm(&mut self, target: &ProxyTarget, grpc: bool, block: &HttpBlock, s: &Statement) {
        let ProxyTarget::Fixed { upstream, .. } = target else { return };
        let Some(upstream) = self.upstreams.get(*upstream).map(|draft| &draft.upstream).filter(|it| it.ntlm) else {
            return;
        };
        let directive = if grpc { "grpc_pass" } else { "proxy_pass" };
        let named = |inner: &&Statement| inner.words[0].value == directive.as_bytes();
        let span = s.block.iter().flatten().find(named).unwrap_or(s).span();
        let name = &upstream.name;
        match block.settings.proxy.http_version {
            HttpVersion::Http11 if !grpc => {}
            HttpVersion::Http10 if !grpc => {
                let message = format!("\"ntlm\" of upstream \"{name}\" has no effect with \"proxy_http_version 1.0\"");
                self.warning_hint(
                    span,
                    message,
                    "its connections end with each response: remove \"proxy_http_version\"",
                );
            }
            _ => {
                let message = format!("upstream \"{name}\" has \"ntlm\", which is not possible with HTTP/2");
                let hint = match grpc {
                    true => "all clients share its connections: use an upstream without \"ntlm\" for \"grpc_pass\"",
                    false => "all clients share its connections: set \"proxy_http_version 1.1\"",
                };
                self.error_hint(span, message, hint);
            }
        }
    }

    /// An alias of the location around this one replaces what that one matched.
    fn inherit_alias(
        &mut self,
        block: &mut HttpBlock,
        s: &Statement,
        matcher: &Matcher,
        outer: Option<Outer<'_>>,
        files: bool,
    ) {
        let (Root::Alias(alias), Some(outer)) = (&block.settings.root, outer) else { return };
        match (outer.matcher, matcher) {
            (Matcher::Prefix { prefix, .. }, Matcher::Prefix { prefix: inner, .. } | Matcher::Exact(inner)) => {
                block.settings.root = Root::Alias(nested_alias(alias, &inner[prefix.len()..]));
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
