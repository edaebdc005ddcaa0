//! `docs/directives.md`, generated from the table.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::{Context, Directive, OWN, State, directives, plus};

const HEAD: &str = "# Directives

Every directive of NGINX 1.31's own modules, what Balanza does with it, and what Balanza adds. This page is generated from
the table that the program itself uses (`crates/config/src/directives/table`).

- **yes**: works as in NGINX.
- **no effect**: accepted. It tunes how NGINX works inside and cannot change a response. The value is checked; the text says what
  Balanza does instead.
- **ignored**: accepted with a warning. Balanza does not have it yet; it cannot make a response wrong.
- **only `value`**: accepted with this value, which is what Balanza always does.
- Settings of what Balanza does not have are accepted as long as nothing uses them: see \"Without use\".
- All other directives of NGINX are errors, listed below under \"Not yet\".

## Supported

| directive | contexts | arguments | default | state |
|---|---|---|---|---|
";

const UNUSED: &str = "
## Without use

These directives, by NGINX module, are accepted, and have no effect: they are settings of FastCGI, SCGI, uwsgi, memcached or a cache
of responses, which Balanza does not have. The form of their values is checked. What would use them is an error (`fastcgi_pass`
and the like), or gives one warning (`proxy_cache`: responses are not cached).

";

/// `docs/directives.md`: the table for readers.
pub fn directives_markdown() -> String {
    let mut out = String::from(HEAD);
    let mut supported: Vec<&Directive> = directives()
        .iter()
        .filter(|directive| !matches!(directive.state, State::Unsupported | State::Unused) && directive.module != OWN)
        .collect();
    supported.sort_by_key(|directive| (directive.name, directive.module));
    for directive in supported {
        let (name, contexts, arguments) = (directive.name, contexts(directive), arguments(directive));
        let default = match (directive.documented_default, directive.default) {
            (text, default) if text != default => text.to_string(),
            (_, "") => String::new(),
            (_, default) => format!("`{default}`"),
        };
        let _ = writeln!(out, "| `{name}` | {contexts} | {arguments} | {default} | {} |", state(directive));
    }
    out.push('\n');
    out.push_str(include_str!("../../data/own.md"));
    out.push_str(UNUSED);
    by_module(&mut out, State::Unused);
    out.push_str("\n## Not yet\n\nThese directives, by NGINX module, are errors.\n\n");
    by_module(&mut out, State::Unsupported);
    out.push_str("\n## NGINX Plus\n\nThese directives exist only in NGINX Plus and are errors:\n\n");
    for (module, names) in plus() {
        let _ = writeln!(out, "- **{module}**: `{}`", names.replace(' ', "`, `"));
    }
    out
}

/// The names of the directives of one state.
fn by_module(out: &mut String, state: State) {
    let mut modules: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for directive in directives().iter().filter(|directive| directive.state == state) {
        modules.entry(directive.module).or_default().push(format!("`{}`", directive.name));
    }
    for (module, names) in modules {
        let _ = writeln!(out, "- **{module}**: {}", names.join(", "));
    }
}

fn state(directive: &Directive) -> String {
    match directive.state {
        State::Supported => "yes".to_string(),
        State::NoEffect(here) => format!("no effect: {here}"),
        State::LeftOut(None) => "ignored".to_string(),
        State::LeftOut(Some(value)) => format!("`{value}`, others are ignored"),
        State::Only(value) => format!("only `{value}`"),
        State::Unused | State::Unsupported => String::new(),
    }
}

fn contexts(directive: &Directive) -> String {
    if directive.contexts == Context::ALL {
        return "any".to_string();
    }
    let names = directive.contexts.iter().filter_map(|context| match context {
        Context::Main => Some("main"),
        Context::StreamServer => Some("server of stream"),
        Context::StreamUpstream => Some("upstream of stream"),
        Context::ServerIf | Context::LocationIf | Context::LimitExcept => None,
        context => Some(context.place()),
    });
    names.collect::<Vec<_>>().join(", ")
}

fn arguments(directive: &Directive) -> String {
    let arguments = directive.arguments;
    let count = match (arguments.least, arguments.most) {
        _ if arguments.flag => "on, off".to_string(),
        (least, usize::MAX) => format!("{least} or more"),
        (least, most) if least == most => least.to_string(),
        (least, most) => format!("{least} to {most}"),
    };
    if arguments.block { format!("{count}, block") } else { count }
}
