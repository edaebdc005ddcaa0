//! What is not known of a request, and must not be guessed.

/// PCRE2 gave up on a regular expression that decides a value. The alert has been logged, and the answer is 500: neither
/// "no match" nor "match" would be true.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Undecided;
