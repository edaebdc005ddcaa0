//! Arguments to values: numbers, sizes, times, flags, texts with variables, regular expressions, paths.
//!
//! These functions return `None` when they have reported an error.

use std::path::PathBuf;
use std::time::Duration;

use balanza_balancing::registry::nearest;

use crate::diagnostics::{Severity, Span};
use crate::lexer::Word;
use crate::load::Builder;
use crate::regex::Regex;
use crate::template::Template;
use crate::tree::{Statement, bytes_path, plain};
use crate::values;
use crate::variables::SetError;

impl Builder<'_> {
    /// The first argument by a function of [`values`], or `"x" directive invalid value`.
    fn value<T>(&mut self, statement: &Statement, parsed: Option<T>) -> Option<T> {
        if parsed.is_none() {
            self.invalid_value(statement, &statement.words[1]);
        }
        parsed
    }

    pub fn msec(&mut self, statement: &Statement) -> Option<Duration> {
        self.value(statement, values::milliseconds(&statement.words[1].value))
    }

    pub fn size<T: TryFrom<u64>>(&mut self, statement: &Statement) -> Option<T> {
        let size = values::size(&statement.words[1].value, false);
        self.value(statement, size.and_then(|size| T::try_from(size).ok()))
    }

    pub fn offset(&mut self, statement: &Statement) -> Option<u64> {
        self.value(statement, values::size(&statement.words[1].value, true))
    }

    pub fn number<T: TryFrom<u64>>(&mut self, statement: &Statement) -> Option<T> {
        let number = values::number(&statement.words[1].value).and_then(|number| T::try_from(number).ok());
        if number.is_none() {
            self.error(statement.words[1].span, format!("\"{}\" directive invalid number", statement.name()));
        }
        number
    }

    /// A number of times; what does not fit is as good as any number.
    pub fn count(&mut self, statement: &Statement) -> Option<u32> {
        self.number::<u64>(statement).map(|number| u32::try_from(number).unwrap_or(u32::MAX))
    }

    pub fn text(&mut self, statement: &Statement) -> Option<Box<str>> {
        Some(statement.words[1].text().into())
    }

    pub fn lower_case(&mut self, statement: &Statement) -> Option<Box<[u8]>> {
        Some(statement.words[1].value.to_ascii_lowercase().into())
    }

    pub fn flag(&mut self, statement: &Statement) -> Option<bool> {
        let word = &statement.words[1];
        let flag = values::flag(&word.value);
        if flag.is_none() {
            let (value, name) = (word.text(), statement.name());
            let message = format!("invalid value \"{value}\" in \"{name}\" directive, it must be \"on\" or \"off\"");
            self.error(word.span, message);
        }
        flag
    }

    /// Number and size of buffers.
    pub fn buffers(&mut self, statement: &Statement) -> Option<(usize, usize)> {
        let count = values::number(&statement.words[1].value).filter(|count| *count > 0);
        let size = values::size(&statement.words[2].value, false).filter(|size| *size > 0);
        match (count, size) {
            (None, _) => self.invalid_value(statement, &statement.words[1]),
            (_, None) => self.invalid_value(statement, &statement.words[2]),
            (Some(count), Some(size)) => {
                return Some((usize::try_from(count).ok()?, usize::try_from(size).ok()?));
            }
        }
        None
    }

    /// A text with variables.
    pub fn template(&mut self, word: &Word) -> Option<Template> {
        self.template_of(&word.value, word.span, true)
    }

    pub fn template_of(&mut self, text: &[u8], span: Span, captures: bool) -> Option<Template> {
        match self.variables.template(text, Some(span), captures) {
            Ok(template) => Some(template),
            Err(error) => {
                self.report(Severity::Error, span, error.message).hint = error.hint;
                None
            }
        }
    }

    /// A size with variables: a constant is checked here and written in bytes.
    pub fn size_template(&mut self, statement: &Statement) -> Option<Template> {
        let template = self.template(&statement.words[1])?;
        match template.as_literal() {
            None => Some(template),
            Some(text) => {
                let size = self.value(statement, values::size(text, false))?;
                Some(Template::literal(size.to_string().into_bytes()))
            }
        }
    }

    /// Compiles a regular expression and gives its named groups their variables.
    pub fn regex(&mut self, pattern: &[u8], caseless: bool, span: Span) -> Option<Regex> {
        let Ok(text) = std::str::from_utf8(pattern) else {
            self.error(span, "a regular expression that is not UTF-8 is possible in NGINX, but not in Balanza yet");
            return None;
        };
        match Regex::new(text, caseless) {
            Ok(mut regex) => {
                let groups: Vec<(usize, String)> = regex.group_names().map(|(i, name)| (i, name.to_string())).collect();
                let mut named = Vec::new();
                for (group, name) in groups {
                    named.push((group, self.define(&name, span)?));
                }
                regex.set_named(named);
                Some(regex)
            }
            Err((message, at)) => {
                let message = match text.get(at..) {
                    Some(rest) if !rest.is_empty() => {
                        format!("pcre2_compile() failed: {message} in \"{text}\" at \"{rest}\"")
                    }
                    _ => format!("pcre2_compile() failed: {message} in \"{text}\""),
                };
                self.error(span, message);
                None
            }
        }
    }

    /// The slot of a variable that the configuration sets.
    pub fn define(&mut self, name: &str, span: Span) -> Option<usize> {
        let defined = self.variables.define(name);
        self.settable(name, span, defined)
    }

    /// The same, or the error that it cannot be set.
    pub fn settable<T>(&mut self, name: &str, span: Span, defined: Result<T, SetError>) -> Option<T> {
        match defined {
            Ok(target) => Some(target),
            Err(SetError::Builtin) => {
                let hint = format!("${name} has a fixed meaning; choose another name");
                self.error_hint(span, format!("the duplicate \"{name}\" variable"), hint);
                None
            }
            Err(SetError::Unsupported) => {
                self.error(span, format!("setting ${name} is possible in NGINX, but not in Balanza yet"));
                None
            }
        }
    }

    /// Makes a variable known that is written alone.
    pub fn announce(&mut self, word: &Word, by_set: bool) {
        if let Some((b'$', name)) = word.value.split_first()
            && !name.is_empty()
            && name.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
        {
            // What cannot be set is reported where the directive is read.
            let name = String::from_utf8_lossy(name);
            let _ = match by_set {
                true => self.variables.define_set(&name).map(|_| ()),
                false => self.variables.define(&name).map(|_| ()),
            };
        }
    }

    /// A path relative to the prefix.
    pub fn path(&self, bytes: &[u8]) -> PathBuf {
        self.options.prefix.join(bytes_path(bytes))
    }

    /// The same for a file that is opened and named in messages.
    pub fn file_path(&self, bytes: &[u8]) -> PathBuf {
        plain(&self.path(bytes))
    }

    /// One of some words, or `invalid value "x"`.
    pub fn choice<T: Clone>(&mut self, statement: &Statement, choices: &[(&str, T)]) -> Option<T> {
        let word = &statement.words[1];
        let found = choices.iter().find(|(name, _)| name.as_bytes() == word.value);
        if found.is_none() {
            let text = word.text();
            let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
            let hint = match nearest(&text, names.iter().copied()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("one of {}", names.join(", ")),
            };
            self.error_hint(word.span, format!("invalid value \"{text}\""), hint);
        }
        found.map(|(_, value)| value.clone())
    }
}
