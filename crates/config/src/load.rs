//! From text to [`Config`]: the entry point, and what all contexts share.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::diagnostics::{Diagnostic, Files, Severity, Span};
use crate::directives::{self, Context, Directive, State};
use crate::lexer::Word;
use crate::model::{Config, Core, ErrorLog, Http, Level, LogFormat, LogTarget};
use crate::regex::Regex;
use crate::source::Source;
use crate::template::Template;
use crate::tree::{Reader, Statement, bytes_path};
use crate::upstream::UpstreamDraft;
use crate::values;
use crate::variables::{SetError, Variables};

/// What a configuration depends on besides its text: the command line and the build's defaults.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Options {
    /// `-p`: relative paths of logs and roots start here. Absolute.
    pub prefix: PathBuf,
    /// `-c`: the main file. Absolute, or relative to the prefix. Its directory is where `include` looks.
    pub file: PathBuf,
    /// `-g`: directives of the main context.
    pub globals: Option<String>,
    /// `-e`: the error log until the configuration names one; "stderr" is standard error.
    pub error_log: PathBuf,
    /// The process id's file unless the configuration names one.
    pub pid: PathBuf,
    /// The access log unless the configuration names one.
    pub access_log: PathBuf,
    /// Whether the process may bind ports below 1024: without `listen` a server is on port 80, otherwise on 8000.
    pub privileged: bool,
    /// `$hostname`, for `server_name $hostname`.
    pub hostname: String,
}

impl Options {
    /// NGINX's defaults for this prefix and file.
    pub fn new(prefix: impl Into<PathBuf>, file: impl Into<PathBuf>) -> Options {
        Options {
            prefix: prefix.into(),
            file: file.into(),
            globals: None,
            error_log: "logs/error.log".into(),
            pid: "logs/nginx.pid".into(),
            access_log: "logs/access.log".into(),
            privileged: false,
            hostname: "localhost".into(),
        }
    }

    /// The same with what this process knows: its privileges and the host's name.
    #[must_use]
    pub fn with_process(mut self) -> Options {
        use std::os::unix::fs::MetadataExt;
        self.privileged = std::fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0);
        if let Ok(name) = std::fs::read_to_string("/proc/sys/kernel/hostname") {
            self.hostname = name.trim().to_string();
        }
        self
    }
}

/// Reads a configuration. All its problems are returned; the configuration only if none of them is an error.
pub fn load(source: &dyn Source, options: &Options) -> (Option<Config>, Vec<Diagnostic>) {
    let file = options.prefix.join(&options.file);
    let conf_dir = file.parent().map(Path::to_path_buf).unwrap_or_default();
    let mut reader =
        Reader { source, conf_dir, files: Files::default(), diagnostics: Vec::new(), next_order: 0, open: Vec::new() };
    let mut statements = options.globals.as_ref().map(|text| reader.parameters(text)).unwrap_or_default();
    statements.extend(reader.read(&file));
    let mut builder = Builder {
        source,
        options,
        files: reader.files,
        diagnostics: reader.diagnostics,
        variables: Variables::default(),
        formats: Vec::new(),
        upstreams: Vec::new(),
        access_log_files: BTreeSet::new(),
        proxies: 0,
    };
    let unreadable = builder.diagnostics.iter().any(|diagnostic| diagnostic.place.is_none());
    let config = if unreadable { None } else { builder.config(&statements) };
    let mut diagnostics = builder.diagnostics;
    // In the order of the text, file by file; what concerns the whole configuration comes last.
    let mut order: Vec<PathBuf> = Vec::new();
    for place in diagnostics.iter().filter_map(|diagnostic| diagnostic.place.as_ref()) {
        if !order.contains(&place.file) {
            order.push(place.file.clone());
        }
    }
    diagnostics.sort_by_key(|diagnostic| {
        diagnostic.place.as_ref().map_or((usize::MAX, 0, 0), |place| {
            let file = order.iter().position(|file| *file == place.file).unwrap_or(usize::MAX - 1);
            (file, place.line, place.column)
        })
    });
    diagnostics.dedup();
    let failed = diagnostics.iter().any(|diagnostic| diagnostic.severity == Severity::Error);
    (config.filter(|_| !failed), diagnostics)
}

/// A `log_format`, with its place in the text: it must stand before its use.
pub(crate) struct Format {
    pub format: Arc<LogFormat>,
    pub order: u32,
}

/// What is being built.
pub(crate) struct Builder<'a> {
    pub source: &'a dyn Source,
    pub options: &'a Options,
    pub files: Files,
    pub diagnostics: Vec<Diagnostic>,
    pub variables: Variables,
    pub formats: Vec<Format>,
    pub upstreams: Vec<UpstreamDraft>,
    pub access_log_files: BTreeSet<PathBuf>,
    /// How many `proxy_pass` there are so far.
    pub proxies: usize,
}

