//! Names of variables to [`Variable`]s, and texts to [`Template`]s.

use std::collections::{HashMap, HashSet};

use balanza_balancing::registry::{self, nearest};

use crate::diagnostics::Span;
use crate::model::ExplainedPicks;
use crate::template::{Part, Template, UserSlot, Variable, VariableNames};

mod names;

pub(crate) use names::Names;

/// The variables of one configuration.
#[derive(Debug, Default)]
pub(crate) struct Variables {
    names: Names,
    maps: HashMap<String, usize>,
    slots: HashMap<String, Slot>,
    /// Variables of another meaning that a `set` changes for the rest of a request.
    changed: HashSet<String>,
    /// What `set` defines.
    set: HashSet<String>,
    /// Pages name variables (`ssi on`).
    pub are_named_by_pages: bool,
    /// What is asked of choices of servers.
    pub explains_picks: ExplainedPicks,
}

#[derive(Debug)]
struct Slot {
    index: UserSlot,
    defined: bool,
    used: Option<Span>,
}

/// What a `set` changes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum SetTarget {
    /// A user variable, or what stands in the place of a variable of another meaning.
    Slot(UserSlot),
    /// `$args`.
    Args,
    /// `$limit_rate`.
    LimitRate,
}

/// Why a variable cannot be set.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum SetError {
    /// It has a fixed meaning.
    Builtin,
    /// NGINX can change it, Balanza cannot.
    Unsupported,
}

/// Why a text is no template; NGINX's wording.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TemplateError {
    pub message: String,
    pub hint: Option<String>,
}

impl Variables {
    /// None but those that have fixed meanings.
    pub fn new(names: Names) -> Variables {
        Variables { names, ..Variables::default() }
    }

    /// Announces a `map`, so that its variable is known before the block is read.
    pub fn add_map(&mut self, name: &str, index: usize) {
        self.maps.insert(name.to_ascii_lowercase(), index);
    }

    /// Whether a name belongs to a variable of fixed meaning, which a `map` must not take.
    pub fn is_builtin(&self, name: &str) -> bool {
        self.names.builtin(&name.to_ascii_lowercase()).is_some()
    }

    fn slot(&mut self, name: &str) -> &mut Slot {
        let index = self.slots.len();
        self.slots.entry(name.to_ascii_lowercase()).or_insert(Slot { index, defined: false, used: None })
    }

    /// The slot that `set` or a named capture fills.
    pub fn define(&mut self, name: &str) -> Result<UserSlot, SetError> {
        let lower = name.to_ascii_lowercase();
        let changeable = matches!(lower.as_str(), "args" | "limit_rate" | "proxy_host" | "proxy_port");
        if changeable || self.maps.contains_key(&lower) || self.names.is_unsupported(&lower) {
            return Err(SetError::Unsupported);
        }
        if self.names.builtin(&lower).is_some() {
            return Err(SetError::Builtin);
        }
        let slot = self.slot(&lower);
        slot.defined = true;
        Ok(slot.index)
    }

    /// What `set` changes by a name.
    pub fn define_set(&mut self, name: &str) -> Result<SetTarget, SetError> {
        let lower = name.to_ascii_lowercase();
        match lower.as_str() {
            "args" if self.names.builtin("args").is_some() => return Ok(SetTarget::Args),
            "limit_rate" if self.names.builtin("limit_rate").is_some() => return Ok(SetTarget::LimitRate),
            "proxy_host" | "proxy_port" if self.names.builtin(&lower).is_some() => {}
            _ if self.maps.contains_key(&lower) => {}
            _ => {
                let slot = self.define(name)?;
                self.set.insert(lower);
                return Ok(SetTarget::Slot(slot));
            }
        }
        self.changed.insert(lower.clone());
        let slot = self.slot(&lower);
        slot.defined = true;
        Ok(SetTarget::Slot(slot.index))
    }

    /// By slot: the names of the variables that `set` defines.
    pub fn set_names(&self) -> Vec<Option<Box<str>>> {
        let mut names = vec![None; self.slots.len()];
        for (name, slot) in self.slots.iter().filter(|(name, _)| self.set.contains(*name)) {
            names[slot.index] = Some(name.as_str().into());
        }
        names
    }

    /// The variables that a page can name, if there are pages that do.
    pub fn named_by_pages(&mut self) -> VariableNames {
        if !self.are_named_by_pages {
            return VariableNames::default();
        }
        let defined = self.slots.iter().filter(|(_, slot)| slot.defined).map(|(name, _)| name.as_str());
        let names = self.names.builtin.iter().map(|(name, _)| *name).chain(self.maps.keys().map(String::as_str));
        let names: Vec<String> = names.chain(defined).map(str::to_string).collect();
        let single = names.into_iter().map(|name| (name.as_bytes().into(), self.lookup(&name, None))).collect();
        VariableNames { single, families: self.names.families }
    }

    /// The value of `$uid_reset`, if it is set or used; without a value it is empty.
    pub fn reset_of_user_ids(&mut self) -> Option<Template> {
        const NAME: &str = "uid_reset";
        if self.maps.contains_key(NAME) {
            return Some(Template::variable(self.lookup(NAME, None)));
        }
        let slot = self.slots.get_mut(NAME)?;
        slot.defined = true;
        Some(Template::variable(Variable::User(slot.index)))
    }

