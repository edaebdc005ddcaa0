//! Finds commands in a page: `<!--# name parameter="value" … -->`. A command may come in any number of pieces.

use std::ops::Range;

use balanza_config::log_text::Escaped;

/// What commands begin with.
const BEGIN: &[u8] = b"<!--#";

/// The longest name of a command or parameter.
const MOST_IN_NAME: usize = 32;

/// Most parameters of a command.
pub const MOST_PARAMETERS: usize = 16;

/// A command as it is written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Command {
    /// Its name.
    pub name: Vec<u8>,
    /// Names and values of parameters; there may be one too many. What a backslash protects is not yet uncovered.
    pub parameters: Vec<(Vec<u8>, Vec<u8>)>,
}

/// What comes next in a page.
#[derive(Debug, PartialEq, Eq)]
pub enum Found {
    /// Text: what the pieces before have held back, then this part of the piece.
    Text(&'static [u8], Range<usize>),
    /// A command.
    Command(Command),
    /// The end of a command that is malformed, for this reason.
    Malformed(String),
    /// Nothing more in this piece.
    Nothing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// So many bytes of what commands begin with have come.
    Text(usize),
    BeforeName,
    Name,
    BeforeParameter,
    Parameter,
    BeforeEqual,
    BeforeValue,
    /// In quotation marks of this kind; the flag is for what a backslash protects.
    Value(u8, bool),
    AfterValue,
    /// So many hyphens of the end have come.
    End(usize),
    /// In a malformed command, with so many hyphens of its end.
    Skip(usize),
}

/// Finds commands.
#[derive(Debug)]
pub struct Parser {
    state: State,
    command: Command,
    /// Why the command is malformed.
    reason: String,
    /// Most bytes of a value.
    value_length: usize,
}

impl Parser {
    /// At the beginning of a page. Longer values than these make a command malformed.
    pub fn new(value_length: usize) -> Parser {
        Parser { state: State::Text(0), command: Command::default(), reason: String::new(), value_length }
    }

    /// Looks from `at` on for what comes next in a piece, and moves `at` behind it.
    pub fn next(&mut self, piece: &[u8], at: &mut usize) -> Found {
        while *at < piece.len() {
            let byte = piece[*at];
            if let State::Text(begun) = self.state {
                if begun == 0 {
                    let rest = &piece[*at..];
                    let length = rest.iter().position(|byte| *byte == BEGIN[0]).unwrap_or(rest.len());
                    if length > 0 {
                        let begin = *at;
                        *at += length;
                        return Found::Text(b"", begin..*at);
                    }
                }
                if byte != BEGIN[begun] {
                    self.state = State::Text(0);
                    return Found::Text(&BEGIN[..begun], 0..0);
                }
                *at += 1;
                self.state = if begun + 1 == BEGIN.len() { State::BeforeName } else { State::Text(begun + 1) };
                continue;
            }
            *at += 1;
            self.state = self.follow(byte);
            if self.state == State::Text(0) {
                let command = std::mem::take(&mut self.command);
                let reason = std::mem::take(&mut self.reason);
                return if reason.is_empty() { Found::Command(command) } else { Found::Malformed(reason) };
            }
        }
        Found::Nothing
    }

    /// What the last pieces have held back, at the end of the page.
    pub fn end(&mut self) -> &'static [u8] {
        match std::mem::replace(&mut self.state, State::Text(0)) {
            State::Text(begun) => &BEGIN[..begun],
            _ => b"",
        }
    }

    /// The state behind a byte of a command; that of text at its end.
    fn follow(&mut self, byte: u8) -> State {
        let blank = matches!(byte, b' ' | b'\r' | b'\n' | b'\t');
        match self.state {
            state @ (State::BeforeName | State::BeforeParameter | State::BeforeEqual | State::BeforeValue) if blank => {
                state
            }
            State::BeforeName => {
                self.command = Command { name: vec![byte], parameters: Vec::new() };
                State::Name
            }
            State::Name | State::AfterValue if blank => State::BeforeParameter,
            State::Name | State::BeforeParameter | State::AfterValue if byte == b'-' => State::End(1),
            State::Name if self.command.name.len() == MOST_IN_NAME => {
                let name = Escaped(&self.command.name).to_string();
                self.fail(byte, format!("the \"{name}{}...\" SSI command is too long", Escaped(&[byte])))
            }
            State::Name => {
                self.command.name.push(byte);
                State::Name
            }
            State::BeforeParameter => {
                // One too many is enough to know that there are too many.
                self.command.parameters.truncate(MOST_PARAMETERS);
                self.command.parameters.push((vec![byte], Vec::new()));
                State::Parameter
            }
            State::Parameter if blank => State::BeforeEqual,
            State::Parameter | State::BeforeEqual if byte == b'=' => State::BeforeValue,
            State::Parameter if byte == b'-' => {
                let text = format!("invalid \"{}\" parameter in \"{}\" SSI command", self.parameter(), self.name());
                self.fail(byte, text)
            }
            State::Parameter if self.parameter_name().len() == MOST_IN_NAME => {
                let (parameter, name) = (self.parameter(), self.name());
                let text =
                    format!("too long \"{parameter}{}...\" parameter in \"{name}\" SSI command", Escaped(&[byte]));
                self.fail(byte, text)
            }
            State::Parameter => {
                if let Some((name, _)) = self.command.parameters.last_mut() {
                    name.push(byte);
                }
                State::Parameter
            }
            State::BeforeEqual => self.unexpected(byte, format!("after \"{}\" parameter", self.parameter())),
            State::BeforeValue if matches!(byte, b'"' | b'\'') => State::Value(byte, false),
            State::BeforeValue => self.unexpected(byte, format!("before value of \"{}\" parameter", self.parameter())),
            State::Value(mark, false) if byte == mark => State::AfterValue,
            State::Value(mark, protected) => {
                let most = self.value_length;
                match self.command.parameters.last_mut() {
                    Some((_, value)) if value.len() < most => value.push(byte),
                    _ => {
                        let (parameter, name) = (self.parameter(), self.name());
                        let text = format!("too long value of \"{parameter}\" parameter in \"{name}\" SSI command");
                        return self.fail(0, text);
                    }
                }
                State::Value(mark, byte == b'\\' && !protected)
            }
            State::AfterValue => self.unexpected(byte, format!("after value of \"{}\" parameter", self.parameter())),
            State::End(1) if byte == b'-' => State::End(2),
            State::End(2) if byte == b'>' => State::Text(0),
            State::End(_) => {
                let text = format!("unexpected \"{}\" symbol in \"{}\" SSI command", Escaped(&[byte]), self.name());
                self.fail(0, text)
            }
            State::Skip(2) if byte == b'>' => State::Text(0),
            State::Skip(hyphens) => State::Skip(if byte == b'-' { (hyphens + 1).min(2) } else { 0 }),
            State::Text(_) => State::Text(0),
        }
    }

    /// The command is malformed. A hyphen may begin its end.
    fn fail(&mut self, byte: u8, reason: String) -> State {
        self.reason = reason;
        State::Skip(usize::from(byte == b'-'))
    }

    fn unexpected(&mut self, byte: u8, place: String) -> State {
        let text = format!("unexpected \"{}\" symbol {place} in \"{}\" SSI command", Escaped(&[byte]), self.name());
        self.fail(byte, text)
    }

    fn name(&self) -> String {
        Escaped(&self.command.name).to_string()
    }

    fn parameter_name(&self) -> &[u8] {
        self.command.parameters.last().map_or(b"", |(name, _)| name)
    }

    fn parameter(&self) -> String {
        Escaped(self.parameter_name()).to_string()
    }
}
