//! Words to a tree of directives, with `include` expanded.

use std::path::{Path, PathBuf};

use crate::diagnostics::{Diagnostic, Files, Severity, Span};
use crate::lexer::{Lexer, MOST_ERRORS, MOST_WORDS, Token, Word};
use crate::source::{self, Source};

/// A directive, with its block if it has one.
#[derive(Debug, Clone)]
pub(crate) struct Statement {
    /// The name and the arguments.
    pub words: Vec<Word>,
    /// What stands in braces.
    pub block: Option<Vec<Statement>>,
    /// Its place in the order in which NGINX would read the directives.
    pub order: u32,
}

impl Statement {
    pub fn name(&self) -> String {
        self.words[0].text()
    }

    pub fn args(&self) -> &[Word] {
        &self.words[1..]
    }

    /// From the name to the last argument.
    pub fn span(&self) -> Span {
        Span { end: self.words[self.words.len() - 1].span.end, ..self.words[0].span }
    }
}

/// Files may include files; NGINX runs out of descriptors when they do so in a circle.
const DEEPEST_INCLUDE: usize = 64;
/// Files that include others twice, which include others twice, become many.
const MOST_FILES: usize = 10_000;
/// Blocks within blocks, across files; a limit protects the stack from hostile input.
const DEEPEST_BLOCK: usize = 128;
/// Bytes of all files, each as often as it is included.
const LARGEST_TOTAL: usize = 64 << 20;

/// Reads files into one tree.
pub(crate) struct Reader<'a> {
    pub source: &'a dyn Source,
    /// Relative includes are looked for here.
    pub conf_dir: PathBuf,
    pub files: Files,
    pub diagnostics: Vec<Diagnostic>,
    /// [`Statement::order`] of the next directive.
    pub next_order: u32,
    /// The files that are being read, each included by the one before it.
    pub open: Vec<PathBuf>,
    /// How much has been read, and how deep it is nested at present.
    pub extent: Extent,
}

/// What a configuration has taken of its limits.
#[derive(Debug, Default)]
pub(crate) struct Extent {
    bytes: usize,
    words: usize,
    blocks: usize,
    errors: usize,
    /// A limit was reached: nothing else is read.
    pub exceeded: bool,
}

impl<'a> Reader<'a> {
    /// Begins with this file of a configuration; relative includes are looked for beside it.
    pub fn new(source: &'a dyn Source, file: &Path) -> Reader<'a> {
        Reader {
            source,
            conf_dir: file.parent().map(Path::to_path_buf).unwrap_or_default(),
            files: Files::default(),
            diagnostics: Vec::new(),
            next_order: 0,
            open: Vec::new(),
            extent: Extent::default(),
        }
    }
}

impl Reader<'_> {
    fn error(&mut self, span: Option<Span>, message: String, hint: Option<String>) {
        let place = span.map(|span| self.files.place(span));
        self.diagnostics.push(Diagnostic { hint, ..Diagnostic::new(Severity::Error, &message, place) });
        self.extent.errors += 1;
        self.extent.exceeded |= self.extent.errors >= MOST_ERRORS;
    }

    /// Reports that a limit is reached, and stops reading.
    fn exceed(&mut self, span: Option<Span>, message: String, hint: &str) {
        if !self.extent.exceeded {
            self.error(span, message, Some(hint.to_string()));
            self.extent.exceeded = true;
        }
    }

    /// The main file.
    pub fn read(&mut self, path: &Path) -> Vec<Statement> {
        self.file(path, None, 0)
    }

    /// The text of `-g`.
    pub fn parameters(&mut self, text: &str) -> Vec<Statement> {
        let file = self.files.add(Path::new("command line"), text.as_bytes().to_vec());
        let statements = self.parse(file, text.as_bytes(), true);
        self.expand(statements, 0)
    }

    fn file(&mut self, path: &Path, from: Option<Span>, depth: usize) -> Vec<Statement> {
        if self.extent.exceeded {
            return Vec::new();
        }
        if self.open.iter().any(|open| open == path) || depth >= DEEPEST_INCLUDE {
            let hint = Some("does a file include itself?".to_string());
            self.error(from, "files are included too deeply".into(), hint);
            return Vec::new();
        }
        if self.files.count() >= MOST_FILES {
            let message = format!("more than {MOST_FILES} files are included");
            self.exceed(from, message, "a file counts each time it is included");
            return Vec::new();
        }
        match self.source.read(path) {
            Ok(text) => {
                self.extent.bytes += text.len();
                if self.extent.bytes > LARGEST_TOTAL {
                    let message = format!("the configuration is larger than {} MB", LARGEST_TOTAL >> 20);
                    self.exceed(from, message, "a file counts each time it is included");
                    return Vec::new();
                }
                let file = self.files.add(path, text.clone());
                let statements = self.parse(file, &text, false);
                self.open.push(path.to_path_buf());
                let statements = self.expand(statements, depth);
                self.open.pop();
                statements
            }
            Err(error) => {
                let message = format!("open() \"{}\" failed ({})", path.display(), os_error(&error));
                let main = || from.is_none().then(|| "the option -c sets the configuration file".to_string());
                self.error(from, message, remedy(&error).or_else(main));
                Vec::new()
            }
        }
    }

