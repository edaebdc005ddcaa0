//! Reports of an agent on a server, in the protocol of HAProxy's agent check: one line of words, separated by spaces or
//! commas, case-insensitive.
//!
//! | word | meaning |
//! |---|---|
//! | `75%` | the server takes this part of its configured weight |
//! | `weight:64` | the server takes this weight, 0 to 256, in the units of the configuration |
//! | `maxconn:N` | requests in flight at most; 0 for no limit |
//! | `ready` | ends `drain` and `maint` |
//! | `drain` | nothing new, what is there is finished |
//! | `maint` | nothing at all |
//! | `up` | ends `down` |
//! | `down`, `fail`, `stopped` | nothing at all; `#` begins a description, up to the end of the line |
//!
//! What a line does not mention stays unchanged. An unknown word changes nothing and is logged.
//! Source: HAProxy's configuration manual, `agent-check`, with `weight:` added; the end-to-end tests compare it with
//! HAProxy.

/// The longest line that is read.
pub const LINE_MAX: usize = 1024;

/// The largest weight that a line may ask for, HAProxy's.
const WEIGHT_MAX: u32 = 256;

/// How much of the traffic the server wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Weight {
    /// Of the configured weight, in percent.
    Percent(u32),
    /// Instead of the configured weight.
    Units(u32),
}

/// What the server's operator wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wish {
    /// In operation.
    Ready,
    /// Nothing new.
    Drain,
    /// Out of operation.
    Maint,
}

/// One line of an agent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Statement<'a> {
    /// A weight.
    pub weight: Option<Weight>,
    /// Requests in flight at most; 0 for no limit.
    pub max_conns: Option<u32>,
    /// `ready`, `drain` or `maint`.
    pub wish: Option<Wish>,
    /// True for `up`, false for `down` and its like.
    pub up: Option<bool>,
    /// Why it is down.
    pub description: &'a [u8],
    /// The first word that has no meaning.
    pub unknown: Option<&'a [u8]>,
}

impl Statement<'_> {
    /// Whether the line said nothing that has a meaning.
    pub fn is_empty(&self) -> bool {
        self.weight.is_none() && self.max_conns.is_none() && self.wish.is_none() && self.up.is_none()
    }
}

/// Reads a line, with or without its end. Of words that contradict each other the last one holds.
pub fn parse(line: &[u8]) -> Statement<'_> {
    let end = line.iter().position(|byte| matches!(byte, b'\r' | b'\n' | 0)).unwrap_or(line.len());
    let (words, description) = match line[..end].iter().position(|byte| *byte == b'#') {
        Some(mark) => (&line[..mark], line[mark + 1..end].trim_ascii()),
        None => (&line[..end], &b""[..]),
    };
    let mut statement = Statement { description, ..Statement::default() };
    for word in words.split(|byte| matches!(byte, b' ' | b'\t' | b',')).filter(|word| !word.is_empty()) {
        if !statement.take(word) && statement.unknown.is_none() {
            statement.unknown = Some(word);
        }
    }
    statement
}

impl Statement<'_> {
    /// Whether the word has a meaning.
    fn take(&mut self, word: &[u8]) -> bool {
        let is = |known: &str| word.eq_ignore_ascii_case(known.as_bytes());
        if is("up") {
            self.up = Some(true);
        } else if is("down") || is("fail") || is("stopped") {
            self.up = Some(false);
        } else if is("ready") {
            self.wish = Some(Wish::Ready);
        } else if is("drain") {
            self.wish = Some(Wish::Drain);
        } else if is("maint") {
            self.wish = Some(Wish::Maint);
        } else if let Some(number) = after("maxconn:", word) {
            let Some(number) = decimal(number) else { return false };
            self.max_conns = Some(number);
        } else if let Some(percent) = word.strip_suffix(b"%") {
            let Some(percent) = decimal(percent) else { return false };
            self.weight = Some(Weight::Percent(percent));
        } else {
            let Some(units) = after("weight:", word).and_then(decimal) else { return false };
            if units > WEIGHT_MAX {
                return false;
            }
            self.weight = Some(Weight::Units(units));
        }
        true
    }
}

