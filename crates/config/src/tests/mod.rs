//! Tests of what a configuration is made of; tests of whole configurations are in `tests/`.

mod lexing;
mod lookup;
mod values;

use crate::model::Config;
use crate::source::Bundle;
use crate::{Options, load};

/// Loads a text that must be free of errors.
pub(crate) fn config(text: &str) -> Config {
    let mut files = Bundle::default();
    files.add_file("/n.conf", text);
    let (config, problems) = load(&files, &Options::new("/", "/n.conf"));
    config.unwrap_or_else(|| panic!("{text}: {problems:?}"))
}

#[test]
fn suggestions_are_near() {
    use crate::directives::{Context, suggest};
    use crate::nearest;
    assert_eq!(suggest("proxy_pas", Context::Location), Some("proxy_pass"));
    assert_eq!(suggest("porxy_pass", Context::Location), Some("proxy_pass"));
    assert_eq!(suggest("proxy_pass", Context::Http), None, "no directive of this name may stand here");
    assert_eq!(suggest("lisen", Context::Server), Some("listen"));
    assert_eq!(suggest("xyzzy", Context::Http), None);
    assert_eq!(nearest("ofn", ["on", "off"]), Some("off"));
    assert_eq!(nearest("on", ["on"]), None, "the word itself is no suggestion");
}

/// The function of a row gets the block of each context that the row names.
#[test]
fn directives_are_read_where_they_may_stand() {
    use crate::directives::{Context, Reader, State, directives};
    for directive in directives() {
        let read = |context: &Context| match directive.reader {
            Reader::Core(_) => matches!(context, Context::Main | Context::Events),
            Reader::Http(_) => matches!(
                context,
                Context::Http
                    | Context::Server
                    | Context::ServerIf
                    | Context::Location
                    | Context::LocationIf
                    | Context::LimitExcept
            ),
            Reader::Upstream(_) => matches!(context, Context::Upstream | Context::StreamUpstream),
            Reader::Stream(_) => matches!(context, Context::Stream | Context::StreamServer),
            Reader::Check(_) => true,
            Reader::Context => directive.arguments.block || directive.name == "include",
            Reader::None => directive.state != State::Supported,
        };
        assert!(directive.contexts.iter().all(read), "{}", directive.name);
    }
}

/// What is asked of a block by the name of a field: one that is mistyped would never be given.
#[test]
fn what_is_asked_for_is_a_field_of_directives() {
    fn ask(directory: &std::path::Path, names: &mut Vec<String>) {
        for entry in std::fs::read_dir(directory).unwrap().map(Result::unwrap) {
            if entry.path().is_dir() {
                ask(&entry.path(), names);
                continue;
            }
            let text = std::fs::read_to_string(entry.path()).unwrap();
            let asked = text.split(".has").skip(1).filter_map(|rest| rest.strip_prefix("(\"")?.split_once('"'));
            names.extend(asked.map(|(name, _)| name.to_string()));
        }
    }
    let mut names = Vec::new();
    ask(&std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut names);
    assert!(names.len() >= 10, "{names:?}");
    let is_field = |name: &String| crate::directives::directives().iter().any(|directive| directive.field == name);
    let wrong: Vec<&String> = names.iter().filter(|name| !is_field(name)).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
}
