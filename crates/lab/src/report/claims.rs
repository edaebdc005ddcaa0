//! The plan's claims and how they came out.

use super::grid::{Align, Entry, Grid, Tone};
use super::words;
use crate::summary::{Holds, Summary, Verified};

/// The claims: what is said, what was measured, whether it holds.
pub(super) fn table(summary: &Summary) -> Grid {
    let mut grid = Grid::default()
        .column("claim", Align::Prose, 0)
        .column("system", Align::Left, 0)
        .column("holds", Align::Left, 0)
        .column("measured", Align::Prose, 0)
        .column("the document says", Align::Prose, 0);
    let mut last = "";
    for verified in &summary.checks {
        let check = summary.plan.checks.iter().find(|check| check.name == verified.check);
        let (says, document) = match check {
            // Said once for all systems that are asked.
            _ if last == verified.check => (String::new(), String::new()),
            Some(check) => (claim(&check.says, check.must), check.document.clone()),
            None => (verified.check.clone(), String::new()),
        };
        last = &verified.check;
        let mark = words::expected(verified.expected);
        let tone = match verified.expected {
            Some(true) => Tone::Good,
            Some(false) => Tone::Bad,
            None => Tone::Plain,
        };
        grid.row(vec![
            says.into(),
            verified.system.name().into(),
            Entry::new(format!("{mark} {}", words::holds(verified.holds)), tone),
            verified.numbers.as_str().into(),
            document.into(),
        ]);
    }
    grid.without_empty()
}

/// A claim in a sentence, with what is asked of it where that is not its truth.
pub(super) fn claim(says: &str, must: bool) -> String {
    if must { says.to_string() } else { format!("Must not hold: {says}") }
}

/// What the marks of the table mean.
pub(super) const MARKS: &str =
    "✓ as it must come out, ✗ not as it must, ? cannot be told: the intervals leave it open, or runs are missing.";

/// How the claims came out, in a sentence; none if there are none.
pub(super) fn words(checks: &[Verified]) -> Option<String> {
    let number = |expected: Option<bool>| checks.iter().filter(|check| check.expected == expected).count();
    let open = checks.iter().filter(|check| check.holds == Holds::CannotBeTold).count();
    let (kept, broken) = (number(Some(true)), number(Some(false)));
    (!checks.is_empty()).then(|| {
        let all = match checks.len() {
            1 => "The only claim".to_string(),
            all if all == kept => format!("All {all} claims"),
            all => format!("{kept} of {all} claims"),
        };
        let rest: Vec<String> = [(broken, if broken == 1 { "does not" } else { "do not" }), (open, "cannot be told")]
            .iter()
            .filter(|(number, _)| *number > 0)
            .map(|(number, what)| format!("{number} {what}"))
            .collect();
        match (checks.len(), kept) {
            (1, 1) => format!("{all} comes out as it must."),
            (1, _) if open == 1 => format!("{all} cannot be told."),
            (1, _) => format!("{all} does not come out as it must."),
            _ if rest.is_empty() => format!("{all} come out as they must."),
            _ => format!("{all} come out as they must; {}.", rest.join(", ")),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    #[test]
    fn outcomes_in_a_sentence() {
        let checks = sample::summary().checks;
        let of = |which: &[usize]| {
            let checks: Vec<Verified> = which.iter().map(|&index| checks[index].clone()).collect();
            words(&checks).unwrap_or_default()
        };
        assert_eq!(of(&[]), "");
        assert_eq!(of(&[0]), "The only claim comes out as it must.");
        assert_eq!(of(&[1]), "The only claim does not come out as it must.");
        assert_eq!(of(&[4]), "The only claim cannot be told.");
        assert_eq!(of(&[0, 2, 3]), "All 3 claims come out as they must.");
        assert_eq!(of(&[0, 1, 1, 4]), "1 of 4 claims come out as they must; 2 do not, 1 cannot be told.");
    }
}
