//! `rewrite`, `set` and `return`.

use crate::load::Builder;
use crate::model::{Return, Rewrite, RewriteOp, Then};
use crate::tree::Statement;
use crate::values;
use crate::variables::SetTarget;

impl Builder<'_> {
    pub fn set_variable(&mut self, s: &Statement) -> Option<RewriteOp> {
        let word = &s.words[1];
        let name = match word.value.split_first() {
            Some((b'$', name)) if !name.is_empty() => String::from_utf8_lossy(name).into_owned(),
            _ => {
                let hint = "the name of a variable begins with \"$\"";
                self.error_hint(word.span, format!("invalid variable name \"{}\"", word.text()), hint);
                return None;
            }
        };
        let target = self.variables.define_set(&name);
        let target = self.settable(&name, word.span, target)?;
        let value = self.template(&s.words[2])?;
        Some(match target {
            SetTarget::Slot(slot) => RewriteOp::Set(slot, value),
            SetTarget::Args => RewriteOp::SetArgs(value),
            SetTarget::LimitRate => RewriteOp::SetLimitRate(value),
        })
    }

    pub fn return_directive(&mut self, s: &Statement) -> Option<RewriteOp> {
        let word = &s.words[1];
        let Some(status) = values::number(&word.value) else {
            if s.args().len() == 1 && is_url(&word.value) {
                let text = Some(self.template(word)?);
                return Some(RewriteOp::Return(Return { status: 302, text }));
            }
            self.error(word.span, format!("invalid return code \"{}\"", word.text()));
            return None;
        };
        if status > 999 {
            self.error(word.span, format!("invalid return code \"{}\"", word.text()));
            return None;
        }
        let text = match s.words.get(2) {
            Some(word) => Some(self.template(word)?),
            None => None,
        };
        Some(RewriteOp::Return(Return { status: status as u16, text }))
    }

    pub fn rewrite(&mut self, s: &Statement) -> Option<RewriteOp> {
        let (pattern, word) = (&s.words[1], &s.words[2]);
        if word.value.is_empty() {
            let hint = "to remove the path write \"/\"";
            self.error_hint(word.span, "empty replacement", hint);
            return None;
        }
        let regex = self.regex(&pattern.value, false, pattern.span);
        let (text, keeps_args) = match word.value.split_last() {
            Some((b'?', text)) => (text, false),
            _ => (&word.value[..], true),
        };
        let status = match s.words.get(3).map(|flag| (flag, flag.value.as_slice())) {
            Some((_, b"redirect")) => Some(302),
            Some((_, b"permanent")) => Some(301),
            None | Some((_, b"last" | b"break")) => is_url(text).then_some(302),
            Some((flag, _)) => {
                self.invalid_parameter(flag, &["last", "break", "redirect", "permanent"]);
                return None;
            }
        };
        let mark = text.iter().position(|byte| *byte == b'?');
        let (uri, args, then) = match (status, mark) {
            (Some(status), mark) => (text, None, Then::Redirect { status, has_args: mark.is_some() }),
            (None, mark) => {
                let then = match s.words.get(3).map(|flag| flag.value.as_slice()) {
                    None => Then::Next,
                    Some(b"break") => Then::Break,
                    Some(_) => Then::Last,
                };
                let (uri, args) = mark.map_or((text, None), |mark| (&text[..mark], Some(&text[mark + 1..])));
                (uri, args, then)
            }
        };
        let uri = self.template_of(uri, word.span, true)?;
        let args = match args {
            Some(args) => Some(self.template_of(args, word.span, true)?),
            None => None,
        };
        Some(RewriteOp::Rewrite(Box::new(Rewrite { regex: regex?, uri, args, keeps_args, then })))
    }
}

/// Whether a text is a URL to redirect to.
fn is_url(text: &[u8]) -> bool {
    [&b"http://"[..], b"https://", b"$scheme"].iter().any(|start| text.starts_with(start))
}
