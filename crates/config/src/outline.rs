//! A configuration as it is written: its log formats and upstreams, for programs that read logs and propose changes, and
//! its directives, for what uses them.
//! The rest of the configuration is not judged, so that it may be one that does not load.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::diagnostics::{Diagnostic, Files, Severity, Span};
use crate::lexer::Word;
use crate::load::Options;
use crate::source::Source;
use crate::tree::{Reader, Statement, plain};

/// A `log_format`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutlineFormat {
    /// Its name.
    pub name: String,
    /// The value of `escape=`, or `default`.
    pub escape: String,
    /// Its strings, joined.
    pub text: String,
}

/// A directive of an `upstream` block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutlineDirective {
    /// The name and the arguments.
    pub words: Vec<String>,
    /// From the name to the last argument, in bytes of the file.
    pub place: Range<usize>,
}

/// An `upstream` block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutlineUpstream {
    /// Its name.
    pub name: String,
    /// The file that its first directive stands in.
    pub file: PathBuf,
    /// Where the block's name ends, in bytes of the file that it stands in.
    pub head: Range<usize>,
    /// Its directives. Those of other files are left out.
    pub directives: Vec<OutlineDirective>,
}

/// What is written of logs and upstreams.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Outline {
    /// In the order of the text.
    pub formats: Vec<OutlineFormat>,
    /// In the order of the text, those of `http` and `stream`.
    pub upstreams: Vec<OutlineUpstream>,
}

/// Reads the log formats and upstreams of a configuration.
///
/// # Errors
/// What cannot be read, and what is no configuration at all.
pub fn outline(source: &dyn Source, options: &Options) -> Result<Outline, Vec<Diagnostic>> {
    let file = plain(&options.prefix.join(&options.file));
    let mut reader = Reader::new(source, &file);
    let statements = reader.read(&file);
    let wrong = reader.diagnostics.iter().any(|diagnostic| diagnostic.severity == Severity::Error);
    if wrong {
        return Err(reader.diagnostics);
    }
    let mut outline = Outline::default();
    for statement in &statements {
        for inner in statement.block.iter().flatten() {
            read(inner, &reader.files, &mut outline);
        }
        // A file of its own, to be included into the http block.
        read(statement, &reader.files, &mut outline);
    }
    Ok(outline)
}

fn read(statement: &Statement, files: &Files, outline: &mut Outline) {
    let args = statement.args();
    match (statement.name().as_str(), &statement.block) {
        ("log_format", None) if args.len() >= 2 => {
            let escape =
                args[1].value.strip_prefix(b"escape=").map(|value| String::from_utf8_lossy(value).into_owned());
            let texts = &args[if escape.is_some() { 2 } else { 1 }..];
            outline.formats.push(OutlineFormat {
                name: args[0].text(),
                escape: escape.unwrap_or_else(|| "default".into()),
                text: texts.iter().map(Word::text).collect(),
            });
        }
        ("upstream", Some(block)) if !args.is_empty() => {
            let head = statement.span();
            let place = |span: Span| span.start as usize..span.end as usize;
            let own = block.iter().filter(|directive| directive.span().file == head.file);
            let directive = |directive: &Statement| OutlineDirective {
                words: directive.words.iter().map(Word::text).collect(),
                place: place(directive.span()),
            };
            outline.upstreams.push(OutlineUpstream {
                name: args[0].text(),
                file: files.place(head).file,
                head: place(head),
                directives: own.map(directive).collect(),
            });
        }
        _ => {}
    }
}

/// The words of every directive, of those in blocks too, behind those of `-g`; and how many files they stand in. What cannot
/// be read is left out.
pub fn statements(source: &dyn Source, options: &Options) -> (Vec<Vec<String>>, usize) {
    let file = plain(&options.prefix.join(&options.file));
    let mut reader = Reader::new(source, &file);
    let mut tree = options.globals.as_ref().map(|text| reader.parameters(text)).unwrap_or_default();
    let parameters = reader.files.count();
    tree.extend(reader.read(&file));
    let files: BTreeSet<&Path> = reader.files.paths().skip(parameters).collect();
    let mut all = Vec::new();
    flatten(&tree, &mut all);
    (all, files.len())
}

fn flatten(statements: &[Statement], all: &mut Vec<Vec<String>>) {
    for statement in statements {
        all.push(statement.words.iter().map(Word::text).collect());
        flatten(statement.block.as_deref().unwrap_or_default(), all);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Bundle;

    #[test]
    fn formats_and_upstreams_as_they_are_written() {
        let text = "http {\n  log_format up escape=json '$msec ' '$upstream_addr';\n  unknown_module on;\n  \
                    upstream api {\n    least_conn;\n    server 10.0.0.1:80 weight=2;\n    include more;\n  }\n}\n";
        let mut files = Bundle::default();
        files.add_file("/a/nginx.conf", text);
        files.add_file("/a/more", "server 10.0.0.2:80;");
        let outline = outline(&files, &Options::new("/a", "/a/nginx.conf")).unwrap();
        let format = OutlineFormat { name: "up".into(), escape: "json".into(), text: "$msec $upstream_addr".into() };
        assert_eq!(outline.formats, [format]);
        let [api] = &outline.upstreams[..] else { panic!("{outline:?}") };
        assert_eq!((api.name.as_str(), api.file.as_path()), ("api", Path::new("/a/nginx.conf")));
        assert_eq!(&text[api.head.clone()], "upstream api");
        let [method, server] = &api.directives[..] else { panic!("{api:?}") };
        assert_eq!(
            (&text[method.place.clone()], &text[server.place.clone()]),
            ("least_conn", "server 10.0.0.1:80 weight=2")
        );
        assert_eq!(server.words, ["server", "10.0.0.1:80", "weight=2"]);
    }

    #[test]
    fn directives_of_all_blocks_are_found() {
        let mut files = Bundle::default();
        let text = "user a; # no; \nhttp { log_format x '$a; \"b\"' c;\n server { listen 80 udp; include more; }\n \
                    include more; }\nload_module \"m.so\";";
        files.add_file("/a/nginx.conf", text);
        files.add_file("/a/more", r"rewrite ^/(\d{2})\.x$ ${a}b;");
        // What no `include` names is not a part of it.
        files.add_file("/a/servers", "server 10.0.0.1;");
        let mut options = Options::new("/a", "/a/nginx.conf");
        options.globals = Some("daemon on;".into());
        let (all, count) = statements(&files, &options);
        let rewrite = r"rewrite ^/(\d";
        let expected = ["daemon on", "user a", "http", "log_format x $a; \"b\" c", "server", "listen 80 udp", rewrite];
        let found: Vec<_> = all.iter().map(|words| words.join(" ")).collect();
        assert_eq!((&found[..7], count), (&expected.map(str::to_string)[..], 2), "{found:?}");
    }

    #[test]
    fn what_cannot_be_read_is_an_error() {
        let mut files = Bundle::default();
        files.add_file("/a/nginx.conf", "http { upstream a {");
        assert!(outline(&files, &Options::new("/a", "/a/nginx.conf")).is_err());
        assert!(outline(&files, &Options::new("/a", "/a/other.conf")).is_err());
    }
}
