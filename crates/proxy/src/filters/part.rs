//! A piece of a body: the answer to a request for a range.

use std::ops::Range;

use super::{Broken, Filter, Flow, Step};

/// Lets one range of a body through.
pub struct Part {
    /// Bytes to leave out first.
    skip: u64,
    /// Bytes to let through then.
    keep: u64,
}

impl Part {
    /// The bytes of this range.
    pub fn new(range: &Range<u64>) -> Part {
        Part { skip: range.start, keep: range.end - range.start }
    }
}

impl Filter for Part {
    fn step(&mut self, input: &[u8], _: Flow, out: &mut [u8]) -> Result<Step, Broken> {
        let skipped = usize::try_from(self.skip).unwrap_or(usize::MAX).min(input.len());
        self.skip -= skipped as u64;
        let rest = &input[skipped..];
        let wanted = usize::try_from(self.keep).unwrap_or(usize::MAX).min(rest.len());
        let made = wanted.min(out.len());
        out[..made].copy_from_slice(&rest[..made]);
        self.keep -= made as u64;
        let done = made == wanted;
        Ok(Step { taken: if done { input.len() } else { skipped + made }, made, done })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::Chain;
    use super::super::tests::run;
    use super::*;

    proptest! {
        /// However the body is cut, what comes out is the range.
        #[test]
        fn a_range_comes_out(
            body in proptest::collection::vec(any::<u8>(), 0..60_000),
            cuts in proptest::collection::vec(any::<usize>(), 0..6),
            ends in any::<(usize, usize)>(),
        ) {
            let (one, other) = (ends.0 % (body.len() + 1), ends.1 % (body.len() + 1));
            let range = one.min(other)..one.max(other);
            let mut chain = Chain::default();
            chain.add(Part::new(&(range.start as u64..range.end as u64)));
            prop_assert_eq!(run(&mut chain, &body, &cuts, Flow::More).unwrap(), &body[range]);
        }
    }
}
