//! Patterns that may take PCRE2 a very long time: a repeat without limit around another one.

/// Whether a valid pattern repeats a group with a repeat inside without limit, as `(\w+/)*` does, so that matching can take
/// exponential time; possessive repeats and atomic groups cannot.
pub(crate) fn are_nested(pattern: &str) -> bool {
    let mut scan = Scan { rest: pattern.as_bytes() };
    // Whether each open group repeats something without limit, and whether it is matched in one way only.
    let mut groups = vec![Group::default()];
    while let Some((first, after)) = scan.rest.split_first() {
        scan.rest = after;
        let repeats = match first {
            b'(' => {
                groups.extend(scan.open_group());
                continue;
            }
            b')' => groups.pop().is_some_and(|group| group.repeats && !group.atomic),
            b'\\' => {
                scan.skip_escape();
                false
            }
            b'[' => {
                scan.skip_class();
                false
            }
            _ => false,
        };
        let quantifier = scan.quantifier();
        if quantifier == Quantifier::Unbounded && repeats {
            return true;
        }
        if let Some(group) = groups.last_mut() {
            let open = quantifier == Quantifier::Unbounded || repeats && quantifier != Quantifier::Possessive;
            group.repeats |= open;
        }
    }
    false
}

#[derive(Default)]
struct Group {
    repeats: bool,
    atomic: bool,
}

#[derive(PartialEq, Eq)]
enum Quantifier {
    /// None, or one with an upper limit.
    Bounded,
    Unbounded,
    /// What it has matched is not tried again in another way.
    Possessive,
}

struct Scan<'a> {
    rest: &'a [u8],
}

impl Scan<'_> {
    /// Behind "(": the group, unless it is a comment or a verb, which end at once.
    fn open_group(&mut self) -> Option<Group> {
        if self.rest.starts_with(b"*") || self.rest.starts_with(b"?#") {
            self.skip_behind(b")");
            return None;
        }
        let atomic = [&b"?>"[..], b"?=", b"?!", b"?<=", b"?<!"].iter().any(|start| self.rest.starts_with(start));
        // "?" is no quantifier here, and a name or options are no atoms with quantifiers behind them.
        self.rest = self.rest.strip_prefix(b"?").unwrap_or(self.rest);
        Some(Group { repeats: false, atomic })
    }

    fn skip_behind(&mut self, end: &[u8]) {
        let at = self.rest.windows(end.len()).position(|window| window == end);
        self.rest = at.map_or(&[], |at| &self.rest[at + end.len()..]);
    }

    /// Behind a backslash.
    fn skip_escape(&mut self) {
        if let Some(rest) = self.rest.strip_prefix(b"Q") {
            self.rest = rest;
            self.skip_behind(b"\\E");
        } else {
            self.rest = self.rest.get(1..).unwrap_or_default();
        }
    }

    /// Behind "[", in which "]" stands for itself at first.
    fn skip_class(&mut self) {
        self.rest = self.rest.strip_prefix(b"^").unwrap_or(self.rest);
        self.rest = self.rest.strip_prefix(b"]").unwrap_or(self.rest);
        while let Some((byte, after)) = self.rest.split_first() {
            self.rest = after;
            match byte {
                b']' => return,
                b'\\' => self.skip_escape(),
                b'[' if after.starts_with(b":") => self.skip_behind(b":]"),
                _ => {}
            }
        }
    }

    /// Takes the quantifier that follows an atom or a group.
    fn quantifier(&mut self) -> Quantifier {
        let unbounded = match self.rest {
            [b'*' | b'+', after @ ..] => {
                self.rest = after;
                true
            }
            [b'?', after @ ..] => {
                self.rest = after;
                false
            }
            [b'{', inner @ ..] => {
                let Some(end) = inner.iter().position(|byte| *byte == b'}') else { return Quantifier::Bounded };
                let (limits, after) = (&inner[..end], &inner[end + 1..]);
                if limits.is_empty() || !limits.iter().all(|byte| byte.is_ascii_digit() || *byte == b',') {
                    return Quantifier::Bounded;
                }
                self.rest = after;
                limits.ends_with(b",")
            }
            _ => return Quantifier::Bounded,
        };
        match self.rest {
            [b'+', after @ ..] => {
                self.rest = after;
                Quantifier::Possessive
            }
            [b'?', after @ ..] => {
                self.rest = after;
                if unbounded { Quantifier::Unbounded } else { Quantifier::Bounded }
            }
            _ if unbounded => Quantifier::Unbounded,
            _ => Quantifier::Bounded,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::are_nested;

    #[test]
    fn repeats_around_repeats_are_found() {
        for pattern in [
            r"^/(\w+/)*private$",
            "(a+)+",
            "(?:a|b*)+",
            "((a+)?b)*",
            "(a{2,})+?",
            "(?<n>x*){3,}",
            "(?i:(.*)/)+",
            "(?:[]*]+)*",
        ] {
            assert!(are_nested(pattern), "{pattern}");
        }
    }

    #[test]
    fn other_repeats_are_not() {
        for pattern in [
            r"\.(gif|jpe?g|png)$",
            "^/a(.*)/b(.*)$",
            "(ab)*c+",
            "(a++)*",
            "(a+)*+",
            "(?>a+)*",
            "(?=.*x)*",
            "(a+){1,20}",
            r"(\w{1,64}/)*",
            r"([*+]\*\+)*",
            r"(\Q*+\E)+",
            "(?#(a+)+)b",
            "(*UTF)x+",
            "([[:alpha:]*])*",
            "(a{b,})*",
            "",
        ] {
            assert!(!are_nested(pattern), "{pattern}");
        }
    }
}
