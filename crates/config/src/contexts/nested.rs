//! `if` and `limit_except`.

use std::sync::Arc;

use balanza_balancing::registry::nearest;

use super::location::take_pass;
use crate::diagnostics::Severity;
use crate::directives::Context;
use crate::http::{HttpBlock, LocationName, keep_redirect_rule};
use crate::lexer::Word;
use crate::load::Builder;
use crate::model::{Condition, FileTest, Handler, If, LimitExcept, Location, LocationTree, Matcher, RewriteOp};
use crate::tree::Statement;

/// The methods that `limit_except` can name.
const METHODS: [&str; 14] = [
    "GET",
    "HEAD",
    "POST",
    "PUT",
    "DELETE",
    "MKCOL",
    "COPY",
    "MOVE",
    "OPTIONS",
    "PROPFIND",
    "PROPPATCH",
    "LOCK",
    "UNLOCK",
    "PATCH",
];

/// The location around an `if` or a `limit_except`.
#[derive(Clone, Copy)]
pub(super) struct Around<'a> {
    pub name: &'a str,
    pub matcher: &'a Matcher,
    pub handler: &'a Handler,
}

impl Builder<'_> {
    /// The `if`s of a server, each put where it stands among the other directives of the module.
    pub(super) fn server_ifs(&mut self, ifs: &[(usize, &Statement)], block: &mut HttpBlock) {
        let mut read = Vec::new();
        for (at, s) in ifs {
            let condition = self.condition(s);
            let mut inner = self.nested_block(s, block, None, Context::ServerIf);
            let ops = std::mem::take(&mut inner.own.rewrite);
            read.extend(condition.map(|condition| (*at, If { condition, ops, location: None })));
        }
        place(read, &mut block.own.rewrite);
    }

    /// The `if`s of a location, whose directives are `rewrite` so far.
    pub(super) fn location_ifs(
        &mut self,
        ifs: &[(usize, &Statement)],
        block: &HttpBlock,
        around: Around<'_>,
        rewrite: &mut Vec<RewriteOp>,
    ) {
        let mut read = Vec::new();
        for (at, s) in ifs {
            let condition = self.condition(s);
            let mut inner = self.nested_block(s, block, Some(around), Context::LocationIf);
            let ops = std::mem::take(&mut inner.own.rewrite);
            let location = Some(self.nested_location(s, inner, around));
            read.extend(condition.map(|condition| (*at, If { condition, ops, location })));
        }
        place(read, rewrite);
    }

    /// `limit_except`.
    pub(super) fn limit_except(&mut self, s: &Statement, block: &HttpBlock, around: Around<'_>) -> Option<LimitExcept> {
        let mut methods = Vec::new();
        for word in s.args() {
            match METHODS.iter().find(|method| word.value.eq_ignore_ascii_case(method.as_bytes())) {
                Some(method) => methods.push(*method),
                None => {
                    let text = word.text();
                    let near = nearest(&text.to_ascii_uppercase(), METHODS.iter().copied());
                    let hint = near.map(|near| format!("did you mean `{near}`?"));
                    let message = format!("invalid method \"{text}\"");
                    self.report(Severity::Error, word.span, message).hint = hint;
                }
            }
        }
        if methods.contains(&"GET") {
            methods.push("HEAD");
        }
        let inner = self.nested_block(s, block, Some(around), Context::LimitExcept);
        Some(LimitExcept { methods, location: self.nested_location(s, inner, around) })
    }

    /// Reads the directives of an `if` or a `limit_except`.
    fn nested_block(
        &mut self,
        s: &Statement,
        above: &HttpBlock,
        around: Option<Around<'_>>,
        context: Context,
    ) -> HttpBlock {
        let mut block = above.inner();
        // As in a location without a URI of its own, `proxy_pass` can replace no part of a URI.
        block.own.location = around.map(|around| LocationName {
            name: around.name.to_string(),
            named: matches!(around.matcher, Matcher::Named(_)),
            replaces: false,
        });
        for inner in s.block.iter().flatten() {
            if let Some(directive) = self.check(inner, context) {
                self.http_directive(&mut block, directive, inner);
            }
        }
        block.complete();
        self.note_charsets(&block, Some(s.words[0].span));
        block
    }

    /// The configuration that an `if` or a `limit_except` is. Without a `…_pass` it has that of the location
    /// around.
    fn nested_location(&mut self, s: &Statement, mut block: HttpBlock, around: Around<'_>) -> Arc<Location> {
        let (pass, is_grpc) = take_pass(&mut block);
        keep_redirect_rule(&mut block, pass.as_ref());
        let handler = match (pass, block.own.handler.take()) {
            (Some(pass), _) => self.handler(Some(pass), is_grpc, &block, s),
            (None, Some(handler)) => handler,
            (None, None) => around.handler.clone(),
        };
        block.settle_for(&handler);
        Arc::new(Location {
            name: around.name.to_string(),
            matcher: around.matcher.clone(),
            internal: false,
            rewrite: Vec::new(),
            limit_except: None,
            try_files: None,
            handler,
            settings: self.settings(block.settings),
            nested: LocationTree::default(),
            health_checks: Vec::new(),
            auto_redirect: false,
        })
    }

    /// The condition of an `if`.
    fn condition(&mut self, s: &Statement) -> Option<Condition> {
        let mut words: Vec<Word> = s.args().to_vec();
        match words.first_mut() {
            Some(first) if first.value.first() == Some(&b'(') => {
                if first.value.len() == 1 {
                    words.remove(0);
                } else {
                    first.value.remove(0);
                }
            }
            first => return self.invalid_condition(first.as_deref(), s),
        }
        match words.last_mut() {
            Some(last) if last.value.last() == Some(&b')') => {
                if last.value.len() > 1 {
                    last.value.pop();
                } else if words.len() > 1 {
                    words.pop();
                }
            }
            last => return self.invalid_condition(last.as_deref(), s),
        }
        // A single ")" stands in the place of a condition, and is none.
        let (first, rest) = words.split_first()?;
        match (first.value.as_slice(), rest) {
            ([b'$', name @ ..], []) if !name.is_empty() => {
                let name = String::from_utf8_lossy(name);
                Some(Condition::Variable(self.variables.lookup(&name, Some(first.span))))
            }
            ([b'$', name @ ..], [operator, right]) if !name.is_empty() => {
                self.comparison(&String::from_utf8_lossy(name), first, operator, right)
            }
            (operator @ ([b'-', _] | [b'!', b'-', _]), [path]) => {
                let test = match operator.last() {
                    Some(b'f') => FileTest::File,
                    Some(b'd') => FileTest::Directory,
                    Some(b'e') => FileTest::Exists,
                    Some(b'x') => FileTest::Executable,
                    _ => return self.invalid_condition(Some(first), s),
                };
                let negated = operator[0] == b'!';
                Some(Condition::File { path: self.template(path)?, test, negated })
            }
            _ => self.invalid_condition(Some(first), s),
        }
    }

    /// `$variable operator right`.
    fn comparison(&mut self, name: &str, left: &Word, operator: &Word, right: &Word) -> Option<Condition> {
        let negated = operator.value.first() == Some(&b'!');
        match operator.value.as_slice() {
            b"=" | b"!=" => {
                let variable = self.variables.lookup(name, Some(left.span));
                Some(Condition::Equal { variable, value: self.template(right)?, negated })
            }
            b"~" | b"~*" | b"!~" | b"!~*" => {
                let variable = self.variables.lookup(name, Some(left.span));
                let caseless = operator.value.ends_with(b"*");
                Some(Condition::Match { variable, regex: self.regex(&right.value, caseless, right.span)?, negated })
            }
            _ => {
                let message = format!("unexpected \"{}\" in condition", operator.text());
                let hint = match operator.value.as_slice() {
                    b"==" => "write \"=\"",
                    _ => "one of =, !=, ~, ~*, !~, !~*",
                };
                self.error_hint(operator.span, message, hint);
                None
            }
        }
    }

    fn invalid_condition(&mut self, word: Option<&Word>, s: &Statement) -> Option<Condition> {
        let (text, span) = word.map_or((String::new(), s.span()), |word| (word.text(), word.span));
        let hint =
            "write \"if ($variable)\", \"if ($variable = value)\", \"if ($variable ~ regex)\" or \"if (-f file)\"";
        self.error_hint(span, format!("invalid condition \"{text}\""), hint);
        None
    }
}

/// Puts each `if` behind as many directives as stand before it.
fn place(ifs: Vec<(usize, If)>, rewrite: &mut Vec<RewriteOp>) {
    for (placed, (at, one)) in ifs.into_iter().enumerate() {
        let at = (at + placed).min(rewrite.len());
        rewrite.insert(at, RewriteOp::If(Box::new(one)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_if_stands_behind_what_stands_before_it() {
        let one = |at| {
            (at, If { condition: Condition::Variable(crate::template::Variable::Uri), ops: Vec::new(), location: None })
        };
        let mut ops = vec![RewriteOp::Break, RewriteOp::Break];
        place(vec![one(0), one(1), one(1), one(2)], &mut ops);
        let shape: String = ops.iter().map(|op| if matches!(op, RewriteOp::Break) { 'b' } else { 'i' }).collect();
        assert_eq!(shape, "ibiibi");
    }
}
