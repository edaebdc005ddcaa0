//! Numbers by chance.

use std::hash::{BuildHasher, Hasher, RandomState};

/// A seed that differs between processes and calls.
pub fn seed() -> u64 {
    RandomState::new().build_hasher().finish()
}