fn after<'a>(prefix: &str, word: &'a [u8]) -> Option<&'a [u8]> {
    let (begin, rest) = word.split_at_checked(prefix.len())?;
    begin.eq_ignore_ascii_case(prefix.as_bytes()).then_some(rest)
}

fn decimal(digits: &[u8]) -> Option<u32> {
    balanza_message::decimal(digits).and_then(|number| u32::try_from(number).ok())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn words_of_the_protocol() {
        let none = Statement::default;
        let weight = |weight| Statement { weight: Some(weight), ..none() };
        for (line, expected) in [
            (&b"75%\n"[..], weight(Weight::Percent(75))),
            (b"75%\r\nmaint", weight(Weight::Percent(75))),
            (b"64", Statement { unknown: Some(b"64"), ..none() }),
            (b"weight:256", weight(Weight::Units(256))),
            (b"weight:257", Statement { unknown: Some(b"weight:257"), ..none() }),
            (b"maxconn:30", Statement { max_conns: Some(30), ..none() }),
            (b"READY,up", Statement { wish: Some(Wish::Ready), up: Some(true), ..none() }),
            (b"drain", Statement { wish: Some(Wish::Drain), ..none() }),
            (b"maint\t0%", Statement { wish: Some(Wish::Maint), ..weight(Weight::Percent(0)) }),
            (b"down #disk full, 100%", Statement { up: Some(false), description: b"disk full, 100%", ..none() }),
            (b"stopped", Statement { up: Some(false), ..none() }),
            (b"fail#x", Statement { up: Some(false), description: b"x", ..none() }),
            (b"50% nonsense -1 maxconn:", Statement { unknown: Some(b"nonsense"), ..weight(Weight::Percent(50)) }),
            (b"", none()),
            (b"\n75%", none()),
        ] {
            assert_eq!(parse(line), expected, "{}", String::from_utf8_lossy(line));
        }
    }

    /// A word and what it says.
    fn word() -> impl Strategy<Value = (String, Statement<'static>)> {
        let none = Statement::default();
        prop_oneof![
            (0u32..1000).prop_map(move |n| (format!("{n}%"), Statement { weight: Some(Weight::Percent(n)), ..none })),
            (0u32..=256)
                .prop_map(move |n| (format!("wEight:{n}"), Statement { weight: Some(Weight::Units(n)), ..none })),
            any::<u32>().prop_map(move |n| (format!("maxconn:{n}"), Statement { max_conns: Some(n), ..none })),
            Just(("Ready".into(), Statement { wish: Some(Wish::Ready), ..none })),
            Just(("drain".into(), Statement { wish: Some(Wish::Drain), ..none })),
            Just(("MAINT".into(), Statement { wish: Some(Wish::Maint), ..none })),
            Just(("up".into(), Statement { up: Some(true), ..none })),
            Just(("down".into(), Statement { up: Some(false), ..none })),
            Just(("fail".into(), Statement { up: Some(false), ..none })),
        ]
    }

    proptest! {
        #[test]
        fn words_in_any_order_and_form(words in prop::collection::vec((word(), "[ \t,]{1,3}"), 0..6), end in "(#[a-z ,%0-9]*)?\r?\n?") {
            let mut line = String::new();
            let mut expected = Statement::default();
            for ((text, said), gap) in &words {
                line += &format!("{text}{gap}");
                expected.weight = said.weight.or(expected.weight);
                expected.max_conns = said.max_conns.or(expected.max_conns);
                expected.wish = said.wish.or(expected.wish);
                expected.up = said.up.or(expected.up);
            }
            line += &end;
            expected.description = end.trim_start_matches('#').as_bytes().trim_ascii();
            prop_assert_eq!(parse(line.as_bytes()), expected);
        }

        #[test]
        fn whatever_comes_is_read(line in prop::collection::vec(any::<u8>(), 0..200)) {
            let statement = parse(&line);
            if let Some(Weight::Units(units)) = statement.weight {
                prop_assert!(units <= WEIGHT_MAX);
            }
            if let Some(word) = statement.unknown {
                prop_assert!(!word.is_empty() && parse(word).is_empty());
            }
        }
    }
}
