//! The report in a terminal.

use super::claims;
use super::grid::indented;
use super::tables::{self, places};
use super::words;
use crate::summary::Summary;
use crate::text::wrap;

/// The narrowest terminal that tables are made for.
const NARROWEST: usize = 60;

/// What came out, in lines of at most `width` characters (60 at least); escape sequences only with `colour`.
pub fn terminal(summary: &Summary, width: usize, colour: bool) -> String {
    let width = width.max(NARROWEST);
    let bold = |text: &str| if colour { format!("\x1b[1m{text}\x1b[0m\n") } else { format!("{text}\n") };
    let mut out: String = wrap(&summary.plan.title, width).iter().map(|line| bold(line)).collect();
    if summary.cells.is_empty() {
        out.push_str("\nNothing was measured.\n");
    }
    // The verdicts come first, those of the place where most was measured before the others.
    let main = tables::main_place(summary);
    for place in main.into_iter().chain(places(summary).into_iter().filter(|place| Some(*place) != main)) {
        for (index, words) in tables::decisive_verdicts(summary, place).iter().enumerate() {
            if index == 0 {
                out.push_str(&format!("\n{}:\n", words::place(&summary.plan, place.0, place.1)));
            }
            out.push_str(&indented(words, 2, width));
        }
    }
    if let Some(words) = claims::words(&summary.checks) {
        out.push_str(&format!("\n{}", indented(&words, 0, width)));
    }
    let mut maxima = false;
    for place in places(summary) {
        out.push('\n');
        out.push_str(&bold(&words::place(&summary.plan, place.0, place.1)));
        let table = tables::results(summary, place, false).terminal(width, colour);
        maxima |= table.lines().next().is_some_and(|heading| heading.contains("max"));
        out.push_str(&table);
    }
    if !summary.cells.is_empty() {
        let maxima = if maxima { " max: the slowest request of a run." } else { "" };
        out.push('\n');
        let note = format!(
            "±: 95% confidence interval over the repetitions. inconclusive: no difference to the best can be shown.{maxima}"
        );
        out.push_str(&indented(&note, 0, width));
    }
    out.push_str(&claims_text(summary, width, colour, bold));
    let (missing, invalid) = tables::left_out(summary);
    for (heading, list) in [("Not measured", missing), ("Excluded runs", invalid)] {
        if !list.is_empty() {
            out.push('\n');
            out.push_str(&bold(heading));
            out.extend(list.iter().map(|line| indented(line, 2, width)));
        }
    }
    out
}

fn claims_text(summary: &Summary, width: usize, colour: bool, bold: impl Fn(&str) -> String) -> String {
    if summary.checks.is_empty() {
        return String::new();
    }
    let mut out = format!("\n{}", bold("Checks"));
    let mut last = "";
    for verified in &summary.checks {
        if verified.check != last {
            let check = summary.plan.checks.iter().find(|check| check.name == verified.check);
            let says = check.map_or(verified.check.as_str(), |check| check.says.as_str());
            out.push_str(&indented(says, 0, width));
            last = &verified.check;
        }
        let mark = words::expected(verified.expected);
        let mark = match (colour, verified.expected) {
            (true, Some(true)) => format!("\x1b[32m{mark}\x1b[0m"),
            (true, Some(false)) => format!("\x1b[31m{mark}\x1b[0m"),
            _ => mark.to_string(),
        };
        let line = indented(&format!("{}: {}", verified.system, words::outcome(verified)), 4, width);
        out.push_str(&format!("  {mark} {}", &line[4..]));
    }
    out.push('\n');
    out.push_str(&indented("The report has the expressions and the numbers of the checks.", 0, width));
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    #[test]
    fn on_a_common_terminal() {
        insta::assert_snapshot!(terminal(&sample::summary(), 80, false));
    }

    #[test]
    fn on_a_wide_terminal() {
        insta::assert_snapshot!(terminal(&sample::summary(), 120, false));
    }

    #[test]
    fn lines_fit_and_colours_add_nothing() {
        for width in [60, 80, 100, 140] {
            let plain = terminal(&sample::summary(), width, false);
            for line in plain.lines() {
                assert!(line.chars().count() <= width, "{width}: {line}");
            }
            let mut coloured = terminal(&sample::summary(), width, true);
            assert!(!plain.contains('\x1b') && coloured.contains("\x1b[32m"));
            for code in ["\x1b[0m", "\x1b[1m", "\x1b[31m", "\x1b[32m"] {
                coloured = coloured.replace(code, "");
            }
            assert_eq!(coloured, plain);
        }
    }
}
