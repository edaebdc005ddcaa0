//! The blocks of a configuration, from the whole file to a location: which directives stand in each, and what they come to
//! together. What one directive says is read by the function that its row in the table names.

mod core;
mod http;
mod list;
mod location;
mod method;
mod nested;
mod stream;
mod upstream;

use std::sync::LazyLock;

use crate::block::Given;
use crate::diagnostics::{Diagnostic, Severity, Span};
use crate::directives::{Context, Directive, directives, known_names};
use crate::lexer::Word;
use crate::load::{Builder, Options};
use crate::model::{Certificate, Config, Http, Stream};
use crate::source::Source;
use crate::tree::{Reader, Statement, plain};

pub use list::read_servers;
pub use method::read_method;

/// Reads a configuration. All its problems are returned; the configuration only if none of them is an error.
pub fn load(source: &dyn Source, options: &Options) -> (Option<Config>, Vec<Diagnostic>) {
    let file = plain(&options.prefix.join(&options.file));
    let mut reader = Reader::new(source, &file);
    let mut statements = options.globals.as_ref().map(|text| reader.parameters(text)).unwrap_or_default();
    statements.extend(reader.read(&file));
    let exceeded = reader.extent.exceeded;
    let mut builder = Builder::new(source, options, reader.files, reader.diagnostics, known_names());
    builder.upstream_defaults = builder.read_upstream_defaults();
    let unreadable = exceeded || builder.diagnostics.iter().any(|diagnostic| diagnostic.place.is_none());
    let config = if unreadable { None } else { builder.config(&statements) };
    let diagnostics = builder.into_diagnostics(exceeded);
    let failed = diagnostics.iter().any(|diagnostic| diagnostic.severity == Severity::Error);
    (config.filter(|_| !failed), diagnostics)
}

impl Builder<'_> {
    fn config(&mut self, statements: &[Statement]) -> Option<Config> {
        let mut core = self.core_defaults();
        let mut http = None;
        let mut stream = None;
        for statement in statements {
            let Some(directive) = self.check(statement, Context::Main) else { continue };
            let fresh = self.admit(&mut core.given, directive, statement);
            match (directive.name, &statement.block) {
                ("events", Some(block)) => self.events(&mut core, block),
                ("http", Some(block)) => http = Some(block),
                ("stream", Some(block)) => stream = Some(block),
                _ if fresh => self.core_directive(&mut core, directive, statement),
                _ => {}
            }
        }
        if !core.given.has("events") {
            let missing = Diagnostic::new(Severity::Error, "no \"events\" section in configuration", None);
            let hint = Some("add \"events { }\"; it may be empty".to_string());
            self.diagnostics.push(Diagnostic { hint, ..missing });
        }
        let mut core = core.core;
        self.check_cpu_affinity(&core, statements);
        self.look_for_keys(&mut core, statements);
        let http = match http {
            Some(block) => self.http(block, &core),
            None => Http::default(),
        };
        let stream = match stream {
            Some(block) => self.stream(block, &core, &http.listens),
            None => Stream::default(),
        };
        let mut certificates: Vec<Certificate> = Vec::new();
        for ((name, ..), certified) in &self.certificates {
            let leaf = certified.as_ref().and_then(|certified| certified.cert.first());
            if let Some(ends) = leaf.and_then(balanza_tls::certificates::expires)
                && !name.starts_with(b"data:")
            {
                certificates.push(Certificate { file: self.conf_path(name), ends });
            }
        }
        certificates.sort_by(|one, other| one.file.cmp(&other.file));
        let certificate_caches = std::mem::take(&mut self.certificate_caches);
        let staplings = std::mem::take(&mut self.staplings);
        Some(Config { core, http, stream, certificates, certificate_caches, staplings })
    }

    /// Notes a directive of a block. `false` if it may stand once and stands there already.
    pub fn admit(&mut self, given: &mut Given, directive: &'static Directive, s: &Statement) -> bool {
        match given.note(directive.field, directive.name) {
            None => true,
            Some(_) if directive.again => true,
            Some(earlier) if earlier == directive.name => {
                self.duplicate(s);
                false
            }
            Some(earlier) => {
                let name = directive.name;
                let message =
                    format!("\"{name}\" directive is duplicate, \"{earlier}\" directive was specified earlier");
                self.error(s.words[0].span, message);
                false
            }
        }
    }
}

/// The directives that have defaults, as they would be written.
fn defaults() -> impl Iterator<Item = (&'static Directive, &'static Statement)> {
    static DEFAULTS: LazyLock<Vec<(&Directive, Statement)>> = LazyLock::new(|| {
        let with_default = directives().iter().filter(|directive| !directive.default.is_empty());
        with_default.map(|directive| (directive, statement(directive))).collect()
    });
    DEFAULTS.iter().map(|(directive, statement)| (*directive, statement))
}

fn statement(directive: &Directive) -> Statement {
    let span = Span { file: 0, start: 0, end: 0 };
    let texts = std::iter::once(directive.name).chain(directive.default.split(' '));
    let words = texts.map(|text| Word { value: text.into(), span }).collect();
    Statement { words, block: None, order: 0 }
}
