//! Replacement of strings (`sub_filter`): at each place the first search string that fits, without regard to case.

use super::{Broken, Filter, Flow, Step};

/// A search string, not empty, and what replaces it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pair {
    /// In lower case.
    pub search: Vec<u8>,
    /// What replaces it.
    pub replacement: Vec<u8>,
}

/// What the text holds from the place on that has been written.
#[derive(Debug, Clone, Copy)]
enum Next {
    /// Not known yet.
    Unknown,
    /// Nothing to replace before this place, where a search string is.
    Match(usize, usize),
    /// Nothing to replace before this place, where one may begin.
    Plain(usize),
}

/// Replaces strings in a body.
pub struct Sub {
    pairs: Vec<Pair>,
    /// Which of them are still looked for.
    active: Vec<bool>,
    once: bool,
    shortest: usize,
    /// By the byte at the end of the shortest search string's length: how far the next place is where one may begin.
    shifts: Box<[usize; 256]>,
    /// What has come and is not written, from `at` on.
    text: Vec<u8>,
    at: usize,
    next: Next,
    /// The replacement that is being written, and how much of it is.
    replacing: Option<(usize, usize)>,
}

impl Sub {
    /// Replaces each search string where it is found, or with `once` the first one of each.
    pub fn new(pairs: Vec<Pair>, once: bool) -> Sub {
        let shortest = pairs.iter().map(|pair| pair.search.len()).min().unwrap_or(0).max(1);
        let mut shifts = Box::new([shortest; 256]);
        for pair in &pairs {
            for (index, byte) in pair.search.iter().take(shortest).enumerate() {
                for byte in [byte.to_ascii_lowercase(), byte.to_ascii_uppercase()] {
                    let shift = &mut shifts[usize::from(byte)];
                    *shift = (*shift).min(shortest - 1 - index);
                }
            }
        }
        let active = vec![true; pairs.len()];
        let text = Vec::new();
        Sub { pairs, active, once, shortest, shifts, text, at: 0, next: Next::Unknown, replacing: None }
    }

    fn is_idle(&self) -> bool {
        !self.active.contains(&true)
    }

    /// What comes next in the text.
    fn search(&self, ends: bool) -> Next {
        let text = &self.text[..];
        if self.is_idle() {
            return Next::Plain(text.len());
        }
        let mut begin = self.at;
        while begin < text.len() {
            if let Some(last) = text.get(begin + self.shortest - 1) {
                let shift = self.shifts[usize::from(*last)];
                if shift > 0 {
                    begin += shift;
                    continue;
                }
            } else if ends {
                return Next::Plain(text.len());
            }
            let rest = &text[begin..];
            for (index, pair) in self.pairs.iter().enumerate().filter(|(index, _)| self.active[*index]) {
                let search = &pair.search[..];
                if rest.len() >= search.len() {
                    if rest[..search.len()].eq_ignore_ascii_case(search) {
                        return Next::Match(begin, index);
                    }
                } else if !ends && rest.eq_ignore_ascii_case(&search[..rest.len()]) {
                    // More bytes will tell.
                    return Next::Plain(begin);
                }
            }
            begin += 1;
        }
        Next::Plain(text.len())
    }
}

impl Filter for Sub {
    fn step(&mut self, input: &[u8], flow: Flow, out: &mut [u8]) -> Result<Step, Broken> {
        if !input.is_empty() {
            self.text.drain(..self.at);
            self.at = 0;
            self.text.extend_from_slice(input);
            self.next = Next::Unknown;
        } else if flow == Flow::End && matches!(self.next, Next::Plain(end) if end < self.text.len()) {
            self.next = Next::Unknown;
        }
        let taken = input.len();
        let mut made = 0;
        loop {
            if let Some((index, written)) = self.replacing {
                let rest = &self.pairs[index].replacement[written..];
                let length = rest.len().min(out.len() - made);
                out[made..made + length].copy_from_slice(&rest[..length]);
                made += length;
                if length < rest.len() {
                    self.replacing = Some((index, written + length));
                    return Ok(Step { taken, made, done: false });
                }
                self.replacing = None;
            }
            if let Next::Unknown = self.next {
                self.next = self.search(flow == Flow::End);
            }
            let (Next::Match(end, _) | Next::Plain(end)) = self.next else { continue };
            let length = (end - self.at).min(out.len() - made);
            out[made..made + length].copy_from_slice(&self.text[self.at..self.at + length]);
            made += length;
            self.at += length;
            if self.at < end {
                return Ok(Step { taken, made, done: false });
            }
            let Next::Match(_, index) = self.next else { return Ok(Step { taken, made, done: true }) };
            self.at += self.pairs[index].search.len();
            self.active[index] = !self.once;
            self.replacing = Some((index, 0));
            self.next = Next::Unknown;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::Chain;
    use super::super::tests::run;
    use super::*;

    /// The definition: from left to right, at each place the first pair that fits.
    fn replaced(body: &[u8], pairs: &[Pair], once: bool) -> Vec<u8> {
        let mut used = vec![false; pairs.len()];
        let mut out = Vec::new();
        let mut rest = body;
        'places: while let Some((first, after)) = rest.split_first() {
            for (index, pair) in pairs.iter().enumerate() {
                let found = rest.get(..pair.search.len()).is_some_and(|it| it.eq_ignore_ascii_case(&pair.search));
                if found && !(once && used[index]) {
                    used[index] = true;
                    out.extend_from_slice(&pair.replacement);
                    rest = &rest[pair.search.len()..];
                    continue 'places;
                }
            }
            out.push(*first);
            rest = after;
        }
        out
    }

    fn pairs() -> impl Strategy<Value = Vec<Pair>> {
        let pair = ("[ab]{1,5}", "[aX]{0,3}")
            .prop_map(|(search, replacement)| Pair { search: search.into(), replacement: replacement.into() });
        proptest::collection::vec(pair, 1..4)
    }

    proptest! {
        /// However a body is cut, the result is that of replacing in the whole.
        #[test]
        fn it_is_replacing_in_the_whole(
            body in "[abABc]{0,120}",
            pairs in pairs(),
            cuts in proptest::collection::vec(any::<usize>(), 0..8),
            once: bool,
            flushes: bool,
        ) {
            let mut chain = Chain::default();
            chain.add(Sub::new(pairs.clone(), once));
            let flow = if flushes { Flow::Flush } else { Flow::More };
            let result = run(&mut chain, body.as_bytes(), &cuts, flow).unwrap();
            let expected = replaced(body.as_bytes(), &pairs, once);
            prop_assert_eq!(String::from_utf8_lossy(&result), String::from_utf8_lossy(&expected));
        }
    }

    #[test]
    fn long_replacements_come_in_parts() {
        let pairs = vec![Pair { search: b"<x>".to_vec(), replacement: vec![b'y'; 100_000] }];
        let mut chain = Chain::default();
        chain.add(Sub::new(pairs.clone(), false));
        let body = b"1<X>2<x>3<x".repeat(3);
        assert_eq!(run(&mut chain, &body, &[3, 8], Flow::More).unwrap(), replaced(&body, &pairs, false));
    }
}
