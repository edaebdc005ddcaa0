//! `match`: what a healthy server answers.

use std::sync::Arc;

use crate::lexer::Word;
use crate::load::{Builder, Protocol};
use crate::model::{Expected, HeaderMatch, Match, StatusMatch, StreamMatch, ValueMatch};
use crate::regex::Regex;
use crate::tree::Statement;

impl Builder<'_> {
    /// A `match` block.
    pub fn match_block(&mut self, s: &Statement) {
        let name = s.words[1].text();
        if self.matches.http.contains_key(&name) || self.matches.stream.contains_key(&name) {
            return self.error(s.words[1].span, format!("duplicate match \"{name}\""));
        }
        match self.protocol {
            Protocol::Http => {
                let mut expected = Match::default();
                for line in s.block.iter().flatten() {
                    self.match_line(&mut expected, line);
                }
                self.matches.http.insert(name, Arc::new(expected));
            }
            Protocol::Stream => {
                let mut expected = StreamMatch::default();
                for line in s.block.iter().flatten() {
                    self.stream_match_line(&mut expected, line);
                }
                self.matches.stream.insert(name, Arc::new(expected));
            }
        }
    }

    fn match_line(&mut self, expected: &mut Match, line: &Statement) {
        let arguments = line.args();
        match line.words[0].value.as_slice() {
            b"status" if !arguments.is_empty() => {
                if expected.status.is_some() {
                    return self.duplicate(line);
                }
                expected.status = self.status_match(arguments);
            }
            b"header" if !arguments.is_empty() => expected.headers.extend(self.header_match(line)),
            b"body" => match arguments {
                [operator, pattern] => {
                    let Some((caseless, positive)) = operator_of(operator) else {
                        return self.wrong_operator(operator, "~, ~*, !~, !~*");
                    };
                    if let Some(regex) = self.check_regex(pattern, caseless) {
                        expected.bodies.push((regex, positive));
                    }
                }
                _ => self.wrong_line(line, "`body ~ EXPRESSION;`"),
            },
            b"require" if !arguments.is_empty() => {
                for word in arguments {
                    let template = self.template(word);
                    expected.required.extend(template);
                }
            }
            _ => self.wrong_line(line, "`status`, `header`, `body ~` and `require`"),
        }
    }

    fn wrong_line(&mut self, line: &Statement, known: &str) {
        let message = format!("invalid \"{}\" in \"match\"", line.name());
        self.error_hint(line.span(), message, format!("it may have {known}"));
    }

    fn wrong_operator(&mut self, word: &Word, known: &str) {
        self.error_hint(word.span, format!("invalid operator \"{}\"", word.text()), format!("one of {known}"));
    }

    fn status_match(&mut self, words: &[Word]) -> Option<StatusMatch> {
        let (negated, words) = match words {
            [first, rest @ ..] if first.value == b"!" && !rest.is_empty() => (true, rest),
            _ => (false, words),
        };
        let mut ranges = Vec::new();
        for word in words {
            let text = word.text();
            let (first, last) = text.split_once('-').unwrap_or((&text, &text));
            let code = |text: &str| text.parse::<u16>().ok().filter(|code| (100..=999).contains(code));
            match (code(first), code(last)) {
                (Some(first), Some(last)) if first <= last => ranges.push((first, last)),
                _ => {
                    let hint = "a status as 200, or a range as 200-399";
                    self.error_hint(word.span, format!("invalid status \"{text}\""), hint);
                    return None;
                }
            }
        }
        Some(StatusMatch { ranges, negated })
    }

    fn header_match(&mut self, line: &Statement) -> Option<HeaderMatch> {
        let (name, value, negated) = match line.args() {
            [name] => (name, ValueMatch::Any, false),
            [not, name] if not.value == b"!" => (name, ValueMatch::Any, true),
            [name, operator, value] => match operator.value.as_slice() {
                b"=" => (name, ValueMatch::Is(value.value.as_slice().into()), false),
                b"!=" => (name, ValueMatch::Is(value.value.as_slice().into()), true),
                _ => {
                    let Some((caseless, positive)) = operator_of(operator) else {
                        self.wrong_operator(operator, "=, !=, ~, ~*, !~, !~*");
                        return None;
                    };
                    (name, ValueMatch::Regex(self.check_regex(value, caseless)?), !positive)
                }
            },
            _ => {
                self.wrong_line(line, "`header NAME;`, `header ! NAME;` and `header NAME OPERATOR VALUE;`");
                return None;
            }
        };
        Some(HeaderMatch { name: name.value.as_slice().into(), value, negated })
    }

    fn check_regex(&mut self, word: &Word, caseless: bool) -> Option<Arc<Regex>> {
        self.regex(&word.value, caseless, word.span).map(Arc::new)
    }

    fn stream_match_line(&mut self, expected: &mut StreamMatch, line: &Statement) {
        match (line.words[0].value.as_slice(), line.args()) {
            (b"send", [word]) => {
                if !expected.send.is_empty() {
                    return self.duplicate(line);
                }
                expected.send = self.escaped(word).unwrap_or_default();
            }
            (b"expect", words @ ([_] | [_, _])) => {
                if expected.expect.is_some() {
                    return self.duplicate(line);
                }
                expected.expect = match words {
                    [operator, pattern] => match operator_of(operator) {
                        Some((caseless, true)) => self.check_regex(pattern, caseless).map(Expected::Regex),
                        _ => {
                            self.wrong_operator(operator, "~, ~*");
                            None
                        }
                    },
                    _ => self.escaped(&words[0]).map(Expected::Bytes),
                };
            }
            _ => self.wrong_line(line, "`send TEXT;` and `expect TEXT;` or `expect ~ EXPRESSION;`"),
        }
    }

    /// A text with bytes as `\xNN`.
    fn escaped(&mut self, word: &Word) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        let mut rest = word.value.as_slice();
        while let Some((byte, after)) = rest.split_first() {
            rest = after;
            if let Some(digits) = after.strip_prefix(b"x").filter(|_| *byte == b'\\') {
                let number = digits.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
                let Some(number) = number.and_then(|digits| u8::from_str_radix(digits, 16).ok()) else {
                    let hint = "two hexadecimal digits follow \"\\x\"";
                    self.error_hint(word.span, format!("invalid text \"{}\"", word.text()), hint);
                    return None;
                };
                bytes.push(number);
                rest = &digits[2..];
            } else {
                bytes.push(*byte);
            }
        }
        Some(bytes)
    }
}

/// Whether an operator of expressions ignores case, and whether the expression must match.
fn operator_of(word: &Word) -> Option<(bool, bool)> {
    match word.value.as_slice() {
        b"~" => Some((false, true)),
        b"~*" => Some((true, true)),
        b"!~" => Some((false, false)),
        b"!~*" => Some((true, false)),
        _ => None,
    }
}
