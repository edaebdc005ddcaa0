//! The plan's checks: their results, and in an appendix how each was evaluated.

use super::grid::{Align, Entry, Grid, Tone};
use super::words;
use crate::plan::Check;
use crate::summary::{Holds, Summary, Verified};

/// The checks with their results.
pub(super) fn table(summary: &Summary) -> Grid {
    let mut grid = Grid::default()
        .column("check", Align::Prose, 0)
        .column("system", Align::Left, 0)
        .column("result", Align::Left, 0)
        .column("published", Align::Prose, 0);
    for (verified, check) in with_checks(summary) {
        let (says, document) = match check {
            Some(check) => (check.says.clone(), check.document.clone()),
            None => Default::default(),
        };
        let tone = match verified.expected {
            Some(true) => Tone::Good,
            Some(false) => Tone::Bad,
            None => Tone::Plain,
        };
        let result = format!("{} {}", words::expected(verified.expected), words::outcome(verified));
        grid.row(vec![says.into(), verified.system.name().into(), Entry::new(result, tone), document.into()]);
    }
    grid.without_empty()
}

/// How each check was evaluated: its expression and the numbers that decided.
pub(super) fn details(summary: &Summary) -> Grid {
    let mut grid = Grid::default()
        .column("check", Align::Left, 0)
        .column("expression", Align::Prose, 0)
        .column("system", Align::Left, 0)
        .column("measured", Align::Prose, 0);
    for (verified, check) in with_checks(summary) {
        let (name, expression) = match check {
            Some(check) => (check.name.clone(), check.expression.split_whitespace().collect::<Vec<_>>().join(" ")),
            None => Default::default(),
        };
        grid.row(vec![name.into(), expression.into(), verified.system.name().into(), verified.numbers.as_str().into()]);
    }
    grid.without_empty()
}

/// All results, each with its check if it is the first result of this check.
fn with_checks(summary: &Summary) -> impl Iterator<Item = (&Verified, Option<&Check>)> {
    summary.checks.iter().enumerate().map(|(index, verified)| {
        let first = index == 0 || summary.checks[index - 1].check != verified.check;
        let check = summary.plan.checks.iter().find(|check| first && check.name == verified.check);
        (verified, check)
    })
}

/// What the results of checks mean.
pub(super) const MARKS: &str = "\"Inconclusive\" means that the confidence intervals allow both results, or that runs are missing. \
                                \"Expected to fail\" marks statements that are known to be false: the check confirms that they fail.";

/// The results of all checks in a sentence; none if there are no checks.
pub(super) fn words(checks: &[Verified]) -> Option<String> {
    let number = |expected: Option<bool>| checks.iter().filter(|check| check.expected == expected).count();
    let open = checks.iter().filter(|check| check.holds == Holds::CannotBeTold).count();
    let (kept, broken) = (number(Some(true)), number(Some(false)));
    let rest = [(broken, "did not"), (open, if open == 1 { "is inconclusive" } else { "are inconclusive" })];
    let rest: Vec<String> =
        rest.iter().filter(|(number, _)| *number > 0).map(|(number, what)| format!("{number} {what}")).collect();
    match checks.len() {
        0 => None,
        1 if kept == 1 => Some("The only check gave the expected result.".to_string()),
        1 if open == 1 => Some("The only check is inconclusive.".to_string()),
        1 => Some("The only check did not give the expected result.".to_string()),
        all if rest.is_empty() => Some(format!("All {all} checks gave the expected result.")),
        all => Some(format!("{kept} of {all} checks gave the expected result; {}.", rest.join(", "))),
    }
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
        assert_eq!(of(&[0]), "The only check gave the expected result.");
        assert_eq!(of(&[1]), "The only check did not give the expected result.");
        assert_eq!(of(&[4]), "The only check is inconclusive.");
        assert_eq!(of(&[0, 2, 3]), "All 3 checks gave the expected result.");
        assert_eq!(of(&[0, 1, 1, 4]), "1 of 4 checks gave the expected result; 2 did not, 1 is inconclusive.");
        assert_eq!(of(&[0, 4, 4]), "1 of 3 checks gave the expected result; 2 are inconclusive.");
    }

    #[test]
    fn a_check_that_is_expected_to_fail_says_so() {
        let checks = sample::summary().checks;
        let outcomes: Vec<&str> = checks.iter().map(words::outcome).collect();
        let failing = "expected to fail: confirmed";
        assert_eq!(outcomes, ["confirmed", "not confirmed", failing, failing, "inconclusive"]);
        let unexpected = Verified { holds: Holds::Yes, expected: Some(false), ..checks[2].clone() };
        assert_eq!(words::outcome(&unexpected), "expected to fail: not confirmed");
    }

    #[test]
    fn expressions_are_in_the_details_only() {
        let summary = sample::summary();
        let (table, details) = (table(&summary).markdown(), details(&summary).markdown());
        assert!(!table.contains("rps(") && details.contains("rps('least\\_conn', load='250') ~ 186.9 within 5%"));
        assert!(details.contains("rps(least\\_conn) 187.1") && !table.contains("187.1"));
    }
}
