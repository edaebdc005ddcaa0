//! Judges directives by the table: names, contexts, forms, numbers of arguments.

use balanza_balancing::registry;

use crate::diagnostics::{Severity, Span};
use crate::directives::{self, Arguments, Context, Directive, State};
use crate::load::{Builder, Protocol};
use crate::tree::Statement;

impl Builder<'_> {
    /// The row of a directive of an upstream; see [`Builder::check`].
    pub fn check_of_upstream(&mut self, statement: &Statement) -> Option<&'static Directive> {
        let context = match self.protocol {
            Protocol::Http => Context::Upstream,
            Protocol::Stream => Context::StreamUpstream,
        };
        self.check(statement, context)
    }

    /// The row of a directive; `None` if the directive is wrong or left out, which has been reported then.
    pub fn check(&mut self, statement: &Statement, context: Context) -> Option<&'static Directive> {
        if self.is_full() {
            return None;
        }
        let name = statement.name();
        let span = statement.words[0].span;
        let known = directives::named(&statement.words[0].value);
        if known.is_empty() {
            if directives::is_of_plus(&name) {
                self.error(span, format!("\"{name}\" is a directive of NGINX Plus that Balanza does not have yet"));
                return None;
            }
            let algorithm =
                registry::find(&name).filter(|_| matches!(context, Context::Upstream | Context::StreamUpstream));
            let near = directives::suggest(&name, context).map(str::to_string);
            let hint = algorithm.map(|_| format!("balance {name}")).or(near);
            let hint = hint.map(|meant| format!("did you mean `{meant}`?"));
            self.report(Severity::Error, span, format!("unknown directive \"{name}\"")).hint = hint;
            return None;
        }
        let Some(directive) = known.iter().copied().find(|directive| directive.allowed_in(context)) else {
            let places = directives::places(known, context);
            let belongs = if places == Context::Main.place() { "belongs" } else { "belongs in" };
            let hint = format!("it {belongs} {places}; this is {}", context.place());
            self.error_hint(span, format!("\"{name}\" directive is not allowed here"), hint);
            return None;
        };
        if directive.arguments.block != statement.block.is_some() {
            let message = if directive.arguments.block {
                format!("directive \"{name}\" has no opening \"{{\"")
            } else {
                format!("directive \"{name}\" is not terminated by \";\"")
            };
            let hint = self.missing_semicolon(statement);
            self.report(Severity::Error, statement.span(), message).hint = hint;
            return None;
        }
        let count = statement.args().len();
        let Arguments { least, most, .. } = directive.arguments;
        if count < least || count > most {
            let expected = match (least, most) {
                (least, usize::MAX) => format!("at least {least} expected, {count} given"),
                (least, most) if least == most => format!("{least} expected, {count} given"),
                (least, most) => format!("{least} to {most} expected, {count} given"),
            };
            let hint = self.missing_semicolon(statement).unwrap_or(expected);
            let message = format!("invalid number of arguments in \"{name}\" directive");
            self.error_hint(statement.span(), message, hint);
            return None;
        }
        self.check_state(statement, directive)
    }

    fn check_state(&mut self, statement: &Statement, directive: &'static Directive) -> Option<&'static Directive> {
        let name = directive.name;
        let span = statement.words[0].span;
        let checked =
            matches!(directive.state, State::Supported | State::NoEffect(_) | State::Unused | State::Unsupported);
        if directive.arguments.flag && !checked && self.flag(statement).is_none() {
            return None;
        }
        let has = |value: &str| matches!(statement.args(), [word] if word.value.eq_ignore_ascii_case(value.as_bytes()));
        let reason = directive.note.map_or_else(String::new, |note| format!(": {note}"));
        match directive.state {
            State::Supported | State::NoEffect(_) | State::Unused => Some(directive),
            State::LeftOut(Some(value)) if has(value) => None,
            State::LeftOut(_) => {
                self.warning(span, format!("\"{name}\" is not supported yet and is ignored{reason}"));
                None
            }
            State::Only(value) => {
                let [word] = statement.args() else {
                    self.unsupported(span, directive);
                    return None;
                };
                if !has(value) {
                    let message =
                        format!("\"{name} {}\" is a setting of NGINX that Balanza does not have yet", word.text());
                    self.error_hint(word.span, message, format!("only \"{name} {value}\" is possible"));
                }
                None
            }
            State::Unsupported => {
                self.unsupported(span, directive);
                None
            }
        }
    }

    fn unsupported(&mut self, span: Span, directive: &Directive) {
        let message = format!("\"{}\" is a directive of NGINX that Balanza does not have yet", directive.name);
        self.report(Severity::Error, span, message).hint = directive.note.map(str::to_string);
    }
}
