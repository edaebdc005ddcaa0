//! Whose requests they are.

use rand_distr::{Distribution, Zipf};

use crate::random::{Random, mix};

/// Clients by how often they come.
#[derive(Clone, Debug)]
pub(crate) enum Keys {
    Even(u32),
    Skewed(Zipf<f64>),
}

impl Keys {
    /// `count` clients, of which the k-th has a part proportional to `1 / k^skew`.
    pub fn new(count: u32, skew: f64) -> Result<Keys, String> {
        let count = count.max(1);
        if skew == 0.0 {
            return Ok(Keys::Even(count));
        }
        let zipf = Zipf::new(f64::from(count), skew);
        Ok(Keys::Skewed(zipf.map_err(|_| "zipf has to be 0 or more")?))
    }

    /// The number of a client.
    pub fn draw(&self, random: &mut Random) -> u32 {
        match self {
            Keys::Even(count) => random.below(u64::from(*count)) as u32,
            Keys::Skewed(zipf) => zipf.sample(random) as u32 - 1,
        }
    }
}

/// A client's address, which is its key as well: spread over the whole of IPv4, as NGINX's ip_hash looks at the first
/// three bytes alone.
#[inline]
pub(crate) fn address(key: u32) -> [u8; 4] {
    (mix(u64::from(key).wrapping_add(0x9e37_79b9_7f4a_7c15)) as u32).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Purpose;

    #[test]
    fn frequencies() {
        let mut random = Random::new(1, 0, Purpose::Keys);
        for (skew, parts) in [(0.0, [0.25, 0.25]), (1.0, [0.48, 0.24])] {
            let keys = Keys::new(4, skew).unwrap();
            let mut counts = [0f64; 4];
            (0..100_000).for_each(|_| counts[keys.draw(&mut random) as usize] += 1e-5);
            assert!((counts[0] - parts[0]).abs() < 0.01 && (counts[1] - parts[1]).abs() < 0.01, "{counts:?}");
        }
        assert!(Keys::new(4, f64::NAN).is_err());
    }
}
