//! Bytes to words: quoting, escapes and comments as NGINX reads them.

use crate::diagnostics::Span;

/// Words of all files; a word of one letter takes some hundred times the memory that it takes in its file.
pub(crate) const MOST_WORDS: usize = 2_000_000;
/// Errors that are reported; reading stops behind them.
pub(crate) const MOST_ERRORS: usize = 1_000;

/// What some editors put in front of a file in UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";
/// As NGINX says it.
const PARAMETER_END: &str = "unexpected end of parameter, expecting \";\"";
const UNEXPECTED_END: &str = "unexpected end of file, expecting \";\" or \"}\"";
/// NGINX reads a parameter into a buffer of this size; a longer one is an error there, and mostly a lost quote.
const LONGEST_WORD: usize = 4096;

/// A word of a directive, decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Word {
    pub value: Vec<u8>,
    pub span: Span,
}

impl Word {
    /// For messages and for values that are text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.value).into_owned()
    }
}

/// What the lexer returns next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Token {
    /// Words up to a ";".
    Directive(Vec<Word>),
    /// Words up to a "{".
    BlockStart(Vec<Word>, Span),
    /// "}".
    BlockEnd(Span),
    /// The end of the file.
    End(Span),
}

/// A lexical error: the lexer goes on behind it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LexError {
    pub span: Span,
    pub message: String,
    pub hint: Option<String>,
}

/// Splits a file into [`Token`]s.
pub(crate) struct Lexer<'a> {
    text: &'a [u8],
    file: u32,
    at: usize,
    /// `-g` has parameters instead of a file: the wording of messages differs.
    parameter: bool,
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
}

