//! Parameters of a directive, `name` or `name=value`: a table with one row each.

use crate::lexer::Word;
use crate::load::Builder;
use crate::tree::Statement;

/// A parameter of a directive that is read into a `T`.
pub(crate) struct Parameter<T: 'static> {
    /// With "=" if a value follows.
    name: &'static str,
    read: Read<T>,
    /// Whether hints name it.
    supported: bool,
}

type Read<T> = fn(&mut Builder<'_>, &mut T, &Argument<'_>) -> Result<(), Wrong>;

/// A parameter as it is written.
pub(crate) struct Argument<'s> {
    pub statement: &'s Statement,
    pub word: &'s Word,
    /// What follows "=".
    pub value: &'s [u8],
}

/// What is wrong with a parameter.
pub(crate) enum Wrong {
    /// `invalid parameter "x"`.
    Parameter,
    /// This message.
    Message(String),
    /// It has been reported.
    Reported,
}

/// A row. Its function gets the builder `b`, what the parameter is read into, and the argument `a`.
pub(crate) const fn parameter<T>(name: &'static str, read: Read<T>) -> Parameter<T> {
    Parameter { name, read, supported: true }
}

/// One of NGINX that Balanza does not have.
pub(crate) const fn unsupported<T>(name: &'static str) -> Parameter<T> {
    let read: Read<T> = |b, _, a| {
        b.unsupported_parameter(a.statement, a.word);
        Err(Wrong::Reported)
    };
    Parameter { name, read, supported: false }
}

/// Sets a field, or finds the parameter wrong.
pub(crate) fn set<V>(field: &mut V, value: Option<V>) -> Result<(), Wrong> {
    *field = value.ok_or(Wrong::Parameter)?;
    Ok(())
}

impl Word {
    /// The name of a parameter, "=" included, and its value.
    pub fn parameter(&self) -> (&[u8], &[u8]) {
        match self.value.iter().position(|byte| *byte == b'=') {
            Some(at) => self.value.split_at(at + 1),
            None => (&self.value, b""),
        }
    }
}

impl Builder<'_> {
    /// Reads the arguments from `first` on by a table; whether all are right.
    pub fn parameters<T>(&mut self, table: &[Parameter<T>], target: &mut T, s: &Statement, first: usize) -> bool {
        self.parameters_of(&[table], target, s, first)
    }

    /// The same by several tables.
    pub fn parameters_of<T>(
        &mut self,
        tables: &[&[Parameter<T>]],
        target: &mut T,
        s: &Statement,
        first: usize,
    ) -> bool {
        let rows = || tables.iter().copied().flatten();
        let mut right = true;
        for word in s.words.iter().skip(first) {
            let (name, value) = word.parameter();
            let row = rows().find(|row| row.name.as_bytes() == name);
            let argument = Argument { statement: s, word, value };
            let Err(wrong) = row.map_or(Err(Wrong::Parameter), |row| (row.read)(self, target, &argument)) else {
                continue;
            };
            right = false;
            match wrong {
                Wrong::Parameter => {
                    let names: Vec<&str> = rows().filter(|row| row.supported).map(|row| row.name).collect();
                    self.invalid_parameter(word, &names);
                }
                Wrong::Message(message) => self.error(word.span, message),
                Wrong::Reported => {}
            }
        }
        right
    }
}
