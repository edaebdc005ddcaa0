//! docs/directives.md says what the table says, and the table says what holds. `BALANZA_UPDATE_DOCS=1 cargo test` writes
//! the page.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use balanza_config::{Bundle, Context, Options, directives, directives_markdown, load};

#[test]
fn directives_are_documented() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/directives.md");
    let wanted = directives_markdown();
    if std::env::var_os("BALANZA_UPDATE_DOCS").is_some() {
        std::fs::write(&file, &wanted).unwrap();
    }
    let found = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(found == wanted, "docs/directives.md is not current: run BALANZA_UPDATE_DOCS=1 cargo test");
}

/// What only Balanza has is explained nowhere else.
#[test]
fn own_directives_are_explained() {
    let text = directives_markdown();
    for directive in directives().iter().filter(|directive| directive.module == "balanza") {
        let heading = format!("### `{}", directive.name);
        let is_explained = [' ', ';'].iter().any(|end| text.contains(&format!("{heading}{end}")));
        assert!(is_explained, "{} is not explained", directive.name);
    }
}

#[test]
fn table_is_well_formed() {
    let mut seen = BTreeSet::new();
    for directive in directives() {
        for context in directive.contexts {
            assert!(seen.insert((directive.name, *context)), "{} is twice in {context:?}", directive.name);
        }
        assert!(directive.arguments.least <= directive.arguments.most, "{}", directive.name);
    }
}

/// A configuration with a directive in a context, and what it means: `None` where nothing can stand.
fn meaning(context: Context, directive: &str) -> Option<String> {
    let [mut main, mut events, mut http, mut server, mut location, mut upstream] = [""; 6];
    let [mut stream, mut stream_server, mut stream_upstream] = [""; 3];
    *match context {
        Context::Main => &mut main,
        Context::Events => &mut events,
        Context::Http => &mut http,
        Context::Server => &mut server,
        Context::Location => &mut location,
        Context::Upstream => &mut upstream,
        Context::Stream => &mut stream,
        Context::StreamServer => &mut stream_server,
        Context::StreamUpstream => &mut stream_upstream,
        _ => return None,
    } = directive;
    let text = format!(
        "events {{ {events} }} {main}
         http {{ {http} upstream u {{ server 127.0.0.1; {upstream} }} server {{ {server} location / {{ {location} }} }} }}
         stream {{ {stream} upstream u {{ server 127.0.0.1:1; {stream_upstream} }}
                   server {{ listen 1; proxy_pass u; {stream_server} }} }}"
    );
    let mut files = Bundle::default();
    files.add_file("/n.conf", text.clone());
    let (config, problems) = load(&files, &Options::new("/", "/n.conf"));
    assert!(problems.is_empty(), "{text}: {problems:?}");
    // In any order, since that of a hash table is another one each time.
    let debug = format!("{config:?}");
    let mut words: Vec<&str> = debug.split([' ', ',', '{', '}', '(', ')', '[', ']']).collect();
    words.sort_unstable();
    Some(words.join(" "))
}

/// A default is what holds without the directive.
#[test]
fn defaults_can_be_written() {
    let mut count = 0;
    let mut without = BTreeMap::new();
    for directive in directives().iter().filter(|directive| !directive.default.is_empty()) {
        for context in directive.contexts {
            let written = meaning(*context, &format!("{} {};", directive.name, directive.default));
            let unwritten = without.entry(*context).or_insert_with(|| meaning(*context, ""));
            assert_eq!(written, *unwritten, "{} in {context:?}", directive.name);
            count += usize::from(written.is_some());
        }
    }
    assert!(count > 150, "{count}");
}
