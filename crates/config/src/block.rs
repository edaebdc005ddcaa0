//! What reading a block needs in every context: which directives it has.

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
        self.fields.iter().any(|(given, _)| *given == field)
    }

    /// Notes a directive, by the field that it sets and its name. Returns the name of the one that has set the field before.
    pub fn note(&mut self, field: &'static str, name: &'static str) -> Option<&'static str> {
        let earlier = self.fields.iter().find(|(given, _)| *given == field).map(|(_, name)| *name);
        self.first = earlier.is_none();
        if self.first {
            self.fields.push((field, name));
        }
        earlier
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
