//! Streams of random numbers: one for each purpose, all from one seed.

use std::convert::Infallible;

use rand::TryRng;
use rand_distr::{Distribution, Exp1};

/// What a stream is for. Streams of different purposes are independent, so that algorithms that use different numbers of
/// draws still see the same arrivals and the same work.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Purpose {
    Arrivals = 1,
    Service,
    Keys,
    Dispatchers,
    Policy,
    Failures,
    Errors,
    Thinking,
}

/// xoshiro256++ 1.0 (Blackman, Vigna 2019), seeded by SplitMix64. The same seed gives the same numbers on every machine
/// and in every release.
#[derive(Clone, Debug)]
pub(crate) struct Random {
    state: [u64; 4],
}

impl Random {
    /// The stream for a purpose in a replication.
    pub fn new(seed: u64, replication: u32, purpose: Purpose) -> Random {
        let mut state = mix(mix(seed) ^ u64::from(replication) << 8 ^ purpose as u64);
        let mut next = || {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            mix(state)
        };
        Random { state: [next(), next(), next(), next()] }
    }

    #[inline]
    pub fn next(&mut self) -> u64 {
        let s = &mut self.state;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// Uniform in 0..bound.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// Uniform in [0, 1).
    #[inline]
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Exponential with mean 1.
    #[inline]
    pub fn exponential(&mut self) -> f64 {
        Exp1.sample(self)
    }
}

impl TryRng for Random {
    type Error = Infallible;

    #[inline]
    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        Ok((self.next() >> 32) as u32)
    }

    #[inline]
    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        Ok(self.next())
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.next().to_le_bytes()[..chunk.len()]);
        }
        Ok(())
    }
}

/// SplitMix64's last step.
pub(crate) fn mix(x: u64) -> u64 {
    let mut z = x;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The generator is the published one.
    #[test]
    fn known_numbers() {
        let mut random = Random { state: [1, 2, 3, 4] };
        let first: Vec<u64> = (0..4).map(|_| random.next()).collect();
        assert_eq!(first, [41_943_041, 58_720_359, 3_588_806_011_781_223, 3_591_011_842_654_386]);
    }

    #[test]
    fn streams_differ() {
        let first = |seed, replication, purpose| Random::new(seed, replication, purpose).next();
        let all = [
            first(1, 0, Purpose::Arrivals),
            first(1, 0, Purpose::Service),
            first(1, 1, Purpose::Arrivals),
            first(2, 0, Purpose::Arrivals),
        ];
        assert!((0..4).all(|i| (0..i).all(|j| all[i] != all[j])));
        assert_eq!(all[0], first(1, 0, Purpose::Arrivals));
    }
}