    fn parse(&mut self, file: u32, text: &[u8], parameter: bool) -> Vec<Statement> {
        let mut lexer = Lexer::new(text, file, parameter);
        // The statements of each open block; the last is the innermost.
        let mut open: Vec<(Vec<Word>, Span, Vec<Statement>)> = Vec::new();
        let mut top = Vec::new();
        let mut errors = Vec::new();
        loop {
            let token = lexer.next(&mut errors);
            let lexical_error = !errors.is_empty();
            for error in errors.drain(..) {
                self.error(Some(error.span), error.message, error.hint);
            }
            if let Token::Directive(words) | Token::BlockStart(words, _) = &token {
                self.extent.words += words.len();
                if self.extent.words > MOST_WORDS {
                    let span = words.first().map(|word| word.span);
                    let message = format!("the configuration has more than {MOST_WORDS} words");
                    self.exceed(span, message, "directives and parameters count, those of an included file each time");
                }
            }
            if self.extent.exceeded {
                return Vec::new();
            }
            match token {
                Token::Directive(words) => {
                    let statement = Statement { words, block: None, order: 0 };
                    open.last_mut().map_or(&mut top, |(_, _, inner)| inner).push(statement);
                }
                Token::BlockStart(words, end) => {
                    if parameter {
                        self.error(Some(end), "block directives are not supported in -g option".into(), None);
                    }
                    if self.extent.blocks + open.len() >= DEEPEST_BLOCK {
                        let hint = format!("the limit is {DEEPEST_BLOCK} levels");
                        self.error(Some(end), "blocks are nested too deeply".into(), Some(hint));
                        return Vec::new();
                    }
                    open.push((words, end, Vec::new()));
                }
                Token::BlockEnd(span) => match open.pop() {
                    Some((words, _, inner)) => {
                        // A "{" without a name has been reported; its contents cannot be judged.
                        if !words.is_empty() {
                            let statement = Statement { words, block: Some(inner), order: 0 };
                            open.last_mut().map_or(&mut top, |(_, _, inner)| inner).push(statement);
                        }
                    }
                    None if lexical_error => {}
                    None => self.error(Some(span), "unexpected \"}\"".into(), None),
                },
                Token::End(span) => {
                    if let Some((_, start, _)) = open.last()
                        && !lexical_error
                    {
                        let line = self.files.line(start.file, start.start);
                        let hint = format!("the block that starts in line {line} is not closed");
                        let message = "unexpected end of file, expecting \"}\"".to_string();
                        self.error(Some(span), message, Some(hint));
                    }
                    while let Some((words, _, inner)) = open.pop() {
                        if !words.is_empty() {
                            let statement = Statement { words, block: Some(inner), order: 0 };
                            open.last_mut().map_or(&mut top, |(_, _, inner)| inner).push(statement);
                        }
                    }
                    return top;
                }
            }
        }
    }

    /// Puts the contents of included files in the place of `include`.
    fn expand(&mut self, statements: Vec<Statement>, depth: usize) -> Vec<Statement> {
        let mut out = Vec::with_capacity(statements.len());
        for mut statement in statements {
            if statement.words[0].value == b"include" && statement.words.len() == 2 && statement.block.is_none() {
                self.include(&statement, depth, &mut out);
                continue;
            }
            statement.order = self.next_order;
            self.next_order += 1;
            if let Some(block) = statement.block.take() {
                self.extent.blocks += 1;
                statement.block = Some(self.expand(block, depth));
                self.extent.blocks -= 1;
            }
            out.push(statement);
        }
        out
    }

    fn include(&mut self, statement: &Statement, depth: usize, out: &mut Vec<Statement>) {
        let span = statement.words[1].span;
        let pattern = plain(&self.conf_dir.join(bytes_path(&statement.words[1].value)));
        if !statement.words[1].value.iter().any(|b| matches!(b, b'*' | b'?' | b'[')) {
            out.extend(self.file(&pattern, Some(span), depth + 1));
            return;
        }
        match self.source.glob(&pattern) {
            Ok(paths) => {
                for path in paths {
                    out.extend(self.file(&path, Some(span), depth + 1));
                }
            }
            Err(error) => {
                let message = format!("glob() \"{}\" failed ({})", pattern.display(), os_error(&error));
                self.error(Some(span), message, None);
            }
        }
    }
}

/// What to do about a file that cannot be read.
fn remedy(error: &std::io::Error) -> Option<String> {
    match error.raw_os_error() {
        Some(source::TOO_LARGE) => {
            Some(format!("the limit for a configuration file is {} MB", source::LARGEST_FILE >> 20))
        }
        None if error.to_string() == source::NOT_REGULAR => {
            Some("use a regular file: it is read again at each reload".to_string())
        }
        _ => None,
    }
}

/// A path without "/./" and "//", as it is shown. ".." stays: what it means depends on links.
pub(crate) fn plain(path: &Path) -> PathBuf {
    path.components().collect()
}

/// A path as the system has it: any bytes.
pub(crate) fn bytes_path(bytes: &[u8]) -> PathBuf {
    use std::os::unix::ffi::OsStrExt;
    PathBuf::from(std::ffi::OsStr::from_bytes(bytes))
}

/// An error of the system in NGINX's form: "2: No such file or directory".
pub(crate) fn os_error(error: &std::io::Error) -> String {
    match error.raw_os_error() {
        Some(code) => {
            let text = error.to_string();
            let text = text.strip_suffix(&format!(" (os error {code})")).unwrap_or(&text);
            format!("{code}: {text}")
        }
        None => error.to_string(),
    }
}
