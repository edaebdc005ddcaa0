//! The table of directives, NGINX's and Balanza's own: where each may stand, its arguments, and what becomes of it.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;
use std::sync::LazyLock;

/// A context that Balanza has. The table names others too: `mail`, and those of `if` and `limit_except`.
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
    /// `location`.
    Location,
    /// `upstream` in `http`.
    Upstream,
    /// `stream`.
    Stream,
    /// `server` in `stream`.
    StreamServer,
    /// `upstream` in `stream`.
    StreamUpstream,
}

impl Context {
    /// Its name in messages and documents.
    pub fn name(self) -> &'static str {
        match self {
            Context::Main => "main",
            Context::Events => "events",
            Context::Http => "http",
            Context::Server => "server",
            Context::Location => "location",
            Context::Upstream => "upstream",
            Context::Stream => "stream",
            Context::StreamServer => "stream-server",
            Context::StreamUpstream => "stream-upstream",
        }
    }

    /// Where a reader of a message is.
    pub(crate) fn place(self) -> &'static str {
        match self {
            Context::Main => "outside all blocks",
            Context::StreamServer => "a server of stream",
            Context::StreamUpstream => "an upstream of stream",
            _ => self.name(),
        }
    }
}

/// The places of these directives for a reader of a message: "http, server or location". Those of the other protocol
/// than the reader's, and blocks that Balanza does not have, are named only where there is no other.
pub(crate) fn places(directives: &[&Directive], context: Context) -> String {
    let names = || directives.iter().flat_map(|directive| directive.contexts.iter().copied());
    let http = ["main", "events", "http", "server", "location", "upstream"];
    let stream = ["main", "stream", "stream-server", "stream-upstream"];
    let in_stream = context.name().starts_with("stream");
    let (here, there) = if in_stream { (&stream[..], &http[..]) } else { (&http[..], &stream[..]) };
    let of = |contexts: &[&'static str]| -> Vec<&str> {
        contexts.iter().copied().filter(|context| names().any(|name| name == *context)).collect()
    };
    let mut places = of(here);
    if places.is_empty() {
        places = of(there);
    }
    if places.is_empty() {
        places = names().collect();
        places.sort_unstable();
        places.dedup();
    }
    let words: Vec<&str> = places
        .into_iter()
        .map(|place| match place {
            "main" => Context::Main.place(),
            "server-if" => "an \"if\" of a server",
            "location-if" => "an \"if\" of a location",
            "mail-server" => "a server of mail",
            "stream-server" => Context::StreamServer.place(),
            "stream-upstream" => Context::StreamUpstream.place(),
            other => other,
        })
        .collect();
    match words.split_last() {
        Some((last, [])) => (*last).to_string(),
        Some((last, others)) => format!("{} or {last}", others.join(", ")),
        None => String::new(),
    }
}

/// What becomes of a directive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// It does what it does in NGINX.
    Supported,
    /// Accepted with a warning: it is done anyway or has no counterpart.
    Needless,
    /// Accepted with a warning, unless it has this value: it is missing, and no answer is wrong without it.
    LeftOut(Option<String>),
    /// Only this value is accepted: it asks for what is done anyway.
    Only(String),
    /// Refused.
    Unsupported,
}

/// A directive in one module.
#[derive(Debug, Clone)]
pub struct Directive {
    /// Its name.
    pub name: &'static str,
    /// NGINX's module; "balanza" for what only Balanza has.
    pub module: &'static str,
    /// Where it may stand, in the table's words.
    pub contexts: Vec<&'static str>,
    /// Fewest and most arguments.
    pub arguments: (usize, usize),
    /// `on` or `off`.
    pub flag: bool,
    /// Whether it opens a block.
    pub block: bool,
    /// What becomes of it.
    pub state: State,
    /// The reason of its warning, or the hint to its error.
    pub note: Option<&'static str>,
}

impl Directive {
    /// Whether it may stand here.
    pub fn allowed_in(&self, context: Context) -> bool {
        self.contexts.iter().any(|name| *name == "any" || *name == context.name())
    }
}

/// The "module" of directives that only Balanza has.
const OWN: &str = "balanza";

/// The whole table, in the order of the modules.
pub fn directives() -> &'static [Directive] {
    static TABLE: LazyLock<Vec<Directive>> = LazyLock::new(|| {
        let mut module = "";
        let mut table = Vec::new();
        for line in include_str!("../data/directives.txt").lines() {
            if let Some(name) = line.strip_prefix('[') {
                module = name.trim_end_matches(']');
            } else if !line.starts_with('#') {
                table.extend(parse_line(module, line));
            }
        }
        table
    });
    &TABLE
}

