//! What reading a block needs in every context: which directives it has, and the defaults.

use std::sync::LazyLock;

use crate::diagnostics::Span;
use crate::directives::{Directive, directives, named};
use crate::lexer::Word;
use crate::load::Builder;
use crate::tree::Statement;

/// Sets a field, unless reading its value has reported an error.
pub(crate) fn put<T>(field: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *field = value;
    }
}

/// The directives that a block has so far.
#[derive(Debug, Default)]
pub(crate) struct Given {
    /// What is set, and the name of the directive that did so first.
    fields: Vec<(&'static str, &'static str)>,
    /// Whether the directive that is being read is the first one of its field in the block.
    first: bool,
}

impl Given {
    /// Whether a directive of this field was read in the block.
    pub fn has(&self, field: &str) -> bool {
        debug_assert!(!named(field.as_bytes()).is_empty(), "{field} is no directive");
        self.fields.iter().any(|(given, _)| *given == field)
    }

    /// Whether the directive that is being read is the first one of its field in the block.
    pub fn is_first(&self) -> bool {
        self.first
    }

    /// A list that a block inherits as a whole or has for itself: the first directive of a block drops what was inherited.
    pub fn list<'l, T>(&self, list: &'l mut Vec<T>) -> &'l mut Vec<T> {
        if self.first {
            list.clear();
        }
        list
    }
}

impl Builder<'_> {
    /// Notes a directive of a block. `false` if it may stand once and stands there already.
    pub fn admit(&mut self, given: &mut Given, directive: &'static Directive, s: &Statement) -> bool {
        let earlier = given.fields.iter().find(|(field, _)| *field == directive.field).map(|(_, name)| *name);
        given.first = earlier.is_none();
        match earlier {
            None => {
                given.fields.push((directive.field, directive.name));
                true
            }
            Some(_) if directive.again => true,
            Some(earlier) if earlier == directive.name => {
                self.duplicate(s);
                false
            }
            Some(earlier) => {
                let name = directive.name;
                let message =
                    format!("\"{name}\" directive is duplicate, \"{earlier}\" directive was specified earlier");
                self.error(s.words[0].span, message);
                false
            }
        }
    }
}

/// The directives that have defaults, as they would be written.
pub(crate) fn defaults() -> impl Iterator<Item = (&'static Directive, &'static Statement)> {
    static DEFAULTS: LazyLock<Vec<(&Directive, Statement)>> = LazyLock::new(|| {
        let with_default = directives().iter().filter(|directive| !directive.default.is_empty());
        with_default.map(|directive| (directive, statement(directive))).collect()
    });
    DEFAULTS.iter().map(|(directive, statement)| (*directive, statement))
}

fn statement(directive: &Directive) -> Statement {
    let span = Span { file: 0, start: 0, end: 0 };
    let texts = std::iter::once(directive.name).chain(directive.default.split(' '));
    let words = texts.map(|text| Word { value: text.into(), span }).collect();
    Statement { words, block: None, order: 0 }
}