/// What [`Builder::check`] says about a directive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Its meaning is to be read.
    Use,
    /// It is wrong or has no effect, and all is said.
    Skip,
}

impl Builder<'_> {
    fn config(&mut self, statements: &[Statement]) -> Option<Config> {
        let mut core = crate::core::CoreDraft::default();
        let mut http = None;
        let mut events = false;
        for statement in statements {
            if self.check(statement, Context::Main) == Verdict::Skip {
                continue;
            }
            match (statement.words[0].value.as_slice(), &statement.block) {
                (b"events", Some(block)) => {
                    if std::mem::replace(&mut events, true) {
                        self.duplicate(statement);
                    }
                    self.events(&mut core, block);
                }
                (b"http", Some(block)) => {
                    if http.replace(block).is_some() {
                        self.duplicate(statement);
                    }
                }
                _ => self.core_directive(&mut core, statement),
            }
        }
        if !events {
            let missing = Diagnostic::new(Severity::Error, "no \"events\" section in configuration", None);
            let hint = Some("add \"events { }\"; it may be empty".to_string());
            self.diagnostics.push(Diagnostic { hint, ..missing });
        }
        let core: Core = self.finish_core(core);
        let http = match http {
            Some(block) => self.http(block, &core),
            None => Http::default(),
        };
        Some(Config { core, http })
    }

    /// Adds a problem.
    pub fn report(&mut self, severity: Severity, span: Span, message: impl Into<String>) -> &mut Diagnostic {
        let place = Some(self.files.place(span));
        self.diagnostics.push(Diagnostic::new(severity, &message.into(), place));
        let last = self.diagnostics.len() - 1;
        &mut self.diagnostics[last]
    }

    pub fn error(&mut self, span: Span, message: impl Into<String>) {
        self.report(Severity::Error, span, message);
    }

    pub fn error_hint(&mut self, span: Span, message: impl Into<String>, hint: impl Into<String>) {
        self.report(Severity::Error, span, message).hint = Some(hint.into());
    }

    pub fn warning(&mut self, span: Span, message: impl Into<String>) {
        self.report(Severity::Warning, span, message);
    }

    /// `"x" directive is duplicate`.
    pub fn duplicate(&mut self, statement: &Statement) {
        self.error(statement.words[0].span, format!("\"{}\" directive is duplicate", statement.name()));
    }

    /// `"x" directive invalid value`, at an argument.
    pub fn invalid_value(&mut self, statement: &Statement, word: &Word) {
        self.error(word.span, format!("\"{}\" directive invalid value", statement.name()));
    }

    /// `invalid parameter "x"`, with a hint from the parameters that exist.
    pub fn invalid_parameter(&mut self, word: &Word, known: &[&str]) {
        let text = word.text();
        let name = text.split_once('=').map_or(text.as_str(), |(name, _)| name);
        let hint = directives::nearest(name, known.iter().map(|k| k.trim_end_matches('=')))
            .map(|near| format!("did you mean `{near}`?"));
        self.report(Severity::Error, word.span, format!("invalid parameter \"{text}\"")).hint = hint;
    }

    /// A parameter that NGINX has and Balanza has not.
    pub fn unsupported_parameter(&mut self, statement: &Statement, word: &Word) {
        let (name, parameter) = (statement.name(), word.text());
        let message = format!("\"{parameter}\" of \"{name}\" is a parameter of NGINX that Balanza does not have yet");
        self.error(word.span, message);
    }

    /// Judges a directive by the table: name, context, form and number of arguments, and what becomes of it.
    pub fn check(&mut self, statement: &Statement, context: Context) -> Verdict {
        let name = statement.name();
        let span = statement.words[0].span;
        let known = directives::named(&statement.words[0].value);
        if known.is_empty() {
            let hint = directives::suggest(&name, context).map(|near| format!("did you mean `{near}`?"));
            self.report(Severity::Error, span, format!("unknown directive \"{name}\"")).hint = hint;
            return Verdict::Skip;
        }
        let Some(directive) = known.iter().copied().find(|directive| directive.allowed_in(context)) else {
            let mut places: Vec<&str> = known.iter().flat_map(|d| d.contexts.iter().copied()).collect();
            places.sort_unstable();
            places.dedup();
            let hint = format!("it belongs in {}, and this is {}", places.join(", "), context.name());
            self.error_hint(span, format!("\"{name}\" directive is not allowed here"), hint);
            return Verdict::Skip;
        };
        if directive.block != statement.block.is_some() {
            let message = if directive.block {
                format!("directive \"{name}\" has no opening \"{{\"")
            } else {
                format!("directive \"{name}\" is not terminated by \";\"")
            };
            let hint = self.missing_semicolon(statement);
            self.report(Severity::Error, statement.span(), message).hint = hint;
            return Verdict::Skip;
        }
        let count = statement.args().len();
        let (least, most) = directive.arguments;
        if count < least || count > most {
            let expected = match (least, most) {
                (least, usize::MAX) => format!("at least {least} expected, {count} given"),
                (least, most) if least == most => format!("{least} expected, {count} given"),
                (least, most) => format!("{least} to {most} expected, {count} given"),
            };
            let hint = self.missing_semicolon(statement).unwrap_or(expected);
            let message = format!("invalid number of arguments in \"{name}\" directive");
            self.error_hint(statement.span(), message, hint);
            return Verdict::Skip;
        }
        self.check_state(statement, directive)
    }

    fn check_state(&mut self, statement: &Statement, directive: &Directive) -> Verdict {
        let name = directive.name;
        let span = statement.words[0].span;
        match &directive.state {
            State::Supported => Verdict::Use,
            State::Harmless => {
                self.warning(span, format!("\"{name}\" is not supported yet; it has no effect"));
                Verdict::Skip
            }
            State::Only(value) => {
                let [word] = statement.args() else {
                    return self.unsupported(span, name);
                };
                if !word.value.eq_ignore_ascii_case(value.as_bytes()) {
                    let message =
                        format!("\"{name} {}\" is a setting of NGINX that Balanza does not have yet", word.text());
                    self.error_hint(word.span, message, format!("only \"{name} {value}\" is possible"));
                }
                Verdict::Skip
            }
            State::Unsupported => self.unsupported(span, name),
        }
    }

    fn unsupported(&mut self, span: Span, name: &str) -> Verdict {
        self.error(span, format!("\"{name}\" is a directive of NGINX that Balanza does not have yet"));
        Verdict::Skip
    }

    /// An argument that begins a line and is the name of a directive shows where a ";" was forgotten.
    pub fn missing_semicolon(&self, statement: &Statement) -> Option<String> {
        statement.words.windows(2).find_map(|pair| {
            let line = self.files.line(pair[0].span.file, pair[0].span.end);
            let next = self.files.line(pair[1].span.file, pair[1].span.start);
            let is_directive = !directives::named(&pair[1].value).is_empty();
            (next > line && is_directive).then(|| format!("a \";\" is missing at the end of line {line}"))
        })
    }

    /// Sets what may be set once; `parse` returns `None` when it has reported an error.
    pub fn assign<T>(
        &mut self,
        slot: &mut Option<T>,
        statement: &Statement,
        parse: impl FnOnce(&mut Self, &Statement) -> Option<T>,
    ) {
        if slot.is_some() {
            self.duplicate(statement);
        } else if let Some(value) = parse(self, statement) {
            *slot = Some(value);
        }
    }

    /// The first argument by a function of [`values`], or `"x" directive invalid value`.
    fn value<T>(&mut self, statement: &Statement, parsed: Option<T>) -> Option<T> {
        if parsed.is_none() {
            self.invalid_value(statement, &statement.words[1]);
        }
        parsed
    }

    pub fn msec(&mut self, statement: &Statement) -> Option<Duration> {
        self.value(statement, values::milliseconds(&statement.words[1].value))
    }

    pub fn size(&mut self, statement: &Statement) -> Option<u64> {
        self.value(statement, values::size(&statement.words[1].value, false))
    }

    pub fn offset(&mut self, statement: &Statement) -> Option<u64> {
        self.value(statement, values::size(&statement.words[1].value, true))
    }

    pub fn number(&mut self, statement: &Statement) -> Option<u64> {
        let number = values::number(&statement.words[1].value);
        if number.is_none() {
            self.error(statement.words[1].span, format!("\"{}\" directive invalid number", statement.name()));
        }
        number
    }

    pub fn flag(&mut self, statement: &Statement) -> Option<bool> {
        let word = &statement.words[1];
        let flag = values::flag(&word.value);
        if flag.is_none() {
            let (value, name) = (word.text(), statement.name());
            let message = format!("invalid value \"{value}\" in \"{name}\" directive, it must be \"on\" or \"off\"");
            self.error(word.span, message);
        }
        flag
    }

    /// Number and size of buffers.
    pub fn buffers(&mut self, statement: &Statement) -> Option<(usize, usize)> {
        let count = values::number(&statement.words[1].value).filter(|count| *count > 0);
        let size = values::size(&statement.words[2].value, false).filter(|size| *size > 0);
        match (count, size) {
            (None, _) => self.invalid_value(statement, &statement.words[1]),
            (_, None) => self.invalid_value(statement, &statement.words[2]),
            (Some(count), Some(size)) => {
                return Some((usize::try_from(count).ok()?, usize::try_from(size).ok()?));
            }
        }
        None
    }

    /// A text with variables.
    pub fn template(&mut self, word: &Word) -> Option<Template> {
        self.template_of(&word.value, word.span, true)
    }

    pub fn template_of(&mut self, text: &[u8], span: Span, captures: bool) -> Option<Template> {
        match self.variables.template(text, Some(span), captures) {
            Ok(template) => Some(template),
            Err(error) => {
                self.report(Severity::Error, span, error.message).hint = error.hint;
                None
            }
        }
    }

    /// A size with variables: a constant is checked here and written in bytes.
    pub fn size_template(&mut self, statement: &Statement) -> Option<Template> {
        let template = self.template(&statement.words[1])?;
        match template.as_literal() {
            None => Some(template),
            Some(text) => {
                let size = self.value(statement, values::size(text, false))?;
                Some(Template::literal(size.to_string().into_bytes()))
            }
        }
    }

    /// Compiles a regular expression and gives its named groups their variables.
    pub fn regex(&mut self, pattern: &[u8], caseless: bool, span: Span) -> Option<Regex> {
        let text = String::from_utf8_lossy(pattern).into_owned();
        match Regex::new(&text, caseless) {
            Ok(mut regex) => {
                let groups: Vec<(usize, String)> = regex.group_names().map(|(i, name)| (i, name.to_string())).collect();
                let mut named = Vec::new();
                for (group, name) in groups {
                    named.push((group, self.define(&name, span)?));
                }
                regex.set_named(named);
                Some(regex)
            }
            Err((message, at)) => {
                let message = match text.get(at..) {
                    Some(rest) if !rest.is_empty() => {
                        format!("pcre2_compile() failed: {message} in \"{text}\" at \"{rest}\"")
                    }
                    _ => format!("pcre2_compile() failed: {message} in \"{text}\""),
                };
                self.error(span, message);
                None
            }
        }
    }

    /// The slot of a variable that the configuration sets.
    pub fn define(&mut self, name: &str, span: Span) -> Option<usize> {
        match self.variables.define(name) {
            Ok(slot) => Some(slot),
            Err(SetError::Builtin) => {
                let hint = format!("${name} has a fixed meaning; choose another name");
                self.error_hint(span, format!("the duplicate \"{name}\" variable"), hint);
                None
            }
            Err(SetError::Unsupported) => {
                self.error(span, format!("setting ${name} is possible in NGINX, but not in Balanza yet"));
                None
            }
        }
    }

    /// A path relative to the prefix.
    pub fn path(&self, bytes: &[u8]) -> PathBuf {
        self.options.prefix.join(bytes_path(bytes))
    }

    /// `error_log`.
    pub fn error_log(&mut self, statement: &Statement) -> Option<ErrorLog> {
        let word = &statement.words[1];
        let target = if word.value == b"stderr" {
            LogTarget::Stderr
        } else if word.value.starts_with(b"memory:") || word.value.starts_with(b"syslog:") {
            self.unsupported_parameter(statement, word);
            return None;
        } else {
            LogTarget::File(self.path(&word.value))
        };
        let mut found = None;
        for word in &statement.words[2..] {
            let text = word.text();
            match level(&word.value) {
                Some(level) if found.is_none() => found = Some(level),
                Some(_) => {
                    self.error(word.span, format!("duplicate log level \"{text}\""));
                    return None;
                }
                // NGINX's masks of what to debug.
                None if text.starts_with("debug_") => {
                    self.unsupported_parameter(statement, word);
                    return None;
                }
                None => {
                    let hint = directives::nearest(&text, LEVELS.iter().map(|(name, _)| *name))
                        .map(|near| format!("did you mean `{near}`?"));
                    self.report(Severity::Error, word.span, format!("invalid log level \"{text}\"")).hint = hint;
                    return None;
                }
            }
        }
        let level = found.unwrap_or(Level::Error);
        Some(ErrorLog { target, level })
    }
}

const LEVELS: [(&str, Level); 8] = [
    ("emerg", Level::Emerg),
    ("alert", Level::Alert),
    ("crit", Level::Crit),
    ("error", Level::Error),
    ("warn", Level::Warn),
    ("notice", Level::Notice),
    ("info", Level::Info),
    ("debug", Level::Debug),
];

fn level(text: &[u8]) -> Option<Level> {
    LEVELS.iter().find(|(name, _)| name.as_bytes() == text).map(|(_, level)| *level)
}
