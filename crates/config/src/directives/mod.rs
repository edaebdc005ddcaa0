//! The table of directives, NGINX's and Balanza's own: where each may stand, its arguments, and what becomes of it.

mod documents;
mod names;
mod row;
mod table;

use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

pub use documents::directives_markdown;
pub(crate) use names::{places, suggest};
pub(crate) use row::Reader;

/// Where a directive may stand. Balanza does not have all of them yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Context {
    /// Outside all blocks.
    Main,
    /// `events`.
    Events,
    /// `http`.
    Http,
    /// `server` in `http`.
    Server,
    /// `if` in a `server`.
    ServerIf,
    /// `location`.
    Location,
    /// `if` in a `location`.
    LocationIf,
    /// `limit_except`.
    LimitExcept,
    /// `upstream` in `http`.
    Upstream,
    /// `stream`.
    Stream,
    /// `server` in `stream`.
    StreamServer,
    /// `upstream` in `stream`.
    StreamUpstream,
    /// `mail`.
    Mail,
    /// `server` in `mail`.
    MailServer,
}

impl Context {
    /// All of them.
    pub const ALL: [Context; 14] = [
        Context::Main,
        Context::Events,
        Context::Http,
        Context::Server,
        Context::ServerIf,
        Context::Location,
        Context::LocationIf,
        Context::LimitExcept,
        Context::Upstream,
        Context::Stream,
        Context::StreamServer,
        Context::StreamUpstream,
        Context::Mail,
        Context::MailServer,
    ];

    /// Where a reader of a message is.
    pub(crate) fn place(self) -> &'static str {
        match self {
            Context::Main => "outside all blocks",
            Context::Events => "events",
            Context::Http => "http",
            Context::Server => "server",
            Context::ServerIf => "an \"if\" of a server",
            Context::Location => "location",
            Context::LocationIf => "an \"if\" of a location",
            Context::LimitExcept => "limit_except",
            Context::Upstream => "upstream",
            Context::Stream => "stream",
            Context::StreamServer => "a server of stream",
            Context::StreamUpstream => "an upstream of stream",
            Context::Mail => "mail",
            Context::MailServer => "a server of mail",
        }
    }
}

/// What becomes of a directive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// It does what it does in NGINX.
    Supported,
    /// It tunes how NGINX works inside: its value is checked and has no effect, and this is what Balanza does.
    NoEffect(&'static str),
    /// Accepted with a warning, unless it has this value: it is missing, and no answer is wrong without it.
    LeftOut(Option<&'static str>),
    /// Accepted: it is a setting of something that Balanza does not have. What uses the setting is refused or warned of.
    Unused,
    /// Only this value is accepted: it asks for what is done anyway.
    Only(&'static str),
    /// Refused.
    Unsupported,
}

/// How many arguments a directive has, and of what kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arguments {
    /// Fewest arguments.
    pub least: usize,
    /// Most arguments; `usize::MAX` for any number.
    pub most: usize,
    /// `on` or `off`.
    pub flag: bool,
    /// Whether it opens a block.
    pub block: bool,
}

/// A directive in one module: a row of the table.
#[derive(Debug, Clone, Copy)]
pub struct Directive {
    /// Its name.
    pub name: &'static str,
    /// NGINX's module; "balanza" for what only Balanza has.
    pub module: &'static str,
    /// Where it may stand.
    pub contexts: &'static [Context],
    /// Its arguments.
    pub arguments: Arguments,
    /// The arguments that hold unless it is given; "" if nothing is set then.
    pub default: &'static str,
    /// The default for readers.
    documented_default: &'static str,
    /// What becomes of it.
    pub state: State,
    /// The reason of its warning, or the hint to its error.
    pub note: Option<&'static str>,
    /// It may stand several times in a block.
    pub(crate) again: bool,
    /// What it sets: its name, unless several directives set the same.
    pub(crate) field: &'static str,
    /// What reads it.
    pub(crate) reader: Reader,
}

impl Directive {
    /// Whether it may stand here.
    pub fn allowed_in(&self, context: Context) -> bool {
        self.contexts.contains(&context)
    }
}

/// The "module" of directives that only Balanza has.
const OWN: &str = "balanza";

/// The whole table, in the order of the modules.
pub fn directives() -> &'static [Directive] {
    static TABLE: LazyLock<Vec<Directive>> = LazyLock::new(|| {
        let rows = |(module, rows): (&'static str, &'static [Directive])| {
            rows.iter().map(move |row| Directive { module, ..*row })
        };
        table::modules().flat_map(rows).collect()
    });
    &TABLE
}

/// The directives that only NGINX Plus has, by module.
fn plus() -> impl Iterator<Item = (&'static str, &'static str)> {
    let lines = include_str!("../../data/plus.txt").lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| line.split_once(": "))
}

/// Whether only NGINX Plus has this directive.
pub(crate) fn is_of_plus(name: &str) -> bool {
    plus().any(|(_, names)| names.split(' ').any(|word| word == name))
}

/// The directives of this name, one for each module that has it.
pub(crate) fn named(name: &[u8]) -> &'static [&'static Directive] {
    static INDEX: LazyLock<HashMap<&[u8], Vec<&Directive>>> = LazyLock::new(|| {
        let mut index: HashMap<&[u8], Vec<&Directive>> = HashMap::new();
        for directive in directives() {
            index.entry(directive.name.as_bytes()).or_default().push(directive);
        }
        index
    });
    INDEX.get(name).map_or(&[], Vec::as_slice)
}

/// The names of all directives.
pub(crate) fn known_names() -> &'static HashSet<&'static [u8]> {
    static NAMES: LazyLock<HashSet<&[u8]>> =
        LazyLock::new(|| directives().iter().map(|directive| directive.name.as_bytes()).collect());
    &NAMES
}
