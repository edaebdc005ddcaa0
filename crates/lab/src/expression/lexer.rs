//! Text into words, numbers, names and signs, each with its place.

use super::Error;

/// What a piece of a claim is.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Kind {
    /// A number as it is written, without its unit.
    Number(f64),
    /// A metric, a function, a unit, `and`, `or`, `not`, `within`.
    Word(String),
    /// Text between quotation marks: a name of the plan's.
    Name(String),
    /// One of `( ) , = < <= > >= ~ + - * / %`.
    Sign(&'static str),
    /// The end of the text.
    End,
}

/// A piece and the byte at which it begins.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Token {
    pub kind: Kind,
    pub place: usize,
}

impl Kind {
    /// What a message calls it.
    pub fn show(&self) -> String {
        match self {
            Kind::Number(number) => number.to_string(),
            Kind::Word(word) => format!("\"{word}\""),
            Kind::Name(name) => format!("the name \"{name}\""),
            Kind::Sign(sign) => format!("\"{sign}\""),
            Kind::End => "the end".into(),
        }
    }
}

/// The longer ones first.
const SIGNS: [&str; 14] = ["<=", ">=", "<", ">", "~", "+", "-", "*", "/", "%", "(", ")", ",", "="];

/// All pieces, the end last.
pub(super) fn tokens(text: &str) -> Result<Vec<Token>, Error> {
    let mut found = Vec::new();
    let mut place = 0;
    while let Some(first) = text[place..].chars().next() {
        let rest = &text[place..];
        let (kind, length) = if first.is_whitespace() {
            place += first.len_utf8();
            continue;
        } else if first.is_ascii_digit() || first == '.' {
            number(rest, place)?
        } else if first.is_ascii_alphabetic() || first == '_' {
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
            (Kind::Word(rest[..end].into()), end)
        } else if first == '"' || first == '\'' {
            let Some(end) = rest[1..].find(first) else {
                return Err(Error::new(place, format!("the name has no closing {first}")));
            };
            (Kind::Name(rest[1..=end].into()), end + 2)
        } else if let Some(sign) = SIGNS.iter().find(|sign| rest.starts_with(**sign)) {
            (Kind::Sign(sign), sign.len())
        } else {
            return Err(Error::new(place, format!("\"{first}\" has no meaning here")).hint(match first {
                '≈' => "\"about\" is written ~, with \"within 5%\" after it",
                '×' | '·' => "\"times\" is written *",
                '&' => "write and",
                '|' => "write or",
                '!' => "write not (…)",
                _ => "names of the plan stand in quotation marks",
            }));
        };
        found.push(Token { kind, place });
        place += length;
    }
    found.push(Token { kind: Kind::End, place });
    Ok(found)
}

fn number(rest: &str, place: usize) -> Result<(Kind, usize), Error> {
    let digits =
        |from: usize| rest[from..].find(|c: char| !c.is_ascii_digit() && c != '.').map_or(rest.len(), |i| from + i);
    let mut end = digits(0);
    let exponent = rest[end..].strip_prefix(['e', 'E']).map(|e| e.strip_prefix(['-', '+']).unwrap_or(e));
    if let Some(exponent) = exponent.filter(|e| e.starts_with(|c: char| c.is_ascii_digit())) {
        end = digits(rest.len() - exponent.len());
    }
    match rest[..end].parse() {
        Ok(number) => Ok((Kind::Number(number), end)),
        Err(_) => Err(Error::new(place, format!("\"{}\" is not a number", &rest[..end]))),
    }
}
