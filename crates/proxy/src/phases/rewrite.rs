//! The rewrite phase: `rewrite`, `if`, `set`, `break` and `return`.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;

use balanza_config::log_text::Escaped;
use balanza_config::model::{Condition, FileTest, Handler, If, Level, Return, Rewrite, RewriteOp, Then};
use balanza_config::regex::Regex;
use balanza_config::template::{Part, Template, Variable};
use balanza_message::uri;
use balanza_net::shortage::describe;

use crate::conditions::{self, Verdict};
use crate::exchange::Exchange;
use crate::paths::as_path;
use crate::reading;
use crate::response::{self, Local};
use crate::static_files::media_type;
use crate::step::Step;
use crate::undecided::Undecided;
use crate::values;
use crate::variables;

/// What the phase comes to.
pub enum Rewritten<'a> {
    /// The next phase. An `if` may have replaced the location.
    Same,
    /// The location of the new URI must be found.
    Changed,
    /// Something else is due.
    Step(Step),
    /// A `return` answers.
    Return(&'a Return),
}

/// Runs the directives of a server or a location.
pub fn run<'a>(x: &mut Exchange, ops: &'a [RewriteOp]) -> Rewritten<'a> {
    let logs = x.location().settings.rewrite_log;
    let mut run = Run { x, logs, quotes: true, changed: false, proxied: false, unset: false };
    match run.ops(ops) {
        Err(end) => end,
        Ok(_) if run.changed => Rewritten::Changed,
        Ok(_) if run.unset => {
            run.x.report(Level::Alert, format_args!("no upstream configuration"));
            Rewritten::Step(Step::Error(500))
        }
        Ok(_) => Rewritten::Same,
    }
}

/// Whether the directives behind one are run too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flow {
    Next,
    Stop,
}

/// The state of the phase.
struct Run<'x> {
    x: &'x mut Exchange,
    /// `rewrite_log`.
    logs: bool,
    /// Captures are escaped in values, as in NGINX until the first `rewrite` has matched.
    quotes: bool,
    /// A `rewrite` without `break` has changed the URI.
    changed: bool,
    /// The handler of the last `if` that applied is `proxy_pass`, or was before it.
    proxied: bool,
    /// It is `proxy_pass`, and the last `if` says nothing about a server.
    unset: bool,
}

impl<'a> Rewritten<'a> {
    fn undecided<T>(undecided: Undecided) -> Result<T, Rewritten<'a>> {
        Err(Rewritten::Step(undecided.into()))
    }
}

