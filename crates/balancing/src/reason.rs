//! Why a server was chosen.

use std::fmt;

use crate::fleet::Fleet;
use crate::policy::Basis;
use crate::server::Member;

/// Why a server was chosen, from [`crate::Driver::pick_explained`].
///
/// It is written as `least_conn score=0.5 next=b:80 1`: the algorithm, the basis of its choice, the score of the chosen
/// (less is better) and the runner-up with its score. Algorithms without scores say the basis alone: `round_robin turn`.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Reason {
    /// Name of the algorithm.
    pub algorithm: &'static str,
    /// How it came to the choice.
    pub basis: Basis,
    /// Score of the chosen server, if the algorithm has scores.
    pub score: Option<f64>,
    /// The best of the other eligible servers and its score. Of many servers 64 are looked at.
    pub next: Option<(Member, f64)>,
}

impl Reason {
    /// The reason in words, with the name of the runner-up.
    pub fn words<'a>(&'a self, fleet: &'a Fleet) -> impl fmt::Display + 'a {
        Words { reason: self, fleet: Some(fleet) }
    }
}

/// As [`Reason::words`], with the runner-up's number for its name.
impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Words { reason: self, fleet: None }.fmt(f)
    }
}

struct Words<'a> {
    reason: &'a Reason,
    fleet: Option<&'a Fleet>,
}

impl fmt::Display for Words<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Reason { algorithm, basis, score, next } = *self.reason;
        f.write_str(algorithm)?;
        match score {
            Some(score) if basis == Basis::Score => write!(f, " score={}", Brief(score))?,
            Some(score) => write!(f, " {basis} score={}", Brief(score))?,
            None => write!(f, " {basis}")?,
        }
        if let Some((member, score)) = next {
            match self.fleet {
                Some(fleet) => write!(f, " next={} {}", fleet.server(member).name, Brief(score))?,
                None => write!(f, " next={} {}", member.0, Brief(score))?,
            }
        }
        Ok(())
    }
}

/// A score with four significant digits.
struct Brief(f64);

impl fmt::Display for Brief {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = self.0.abs();
        if size == 0.0 || !size.is_finite() {
            return write!(f, "{}", self.0);
        }
        let step = 10f64.powi(3 - size.log10().floor() as i32);
        let rounded = if step.is_finite() { (self.0 * step).round() / step } else { self.0 };
        write!(f, "{rounded}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words() {
        let reason = Reason { algorithm: "least_conn", basis: Basis::Score, score: Some(0.5), next: None };
        assert_eq!(reason.to_string(), "least_conn score=0.5");
        let next = Some((Member(1), 1.0 / 3.0));
        assert_eq!(Reason { next, ..reason }.to_string(), "least_conn score=0.5 next=1 0.3333");
        let idle = Reason { basis: Basis::Idle, score: Some(123_456.7), ..reason };
        assert_eq!(idle.to_string(), "least_conn idle score=123500");
        assert_eq!(Reason { score: None, ..idle }.to_string(), "least_conn idle");
        assert_eq!(Brief(0.0).to_string(), "0");
    }
}