fn parse_line(module: &'static str, line: &'static str) -> Option<Directive> {
    let mut fields = line.split('|').map(str::trim);
    let (name, contexts, arguments, state) = (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
    let (count, block) = match arguments.strip_suffix("{}") {
        Some(count) => (count.trim(), true),
        None => (arguments, false),
    };
    let arguments = if count == "flag" {
        (1, 1)
    } else if let Some(least) = count.strip_suffix('+') {
        (least.parse().ok()?, usize::MAX)
    } else {
        let (least, most) = count.split_once('-').unwrap_or((count, count));
        (least.parse().ok()?, most.parse().ok()?)
    };
    let state = match state {
        "yes" => State::Supported,
        "needless" => State::Needless,
        "left-out" => State::LeftOut(None),
        "no" => State::Unsupported,
        _ => match state.split_once(':')? {
            ("only", value) => State::Only(value.to_string()),
            ("left-out", value) => State::LeftOut(Some(value.to_string())),
            _ => return None,
        },
    };
    let contexts = contexts.split(' ').collect();
    Some(Directive { name, module, contexts, arguments, flag: count == "flag", block, state, note: fields.next() })
}

/// The directives that only NGINX Plus has, by module.
fn plus() -> impl Iterator<Item = (&'static str, &'static str)> {
    let lines = include_str!("../data/plus.txt").lines().filter(|line| !line.starts_with('#'));
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

/// `docs/directives.md`: the table for readers.
pub fn directives_markdown() -> String {
    let mut out = String::from(
        "# Directives\n\n\
         Every directive of NGINX 1.31's own modules, what Balanza does with it, and what Balanza adds. This page is \
         generated from\nthe table that the program itself uses (`crates/config/data/directives.txt`).\n\n\
         - **yes**: works as in NGINX.\n\
         - **not needed**: accepted with a warning. Balanza always does this, or has nothing that corresponds.\n\
         - **ignored**: accepted with a warning. Balanza does not have it yet; it cannot make a response wrong.\n\
         - **only `value`**: accepted with this value, which is what Balanza always does.\n\
         - All other directives of NGINX are errors, listed below under \"Not yet\".\n\n\
         ## Supported\n\n\
         | directive | contexts | arguments | state |\n|---|---|---|---|\n",
    );
    let mut supported: Vec<&Directive> = directives()
        .iter()
        .filter(|directive| directive.state != State::Unsupported && directive.module != OWN)
        .collect();
    supported.sort_by_key(|directive| (directive.name, directive.module));
    for directive in supported {
        let state = match &directive.state {
            State::Supported => "yes".to_string(),
            State::Needless => "not needed".to_string(),
            State::LeftOut(None) => "ignored".to_string(),
            State::LeftOut(Some(value)) => format!("`{value}`, others are ignored"),
            State::Only(value) => format!("only `{value}`"),
            State::Unsupported => String::new(),
        };
        let contexts = directive
            .contexts
            .iter()
            .filter(|name| !name.ends_with("-if") && **name != "limit_except")
            .map(|name| match *name {
                "stream-server" => "server of stream",
                "stream-upstream" => "upstream of stream",
                name => name,
            })
            .collect::<Vec<_>>()
            .join(", ");
        let _ = writeln!(out, "| `{}` | {contexts} | {} | {state} |", directive.name, arguments(directive));
    }
    out.push('\n');
    out.push_str(include_str!("../data/own.md"));
    out.push_str("\n## Not yet\n\nThese directives, by NGINX module, are errors.\n\n");
    let mut missing: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for directive in directives().iter().filter(|directive| directive.state == State::Unsupported) {
        missing.entry(directive.module).or_default().push(directive.name);
    }
    for (module, names) in missing {
        let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
        let _ = writeln!(out, "- **{module}**: {}", names.join(", "));
    }
    out.push_str("\n## NGINX Plus\n\nThese directives exist only in NGINX Plus and are errors:\n\n");
    for (module, names) in plus() {
        let _ = writeln!(out, "- **{module}**: `{}`", names.replace(' ', "`, `"));
    }
    out
}

fn arguments(directive: &Directive) -> String {
    let count = match directive.arguments {
        _ if directive.flag => "on, off".to_string(),
        (least, usize::MAX) => format!("{least} or more"),
        (least, most) if least == most => least.to_string(),
        (least, most) => format!("{least} to {most}"),
    };
    if directive.block { format!("{count}, block") } else { count }
}

/// The name nearest to a mistyped one among those that are valid in a context.
pub(crate) fn suggest(name: &str, context: Context) -> Option<&'static str> {
    let names = directives()
        .iter()
        .filter(|directive| directive.allowed_in(context) && directive.state != State::Unsupported)
        .map(|directive| directive.name);
    nearest(name, names)
}

/// The word nearest to a mistyped one, if it is near enough to be meant.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let limit = (word.chars().count() / 3).clamp(1, 3);
    candidates
        .into_iter()
        // Each insertion or deletion changes the length: most candidates need no further look.
        .filter(|candidate| candidate.len().abs_diff(word.len()) <= limit)
        .map(|candidate| (distance(word, candidate), candidate))
        .filter(|(distance, _)| (1..=limit).contains(distance))
        .min()
        .map(|(_, candidate)| candidate)
}

/// Edits between two words: insertions, deletions, replacements and swaps of neighbours.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, cb) in b.iter().enumerate() {
            let mut cost = (above[j] + usize::from(ca != cb)).min(above[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *ca == b[j - 1] && a[i - 1] == *cb {
                cost = cost.min(before[j - 1] + 1);
            }
            row.push(cost);
        }
        before = std::mem::replace(&mut above, row);
    }
    above[b.len()]
}