    /// How many slots there are.
    pub fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Variables that are used and that nothing sets: names and first uses, in the order of their slots.
    pub fn undefined(&self) -> Vec<(String, Option<Span>)> {
        let mut missing: Vec<_> = self.slots.iter().filter(|(_, slot)| !slot.defined).collect();
        missing.sort_by_key(|(_, slot)| slot.index);
        missing.into_iter().map(|(name, slot)| (name.clone(), slot.used)).collect()
    }

    /// The message about an undefined variable, and what may be meant instead.
    pub fn complaint(&self, name: &str) -> (String, Option<String>) {
        if self.names.is_unsupported(name) {
            return (format!("\"${name}\" is a variable of NGINX that Balanza does not have yet"), None);
        }
        if let Some(algorithm) = name.strip_prefix(names::SHADOW) {
            let near = nearest(algorithm, registry::entries().iter().map(|entry| entry.name));
            let message = format!("unknown \"{name}\" variable: no shadow has this name");
            return (message, near.map(|near| format!("did you mean `${}{near}`?", names::SHADOW)));
        }
        let known = self.names.builtin.iter().map(|(known, _)| *known).chain(self.maps.keys().map(String::as_str));
        let defined = self.slots.iter().filter(|(_, slot)| slot.defined).map(|(name, _)| name.as_str());
        let near = nearest(name, known.chain(defined));
        (format!("unknown \"{name}\" variable"), near.map(|near| format!("did you mean `${near}`?")))
    }

    /// The variable of a name without its "$".
    pub fn lookup(&mut self, name: &str, span: Option<Span>) -> Variable {
        let lower = name.to_ascii_lowercase();
        if self.changed.contains(&lower) {
            let slot = self.slot(&lower).index;
            return Variable::Changed(slot, Box::new(self.unchanged(&lower, span)));
        }
        self.unchanged(&lower, span)
    }

    /// The same without what `set` does.
    fn unchanged(&mut self, lower: &str, span: Option<Span>) -> Variable {
        if let Some(index) = self.maps.get(lower) {
            return Variable::Map(*index);
        }
        if let Some(variable) = self.names.builtin(lower) {
            self.explains_picks.reason |= variable == Variable::UpstreamPickReason;
            self.explains_picks.probability |= variable == Variable::UpstreamChoiceProbability;
            self.explains_picks.name |= variable == Variable::UpstreamLastServerName;
            return variable;
        }
        if let Some((_, full)) = self.names.short.iter().find(|(short, _)| *short == lower) {
            return self.lookup(full, span);
        }
        // `set $http_x …` makes an ordinary variable of a family's name, but only the exact name.
        if !self.slots.get(lower).is_some_and(|slot| slot.defined)
            && let Some(variable) = self.names.of_family(lower)
        {
            return variable;
        }
        let slot = self.slot(lower);
        slot.used = slot.used.or(span);
        Variable::User(slot.index)
    }

    /// Compiles a text. `captures` says whether `$1` … `$9` are groups of the last match there.
    pub fn template(&mut self, text: &[u8], span: Option<Span>, captures: bool) -> Result<Template, TemplateError> {
        let mut parts: Vec<Part> = Vec::new();
        let mut literal: Vec<u8> = Vec::new();
        let mut rest = text;
        while let Some((&byte, tail)) = rest.split_first() {
            rest = tail;
            if byte != b'$' {
                literal.push(byte);
                continue;
            }
            let variable = match rest {
                [digit @ b'1'..=b'9', tail @ ..] if captures && self.names.captures => {
                    rest = tail;
                    Variable::Capture(digit - b'0')
                }
                _ => {
                    let name = variable_name(&mut rest)?;
                    self.lookup(&name, span)
                }
            };
            if !literal.is_empty() {
                parts.push(Part::Literal(std::mem::take(&mut literal).into()));
            }
            parts.push(Part::Variable(variable));
        }
        if !literal.is_empty() {
            parts.push(Part::Literal(literal.into()));
        }
        Ok(Template::new(parts))
    }
}

/// Takes a name, or "{name}", from behind a "$".
fn variable_name(rest: &mut &[u8]) -> Result<String, TemplateError> {
    let braces = rest.first() == Some(&b'{');
    let start = usize::from(braces);
    let length = rest[start..].iter().take_while(|b| b.is_ascii_alphanumeric() || **b == b'_').count();
    let name = String::from_utf8_lossy(&rest[start..start + length]).into_owned();
    let mut end = start + length;
    if braces {
        if rest.get(end) != Some(&b'}') {
            let message = format!("the closing bracket in \"{name}\" variable is missing");
            return Err(TemplateError { message, hint: None });
        }
        end += 1;
    }
    if name.is_empty() {
        let hint = Some("a \"$\" starts a variable; it cannot be escaped".to_string());
        return Err(TemplateError { message: "invalid variable name".into(), hint });
    }
    *rest = &rest[end..];
    Ok(name)
}
