//! The rewrite module, and `limit_except`: what changes the URI, the location or the answer of a request.

use std::sync::Arc;

use super::Location;
use crate::regex::Regex;
use crate::template::{Template, UserSlot, Variable};

/// A directive of the rewrite module, in the order of the configuration.
#[derive(Debug)]
pub enum RewriteOp {
    /// `set $slot value`.
    Set(UserSlot, Template),
    /// `set $args value`.
    SetArgs(Template),
    /// `set $limit_rate value`.
    SetLimitRate(Template),
    /// `return code [text]`, `return code URL`, `return URL`.
    Return(Return),
    /// `break`.
    Break,
    /// `rewrite`.
    Rewrite(Box<Rewrite>),
    /// `if`.
    If(Box<If>),
}

/// `return`.
#[derive(Debug)]
pub struct Return {
    /// Status; 444 without a text closes the connection without an answer.
    pub status: u16,
    /// Body text, or the Location for 301, 302, 303, 307 and 308.
    pub text: Option<Template>,
}

/// `rewrite`.
#[derive(Debug)]
pub struct Rewrite {
    /// What the URI must match.
    pub regex: Regex,
    /// The new URI up to its "?", or the whole URL of a redirect.
    pub uri: Template,
    /// What stands behind the "?" of a URI.
    pub args: Option<Template>,
    /// The request's arguments are appended: the replacement does not end with "?".
    pub keeps_args: bool,
    /// What happens next.
    pub then: Then,
}

/// What follows a `rewrite` whose expression matched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// The next directive; the location of the URI is looked for at the end.
    Next,
    /// `last`: the location of the URI is looked for.
    Last,
    /// `break`: the request stays in its location.
    Break,
    /// `redirect`, `permanent`, and a replacement that is a URL.
    Redirect {
        /// 301 or 302.
        status: u16,
        /// The replacement has a "?" outside variables.
        has_args: bool,
    },
}

/// `if`.
#[derive(Debug)]
pub struct If {
    /// When it applies.
    pub condition: Condition,
    /// The directives of the rewrite module inside it.
    pub ops: Vec<RewriteOp>,
    /// In a location: the configuration that holds from here on.
    pub location: Option<Arc<Location>>,
}

/// The condition of an `if`.
#[derive(Debug)]
pub enum Condition {
    /// `$variable`: neither empty nor "0".
    Variable(Variable),
    /// `=` and `!=`.
    Equal {
        /// The left side.
        variable: Variable,
        /// The right side.
        value: Template,
        /// `!=`.
        negated: bool,
    },
    /// `~`, `~*`, `!~` and `!~*`.
    Match {
        /// The left side.
        variable: Variable,
        /// The right side.
        regex: Regex,
        /// `!~` and `!~*`.
        negated: bool,
    },
    /// `-f`, `-d`, `-e`, `-x` and their negations.
    File {
        /// The file's name.
        path: Template,
        /// What it must be.
        test: FileTest,
        /// It must not be that.
        negated: bool,
    },
}

/// What a condition asks about a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileTest {
    /// `-f`: it is a regular file.
    File,
    /// `-d`: it is a directory.
    Directory,
    /// `-e`: there is something of this name.
    Exists,
    /// `-x`: its owner may execute it.
    Executable,
}

/// `limit_except`.
#[derive(Debug)]
pub struct LimitExcept {
    /// The methods that it does not concern; GET allows HEAD too.
    pub methods: Vec<&'static str>,
    /// The configuration of requests with other methods.
    pub location: Arc<Location>,
}

impl LimitExcept {
    /// Whether it concerns a method.
    pub fn limits(&self, method: &[u8]) -> bool {
        !self.methods.iter().any(|allowed| allowed.as_bytes() == method)
    }
}
