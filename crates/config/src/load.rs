//! What loading a configuration needs in all contexts: the options, the problems, and what has been read so far.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use balanza_balancing::registry::nearest;
use serde::{Deserialize, Serialize};

use crate::diagnostics::{Diagnostic, Files, MISSING, Severity, Span};
use crate::drafts::{
    CharsetDrafts, ClientDraft, ClientUse, Format, LimitZones, Loaded, Matches, Traces, UpstreamDrafts, Zone,
};
use crate::lexer::MOST_ERRORS;
use crate::lexer::Word;
use crate::model::{CertificateCache, KeyvalZone, Stapling, TempPath, UpstreamKeepalive, UpstreamTls};
use crate::source::Source;
use crate::tree::Statement;
use crate::variables::Variables;

pub(crate) use crate::drafts::Protocol;

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

/// What is being built.
pub(crate) struct Builder<'a> {
    pub source: &'a dyn Source,
    pub options: &'a Options,
    pub files: Files,
    pub diagnostics: Vec<Diagnostic>,
    /// The names of all directives.
    directives: &'static HashSet<&'static [u8]>,
    pub variables: Variables,
    pub formats: Vec<Format>,
    pub upstreams: UpstreamDrafts,
    /// What an upstream keeps by default.
    pub upstream_defaults: UpstreamKeepalive,
    /// `match` blocks of the protocol whose block is being read.
    pub matches: Matches,
    /// Shared memory zones, by name.
    pub zones: BTreeMap<String, Zone>,
    /// Those of `limit_req` and `limit_conn`, in the protocol whose block is being read.
    pub limit_zones: LimitZones,
    /// What requests or sessions are counted for, numbered from 0.
    pub status_zones: HashMap<String, usize>,
    /// Those of `keyval`, in the protocol whose block is being read.
    pub keyval_zones: Vec<KeyvalZone>,
    /// `status_zone` of locations.
    pub location_zones: Vec<String>,
    /// A location shows or changes what runs.
    pub is_controlled: bool,
    pub access_log_files: BTreeSet<PathBuf>,
    pub error_log_files: BTreeSet<PathBuf>,
    /// Places of temporary files by directory, and where each is named first.
    pub temp_paths: BTreeMap<PathBuf, (Arc<TempPath>, Span)>,
    /// `charset` and `charset_map`.
    pub charsets: CharsetDrafts,
    /// `otel_exporter` and what belongs to it.
    pub traces: Traces,
    /// How many `proxy_pass` there are so far.
    pub proxies: usize,
    /// How many `tunnel_pass` there are.
    pub tunnels: usize,
    /// Certificates with their keys.
    pub certificates: Loaded,
    /// `ssl_certificate_cache`.
    pub certificate_caches: Vec<CertificateCache>,
    /// `ssl_stapling`.
    pub staplings: Vec<Arc<Stapling>>,
    /// Contexts for servers, by the draft that they are made of.
    pub client_contexts: Vec<(Arc<ClientDraft>, ClientUse, Option<Arc<UpstreamTls>>)>,
    /// Sizes of `ssl_session_cache`, by name.
    pub session_caches: HashMap<String, u64>,
    /// Addresses of `listen … http2`, as they are written.
    pub http2_addresses: HashSet<Vec<u8>>,
    /// It was said that cipher suites are left out.
    pub ciphers_left_out: bool,
    /// How many of either have been reported.
    errors: usize,
    warnings: usize,
    /// Where in `diagnostics` a message is that several places may share.
    said: HashMap<String, usize>,
    /// In the place of one that is not shown.
    omitted: Diagnostic,
    /// Whose block is being read.
    pub protocol: Protocol,
}

impl<'a> Builder<'a> {
    /// What the reader has found so far. `directives` are the names of all directives.
    pub fn new(
        source: &'a dyn Source,
        options: &'a Options,
        files: Files,
        diagnostics: Vec<Diagnostic>,
        directives: &'static HashSet<&'static [u8]>,
    ) -> Builder<'a> {
        Builder {
            source,
            options,
            files,
            diagnostics,
            directives,
            variables: Variables::default(),
            formats: Vec::new(),
            upstreams: UpstreamDrafts::default(),
            upstream_defaults: UpstreamKeepalive::default(),
            matches: Matches::default(),
            zones: BTreeMap::new(),
            limit_zones: LimitZones::default(),
            status_zones: HashMap::new(),
            location_zones: Vec::new(),
            keyval_zones: Vec::new(),
            is_controlled: false,
            access_log_files: BTreeSet::new(),
            error_log_files: BTreeSet::new(),
            temp_paths: BTreeMap::new(),
            charsets: CharsetDrafts::default(),
            traces: Traces::default(),
            proxies: 0,
            tunnels: 0,
            certificates: HashMap::new(),
            certificate_caches: Vec::new(),
            staplings: Vec::new(),
            client_contexts: Vec::new(),
            session_caches: HashMap::new(),
            http2_addresses: HashSet::new(),
            ciphers_left_out: false,
            said: HashMap::new(),
            errors: 0,
            warnings: 0,
            omitted: Diagnostic::new(Severity::Warning, "", None),
            protocol: Protocol::Http,
        }
    }

    /// All problems, in the order of the text. `exceeded` says that not all of it was read.
    pub fn into_diagnostics(self, exceeded: bool) -> Vec<Diagnostic> {
        let omitted = self.omitted_note(exceeded);
        let mut diagnostics = self.diagnostics;
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
        diagnostics.extend(omitted);
        diagnostics
    }
}