impl<'a> Lexer<'a> {
    pub fn new(text: &'a [u8], file: u32, parameter: bool) -> Lexer<'a> {
        Lexer { text, file, at: 0, parameter }
    }

    fn span(&self, start: usize, end: usize) -> Span {
        let offset = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
        Span { file: self.file, start: offset(start), end: offset(end) }
    }

    /// The next token; errors that the file can be read on behind are pushed to `errors`.
    pub fn next(&mut self, errors: &mut Vec<LexError>) -> Token {
        let mut words: Vec<Word> = Vec::new();
        if self.at == 0 && self.text.starts_with(BYTE_ORDER_MARK) {
            self.at = BYTE_ORDER_MARK.len();
            errors.push(LexError {
                span: self.span(0, self.at),
                message: "the file begins with a byte order mark (U+FEFF), which cannot be seen".into(),
                hint: Some("save it as UTF-8 without BOM, or: sed -i '1s/^\\xEF\\xBB\\xBF//' FILE".into()),
            });
        }
        loop {
            let Some(&byte) = self.text.get(self.at) else { return self.end(words, errors) };
            let here = self.at;
            // What is too much for the configuration need not be read to its end.
            if words.len() > MOST_WORDS {
                return Token::Directive(words);
            } else if errors.len() >= MOST_ERRORS {
                return Token::End(self.span(here, here));
            }
            match byte {
                _ if is_space(byte) => self.at += 1,
                b'#' => self.skip_comment(),
                b';' | b'{' if words.is_empty() => {
                    self.at += 1;
                    self.unexpected(byte, here, errors);
                    if byte == b'{' {
                        return Token::BlockStart(words, self.span(here, here + 1));
                    }
                }
                b';' => {
                    self.at += 1;
                    return Token::Directive(words);
                }
                b'{' => {
                    self.at += 1;
                    return Token::BlockStart(words, self.span(here, here + 1));
                }
                b'}' if words.is_empty() => {
                    self.at += 1;
                    return Token::BlockEnd(self.span(here, here + 1));
                }
                b'}' => {
                    // NGINX stops here; taking the words for a directive finds more of what is wrong.
                    let last = &words[words.len() - 1];
                    errors.push(LexError {
                        span: self.span(here, here + 1),
                        message: "unexpected \"}\"".into(),
                        hint: Some(format!("a \";\" is missing after \"{}\"", last.text())),
                    });
                    return Token::Directive(words);
                }
                b'"' | b'\'' => {
                    self.at += 1;
                    if !self.quoted(byte, here, &mut words, errors) {
                        return self.end(words, errors);
                    }
                }
                _ => {
                    if !self.bare(&mut words, errors) {
                        return self.end(words, errors);
                    }
                }
            }
        }
    }

    fn skip_comment(&mut self) {
        while let Some(&byte) = self.text.get(self.at) {
            self.at += 1;
            if byte == b'\n' {
                break;
            }
        }
    }

    fn unexpected(&self, byte: u8, at: usize, errors: &mut Vec<LexError>) {
        errors.push(LexError {
            span: self.span(at, at + 1),
            message: format!("unexpected \"{}\"", String::from_utf8_lossy(&[byte])),
            hint: None,
        });
    }

    fn end(&mut self, words: Vec<Word>, errors: &mut Vec<LexError>) -> Token {
        let end = self.text.len();
        let span = self.span(end.saturating_sub(1), end);
        // An error inside an unfinished word has been reported already when `at` was moved past the end.
        let reported =
            errors.last().is_some_and(|e| ["too long", "unexpected end of"].iter().any(|m| e.message.starts_with(m)));
        if (!words.is_empty() || self.at > end) && !reported {
            let (message, at) = if self.parameter {
                (PARAMETER_END.to_string(), span)
            } else {
                let at = words.first().map_or(span, |word| word.span);
                (UNEXPECTED_END.to_string(), at)
            };
            errors.push(LexError { span: at, message, hint: None });
        }
        self.at = end;
        Token::End(span)
    }

    /// A word in quotes; `false` when the file ends inside it.
    fn quoted(&mut self, quote: u8, open: usize, words: &mut Vec<Word>, errors: &mut Vec<LexError>) -> bool {
        let start = self.at;
        loop {
            match self.text.get(self.at) {
                None => {
                    self.unterminated(quote, open, start, errors);
                    return false;
                }
                Some(b'\\') => self.at += 2,
                Some(byte) if *byte == quote => break,
                Some(_) => self.at += 1,
            }
            if self.at - start > LONGEST_WORD {
                // Reading on would take the rest of the file for a string: the quote is lost.
                self.unterminated(quote, open, start, errors);
                self.at = self.text.len() + 1;
                return false;
            }
        }
        let value = decode(&self.text[start..self.at]);
        self.at += 1;
        words.push(Word { value, span: self.span(open, self.at) });
        // Behind a closing quote only a space, ";", "{" or ")" may follow.
        match self.text.get(self.at) {
            Some(byte) if is_space(*byte) || matches!(byte, b';' | b'{' | b')') => {}
            None => {}
            Some(&byte) => self.unexpected(byte, self.at, errors),
        }
        true
    }

    fn unterminated(&mut self, quote: u8, open: usize, start: usize, errors: &mut Vec<LexError>) {
        let quote = quote as char;
        if self.text.len() - start.min(self.text.len()) >= LONGEST_WORD {
            errors.push(LexError {
                span: self.span(open, open + 1),
                message: format!("too long parameter, probably missing terminating \"{quote}\" character"),
                hint: None,
            });
        } else {
            errors.push(LexError {
                span: self.span(open, open + 1),
                message: if self.parameter { PARAMETER_END } else { UNEXPECTED_END }.into(),
                hint: Some(format!("the string that starts here has no closing {quote}")),
            });
            self.at = self.text.len();
        }
    }

    /// A word without quotes; `false` when the file ends inside it.
    fn bare(&mut self, words: &mut Vec<Word>, errors: &mut Vec<LexError>) -> bool {
        let start = self.at;
        // "${" does not start a block; the brace belongs to the word.
        let mut variable = false;
        loop {
            let Some(&byte) = self.text.get(self.at) else {
                // The word itself goes into the span of the error.
                words.push(Word { value: decode(&self.text[start..]), span: self.span(start, self.text.len()) });
                self.at = self.text.len();
                return false;
            };
            match byte {
                b'{' if variable => {}
                b'\\' => {
                    variable = false;
                    self.at += 1;
                }
                b'$' => variable = true,
                b';' | b'{' => break,
                _ if is_space(byte) => break,
                _ => variable = false,
            }
            self.at += 1;
            if self.at - start > LONGEST_WORD {
                let shown = String::from_utf8_lossy(&self.text[start..start + 10]).into_owned();
                errors.push(LexError {
                    span: self.span(start, start + 10),
                    message: format!("too long parameter \"{shown}...\" started"),
                    hint: None,
                });
                self.at = self.text.len() + 1;
                return false;
            }
        }
        words.push(Word { value: decode(&self.text[start..self.at]), span: self.span(start, self.at) });
        true
    }
}

/// Escapes: `\"`, `\'`, `\\`, `\t`, `\r`, `\n`; a backslash before anything else stays.
fn decode(raw: &[u8]) -> Vec<u8> {
    let mut value = Vec::with_capacity(raw.len());
    let mut bytes = raw.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        let escaped = if byte == b'\\' { bytes.peek().copied() } else { None };
        let decoded = match escaped {
            Some(quote @ (b'"' | b'\'' | b'\\')) => quote,
            Some(b't') => b'\t',
            Some(b'r') => b'\r',
            Some(b'n') => b'\n',
            _ => {
                value.push(byte);
                continue;
            }
        };
        bytes.next();
        value.push(decoded);
    }
    value
}