impl Run<'_> {
    fn ops<'a>(&mut self, ops: &'a [RewriteOp]) -> Result<Flow, Rewritten<'a>> {
        for op in ops {
            let flow = match op {
                RewriteOp::Set(slot, template) => {
                    let value = self.value(template).or_else(Rewritten::undecided)?;
                    variables::set_user(self.x, *slot, Some(value));
                    Flow::Next
                }
                RewriteOp::SetArgs(template) => {
                    let args = self.value(template).or_else(Rewritten::undecided)?;
                    self.x.route.replace_args(args);
                    Flow::Next
                }
                RewriteOp::SetLimitRate(template) => {
                    let value = self.value(template).or_else(Rewritten::undecided)?;
                    self.limit_rate(&value);
                    Flow::Next
                }
                RewriteOp::Break => {
                    if std::mem::take(&mut self.changed) {
                        self.x.route.detach();
                    }
                    Flow::Stop
                }
                RewriteOp::Return(found) => return Err(Rewritten::Return(found)),
                RewriteOp::Rewrite(rewrite) => self.rewrite(rewrite)?,
                RewriteOp::If(one) => self.branch(one)?,
            };
            if flow == Flow::Stop {
                return Ok(Flow::Stop);
            }
        }
        Ok(Flow::Next)
    }

    fn branch<'a>(&mut self, one: &'a If) -> Result<Flow, Rewritten<'a>> {
        if !self.holds(&one.condition).or_else(Rewritten::undecided)? {
            return Ok(Flow::Next);
        }
        if let Some(location) = &one.location {
            let proxies = matches!(location.handler, Handler::Proxy(_));
            self.unset = self.proxied && !proxies;
            self.proxied |= proxies;
            self.x.route.enter(location);
        }
        self.ops(&one.ops)
    }

    fn holds(&mut self, condition: &Condition) -> Result<bool, Undecided> {
        let mut left = Vec::new();
        Ok(match condition {
            Condition::Variable(variable) => {
                variables::value(variable, self.x, &mut left)?;
                values::is_true(&left)
            }
            Condition::Equal { variable, value, negated } => {
                variables::value(variable, self.x, &mut left)?;
                (left == self.value(value)?) != *negated
            }
            Condition::Match { variable, regex, negated } => {
                variables::value(variable, self.x, &mut left)?;
                self.matches(regex, &left)? != *negated
            }
            Condition::File { path, test, negated } => {
                let path = self.value(path)?;
                self.is_file(&path, *test) != *negated
            }
        })
    }

    /// Matches a text, keeps the groups, and logs it.
    fn matches(&mut self, regex: &Regex, text: &[u8]) -> Result<bool, Undecided> {
        let x = &mut *self.x;
        let found = regex.find(text, &mut x.values.captures).map_err(|error| x.undecided(&error))?;
        if found {
            variables::keep_named_groups(regex, x);
        } else {
            x.values.captures.clear();
        }
        if self.logs {
            let (verb, pattern) =
                (if found { "matches" } else { "does not match" }, Escaped(regex.pattern().as_bytes()));
            x.report(Level::Notice, format_args!("\"{pattern}\" {verb} \"{}\"", Escaped(text)));
        }
        Ok(found)
    }

    fn is_file(&self, path: &[u8], test: FileTest) -> bool {
        match std::fs::metadata(as_path(path)) {
            Ok(metadata) => is(&metadata, test),
            Err(error) => {
                use io::ErrorKind::{InvalidFilename, InvalidInput, NotADirectory, NotFound};
                if !matches!(error.kind(), NotFound | NotADirectory | InvalidFilename | InvalidInput) {
                    let error = describe(&error);
                    self.x.report(Level::Crit, format_args!("stat() \"{}\" failed {error}", Escaped(path)));
                }
                false
            }
        }
    }

    fn limit_rate(&mut self, text: &[u8]) {
        match variables::parse_size(text) {
            Some(limit) => self.x.sent.set_rate(limit),
            None => self.x.report(Level::Error, format_args!("invalid $limit_rate \"{}\"", Escaped(text))),
        }
    }

    fn rewrite<'a>(&mut self, rewrite: &Rewrite) -> Result<Flow, Rewritten<'a>> {
        let uri = std::mem::take(&mut self.x.route.uri);
        let found = self.matches_uri(rewrite, uri).or_else(Rewritten::undecided)?;
        if !found {
            return Ok(Flow::Next);
        }
        self.x.route.rewrite(rewrite.then == Then::Break);
        self.changed = rewrite.then != Then::Break;
        if let Then::Redirect { status, has_args } = rewrite.then {
            let target = self.redirect_target(rewrite, has_args).or_else(Rewritten::undecided)?;
            if self.logs {
                self.x.report(Level::Notice, format_args!("rewritten redirect: \"{}\"", Escaped(&target)));
            }
            self.x.route.redirect = Some(target);
            return Err(Rewritten::Step(Step::Error(status)));
        }
        let new = self.replacement(rewrite).or_else(Rewritten::undecided)?;
        self.quotes = false;
        let route = &mut self.x.route;
        match new {
            (uri, Some(mut args)) => {
                if rewrite.keeps_args && !route.args.is_empty() {
                    args.push(b'&');
                    args.extend_from_slice(&route.args);
                }
                (route.uri, route.args) = (uri, args);
            }
            (uri, None) => {
                route.uri = uri;
                if !rewrite.keeps_args {
                    route.args.clear();
                }
            }
        }
        if self.logs {
            let (uri, args) = (Escaped(&self.x.route.uri), Escaped(&self.x.route.args));
            self.x.report(Level::Notice, format_args!("rewritten data: \"{uri}\", args: \"{args}\""));
        }
        if self.x.route.uri.is_empty() {
            self.x.report(Level::Error, format_args!("the rewritten URI has a zero length"));
            return Err(Rewritten::Step(Step::Error(500)));
        }
        Ok(if rewrite.then == Then::Next { Flow::Next } else { Flow::Stop })
    }

    /// Matches the URI, which has been taken and is put back.
    fn matches_uri(&mut self, rewrite: &Rewrite, uri: Vec<u8>) -> Result<bool, Undecided> {
        let found = self.matches(&rewrite.regex, &uri);
        self.x.route.uri = uri;
        found
    }

    /// The new URI, and its arguments if it has a "?".
    fn replacement(&mut self, rewrite: &Rewrite) -> Result<(Vec<u8>, Option<Vec<u8>>), Undecided> {
        let mut uri = Vec::new();
        self.render(&rewrite.uri, false, &mut uri)?;
        let Some(template) = &rewrite.args else { return Ok((uri, None)) };
        let mut args = Vec::new();
        self.render(template, true, &mut args)?;
        Ok((uri, Some(args)))
    }

    fn redirect_target(&mut self, rewrite: &Rewrite, has_args: bool) -> Result<Vec<u8>, Undecided> {
        let mut target = Vec::new();
        self.render(&rewrite.uri, true, &mut target)?;
        let mut target = unescape_redirect(&target);
        if rewrite.keeps_args && !self.x.route.args.is_empty() {
            target.push(if has_args { b'&' } else { b'?' });
            target.extend_from_slice(&self.x.route.args);
        }
        Ok(target)
    }

    /// The value of `set` and of conditions.
    fn value(&mut self, template: &Template) -> Result<Vec<u8>, Undecided> {
        let mut value = Vec::new();
        self.render(template, self.quotes, &mut value)?;
        Ok(value)
    }

    /// Appends a template's value. Captures are escaped for arguments if the client's path was.
    fn render(&mut self, template: &Template, escapes: bool, out: &mut Vec<u8>) -> Result<(), Undecided> {
        for part in template.parts() {
            match part {
                Part::Literal(text) => out.extend_from_slice(text),
                Part::Variable(Variable::Capture(group)) if escapes && self.path_is_escaped() => {
                    let text = self.x.values.captures.group(usize::from(*group)).unwrap_or_default();
                    uri::escape(text, uri::Escape::Args, out);
                }
                Part::Variable(variable) => {
                    variables::value(variable, self.x, out)?;
                }
            }
        }
        Ok(())
    }

    fn path_is_escaped(&self) -> bool {
        self.x.text(self.x.request.path).iter().any(|byte| matches!(byte, b'%' | b'+'))
    }
}