impl Builder<'_> {
    /// How many errors have been reported.
    pub fn error_count(&self) -> usize {
        self.errors
    }

    /// Whether so much is wrong that the rest is not looked at.
    pub fn is_full(&self) -> bool {
        self.errors > MOST_ERRORS
    }

    /// What stands behind the problems when there are more than are shown.
    fn omitted_note(&self, exceeded: bool) -> Option<Diagnostic> {
        let note = |severity, message: &str, hint: &str| {
            Some(Diagnostic { hint: Some(hint.to_string()), ..Diagnostic::new(severity, message, None) })
        };
        let shown = format!("only the first {MOST_ERRORS}");
        if self.is_full() || exceeded && self.diagnostics.len() >= MOST_ERRORS {
            note(
                Severity::Error,
                &format!("too many errors, {shown} are shown"),
                "the rest of the configuration was not read",
            )
        } else if self.warnings > MOST_ERRORS {
            let message = format!("{} warnings, {shown} are shown", self.warnings);
            note(Severity::Warning, &message, "further warnings are not shown")
        } else {
            None
        }
    }

    /// Adds a problem.
    pub fn report(&mut self, severity: Severity, span: Span, message: impl Into<String>) -> &mut Diagnostic {
        let message = message.into();
        // What is missing or has no effect is said once, with the number of places.
        let repeats = severity == Severity::Warning || message.ends_with(MISSING);
        if repeats && let Some(at) = self.said.get(&message) {
            let place = self.files.place(span);
            let said = &mut self.diagnostics[*at];
            said.places += 1;
            if said.place.as_ref().is_some_and(|first| first.file == place.file && first.line > place.line) {
                said.place = Some(place);
            }
            return &mut self.omitted;
        }
        let count = match severity {
            Severity::Error => &mut self.errors,
            Severity::Warning => &mut self.warnings,
        };
        *count += 1;
        if *count > MOST_ERRORS {
            return &mut self.omitted;
        }
        let place = Some(self.files.place(span));
        self.diagnostics.push(Diagnostic::new(severity, &message, place));
        let last = self.diagnostics.len() - 1;
        if repeats {
            self.said.insert(message, last);
        }
        &mut self.diagnostics[last]
    }

    /// The file and the line.
    pub fn place(&self, span: Span) -> String {
        let place = self.files.place(span);
        format!("{}:{}", place.file.display(), place.line)
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

    pub fn warning_hint(&mut self, span: Span, message: impl Into<String>, hint: impl Into<String>) {
        self.report(Severity::Warning, span, message).hint = Some(hint.into());
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
        let hint =
            nearest(name, known.iter().map(|k| k.trim_end_matches('='))).map(|near| format!("did you mean `{near}`?"));
        self.report(Severity::Error, word.span, format!("invalid parameter \"{text}\"")).hint = hint;
    }

    /// A parameter that NGINX has and Balanza has not.
    pub fn unsupported_parameter(&mut self, statement: &Statement, word: &Word) {
        let (name, parameter) = (statement.name(), word.text());
        let message = format!("\"{parameter}\" of \"{name}\" is a parameter of NGINX that Balanza does not have yet");
        self.error(word.span, message);
    }

    /// An argument that begins a line and is the name of a directive shows where a ";" was forgotten.
    pub fn missing_semicolon(&self, statement: &Statement) -> Option<String> {
        statement.words.windows(2).find_map(|pair| {
            let line = self.files.line(pair[0].span.file, pair[0].span.end);
            let next = self.files.line(pair[1].span.file, pair[1].span.start);
            let is_directive = self.directives.contains(pair[1].value.as_slice());
            (next > line && is_directive).then(|| format!("a \";\" is missing at the end of line {line}"))
        })
    }
}