fn is(metadata: &Metadata, test: FileTest) -> bool {
    match test {
        FileTest::File => metadata.is_file(),
        FileTest::Directory => metadata.is_dir(),
        FileTest::Exists => metadata.is_file() || metadata.is_dir(),
        FileTest::Executable => metadata.permissions().mode() & 0o100 != 0,
    }
}

/// Decodes the escapes of visible characters in front of the first "?", as NGINX does in a redirect.
fn unescape_redirect(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [byte, after @ ..] = rest {
        match (byte, after) {
            (b'?', _) => {
                out.extend_from_slice(rest);
                break;
            }
            (b'%', [high, low, behind @ ..]) if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                let decoded = digit(*high) << 4 | digit(*low);
                rest = behind;
                match decoded {
                    b'?' => {
                        out.push(b'?');
                        out.extend_from_slice(rest);
                        break;
                    }
                    b'&'..=b'~' => out.push(decoded),
                    _ => out.extend_from_slice(&[b'%', *high, *low]),
                }
            }
            // NGINX drops what is no escape.
            (b'%', [high, _, behind @ ..]) if high.is_ascii_hexdigit() => rest = behind,
            (b'%', [other, behind @ ..]) if !other.is_ascii_hexdigit() => {
                out.push(*other);
                rest = behind;
            }
            (b'%', _) => break,
            (byte, _) => {
                out.push(*byte);
                rest = after;
            }
        }
    }
    out
}

fn digit(byte: u8) -> u8 {
    (byte as char).to_digit(16).unwrap_or_default() as u8
}

/// Answers with what a `return` says.
pub async fn answer_return(x: &mut Exchange, found: &Return) -> Step {
    let text = found.text.as_ref().filter(|text| found.status < 400 || text.as_literal() != Some(b""));
    if text.is_none() && found.status >= 400 {
        if found.status == 444 {
            x.status = 444;
            return Step::Drop;
        }
        return Step::Error(found.status);
    }
    if let Err(step) = reading::leave_body(x).await {
        return step;
    }
    // As in NGINX, the text has its own status in $status.
    let shown = x.route.error_status().unwrap_or(found.status);
    x.status = shown;
    let mut body = Vec::new();
    if let Some(template) = text
        && let Err(undecided) = variables::render(template, x, &mut body)
    {
        return undecided.into();
    }
    if matches!(found.status, 301 | 302 | 303 | 307 | 308) {
        x.route.redirect = Some(body);
        return Step::Error(found.status);
    }
    let location = Arc::clone(x.location());
    let content_type = media_type(&location, &x.route.uri).as_bytes();
    let content_type = if found.status == 204 { b"" } else { content_type };
    let mut local = Local { status: found.status, content_type, body: &body, field: None };
    match conditions::judge_text(x, found.status) {
        Verdict::Send => {}
        Verdict::NotModified => {
            x.route.forget_error_status();
            local = Local { status: 304, ..Local::default() };
        }
        Verdict::PreconditionFailed => return Step::Error(412),
    }
    match response::send(x, local).await {
        Ok(()) => Step::Sent,
        Err(unsent) => unsent.step(x),
    }
}

#[cfg(test)]
mod tests {
    use super::unescape_redirect;
    use proptest::prelude::*;

    #[test]
    fn redirects_are_decoded_as_nginx_does() {
        for (text, expected) in [
            ("/a%20b", "/a%20b"),
            ("/%41%7e%7f%26%25", "/A~%7f&%25"),
            ("/%41?%41", "/A?%41"),
            ("/%3f%41", "/?%41"),
            ("/%c3%A4", "/%c3%A4"),
            ("/%zz%2", "/zz"),
            ("/%4z1", "/1"),
            ("/%", "/"),
        ] {
            assert_eq!(String::from_utf8_lossy(&unescape_redirect(text.as_bytes())), expected, "{text}");
        }
    }

    proptest! {
        /// What is escaped in an argument comes out as it was, where it is visible.
        #[test]
        fn visible_characters_survive(text in "[&-~]{0,40}") {
            let text = text.replace('?', "");
            let mut escaped = Vec::new();
            balanza_message::uri::escape(text.as_bytes(), balanza_message::uri::Escape::Args, &mut escaped);
            prop_assert_eq!(unescape_redirect(&escaped), text.into_bytes());
        }

        /// No text grows.
        #[test]
        fn nothing_is_added(text in proptest::collection::vec(any::<u8>(), 0..60)) {
            prop_assert!(unescape_redirect(&text).len() <= text.len());
        }
    }
}
