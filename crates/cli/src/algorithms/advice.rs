//! `balanza algorithms --advise`: the table of algorithms and situations, for a terminal, a program and the document.

use std::fmt::Write as _;
use std::io::{self, IsTerminal};

use balanza_balancing::registry;
use balanza_simulator::advice::{Cell, Mark, Measure, SITUATIONS, Table, left_out};
use serde_json::{Value, json};

use crate::output;

/// Columns of a cell in the terminal.
const CELL: usize = 12;

/// A mark's symbol and colour in a terminal, its symbol in the document, and its word.
fn looks(mark: Mark) -> (&'static str, u8, &'static str, &'static str) {
    match mark {
        Mark::Good => ("++", 32, "🟢", "good"),
        Mark::Fair => ("+ ", 33, "🟡", "fair"),
        Mark::Poor => ("- ", 35, "🟠", "poor"),
        Mark::Bad => ("--", 31, "🔴", "bad"),
    }
}

const MARKS: [Mark; 4] = [Mark::Good, Mark::Fair, Mark::Poor, Mark::Bad];

/// The table, as text for this standard output or as JSON.
pub fn of(table: &Table, as_json: bool) -> String {
    if as_json {
        return super::pretty(&in_json(table));
    }
    let terminal = io::stdout().is_terminal();
    let width = if terminal { terminal_size::terminal_size().map_or(80, |(width, _)| width.0) } else { u16::MAX };
    text(table, usize::from(width), output::colour())
}

/// The table in lines of at most `width` columns: as many situations side by side as fit.
fn text(table: &Table, width: usize, colour: bool) -> String {
    let names = table.rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let side_by_side = (width.saturating_sub(names) / CELL).clamp(1, SITUATIONS.len());
    let columns: Vec<Vec<Cell>> = (0..SITUATIONS.len()).map(|at| table.column(at)).collect();
    let mut text = String::new();
    for block in (0..SITUATIONS.len()).collect::<Vec<_>>().chunks(side_by_side) {
        let _ = write!(text, "{:names$}", "");
        for at in block {
            let _ = write!(text, "{:>1$}", SITUATIONS[*at].heading, CELL);
        }
        text.push('\n');
        for (row, (name, _)) in table.rows.iter().enumerate() {
            let _ = write!(text, "{name:names$}");
            for cell in block.iter().map(|at| columns[*at][row]) {
                let (symbol, code, ..) = looks(cell.mark);
                let figure = format!("{:>1$}", format!("{} {symbol}", figure(cell)), CELL);
                text += &if colour { format!("\x1b[{code}m{figure}\x1b[0m") } else { figure };
            }
            text.push('\n');
        }
        text.push('\n');
    }
    for situation in &SITUATIONS {
        let _ = writeln!(text, "{:12} {} (balanza simulate {})", situation.heading, situation.what, situation.scenario);
    }
    let _ = write!(text, "\n{}\n", super::wrapped(&legend(|mark| looks(mark).0.trim().to_string())));
    text
}

/// The meaning of figures and marks.
fn legend(symbol: impl Fn(Mark) -> String) -> String {
    let limits = |measure: Measure| {
        let marks = MARKS.iter().zip(measure.limits()).map(|(mark, limit)| format!("{} up to {limit}", symbol(*mark)));
        format!("{}, {} above", marks.collect::<Vec<_>>().join(", "), symbol(Mark::Bad))
    };
    let lost = SITUATIONS.iter().filter(|situation| situation.measure == Measure::Lost);
    let lost: Vec<_> = lost.map(|situation| format!("\"{}\"", situation.heading)).collect();
    let out = registry::entries().iter().filter_map(|entry| Some((entry.name, left_out(entry)?)));
    let out: Vec<_> = out.map(|(name, why)| format!("{name} ({why})")).collect();
    format!(
        "A figure is the mean time in system relative to the best algorithm of its column: {}. ∞ means that \
         queues grow without bound. In the columns {} it is the number of requests lost, relative to \
         random: {}. Not simulated: {}.",
        limits(Measure::Time),
        lost.join(" and "),
        limits(Measure::Lost),
        out.join(", "),
    )
}

/// Two significant digits.
fn figure(cell: Cell) -> String {
    match cell.relative {
        infinite if infinite.is_infinite() => "∞".into(),
        great if great >= 9.95 => format!("{great:.0}"),
        relative if relative >= 0.095 => format!("{relative:.1}"),
        relative if relative >= 0.01 => format!("{relative:.2}"),
        _ => "<0.01".into(),
    }
}

fn in_json(table: &Table) -> Value {
    let situations = SITUATIONS.iter().enumerate().map(|(at, situation)| {
        let cells = table.rows.iter().zip(table.column(at)).map(|((algorithm, _), cell)| {
            json!({
                "algorithm": algorithm,
                "value": cell.figure.value,
                "stable": !cell.figure.unstable,
                "relative": Some(cell.relative).filter(|relative| relative.is_finite()),
                "mark": looks(cell.mark).3,
            })
        });
        json!({
            "scenario": situation.scenario,
            "situation": situation.what,
            "load": situation.load,
            "measure": match situation.measure {
                Measure::Time => "mean time in system in seconds; relative to the best",
                Measure::Lost => "part of the requests lost; relative to random",
            },
            "algorithms": cells.collect::<Vec<_>>(),
        })
    });
    situations.collect()
}

/// The generated part of "How to choose" in docs/algorithms.md.
#[cfg(test)]
pub fn document(table: &Table) -> String {
    let mut text = String::from("| servers and requests | near the best | avoid |\n|---|---|---|\n");
    let columns: Vec<Vec<Cell>> = (0..SITUATIONS.len()).map(|at| table.column(at)).collect();
    for (situation, column) in SITUATIONS.iter().zip(&columns) {
        let names = |mark| {
            let mut of: Vec<_> = table.rows.iter().zip(column).filter(|(_, cell)| cell.mark == mark).collect();
            of.sort_by(|(_, a), (_, b)| a.relative.total_cmp(&b.relative));
            let names: Vec<_> = of.iter().map(|((name, _), _)| format!("`{name}`")).collect();
            if names.is_empty() { "–".into() } else { names.join(", ") }
        };
        let _ = writeln!(text, "| {} | {} | {} |", situation.what, names(Mark::Good), names(Mark::Bad));
    }
    let worst = |row: usize| columns.iter().map(|column| column[row].mark).max();
    let everywhere = |most: Mark| {
        let rows = table.rows.iter().enumerate().filter(|(row, _)| worst(*row) <= Some(most));
        rows.map(|(_, (name, _))| format!("`{name}`")).collect::<Vec<_>>()
    };
    let (fair, poor) = (everywhere(Mark::Fair), everywhere(Mark::Poor));
    let only_poor: Vec<_> = poor.iter().filter(|name| !fair.contains(name)).cloned().collect();
    let list = |names: &[String]| if names.is_empty() { "none".into() } else { names.join(", ") };
    let _ = write!(
        text,
        "\nGood or fair in every situation: {}. Nowhere worse than poor: {}.\n\n",
        list(&fair),
        list(&only_poor)
    );
    let _ = write!(text, "{}\n\n| |", legend(|mark| looks(mark).2.to_string()).replace("random:", "`random`:"));
    for situation in &SITUATIONS {
        let _ = write!(text, " {} |", situation.heading);
    }
    let _ = write!(text, "\n|---|{}\n", "---|".repeat(SITUATIONS.len()));
    for (row, (name, _)) in table.rows.iter().enumerate() {
        let _ = write!(text, "| `{name}` |");
        for cell in columns.iter().map(|column| column[row]) {
            let _ = write!(text, " {} {} |", looks(cell.mark).2, figure(cell));
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_fit_the_width_and_colours_need_a_terminal() {
        let table = Table::ready().unwrap();
        for (width, blocks) in [(80, 3), (200, 1)] {
            let plain = text(&table, width, false);
            assert!(
                plain.lines().take_while(|line| !line.contains("balanza simulate")).all(|l| l.chars().count() <= width)
            );
            assert_eq!(plain.matches("\nround_robin ").count(), blocks, "{plain}");
            assert!(!plain.contains('\x1b') && plain.contains(" ++"), "{plain}");
            let coloured = text(&table, width, true);
            let codes = ["\x1b[31m", "\x1b[32m", "\x1b[33m", "\x1b[0m"];
            assert!(codes.iter().all(|code| coloured.contains(code)));
            let bare =
                [31, 32, 33, 35, 0].iter().fold(coloured, |text, code| text.replace(&format!("\x1b[{code}m"), ""));
            assert_eq!(bare, plain);
        }
    }

    #[test]
    fn figures_have_two_digits() {
        let of = |relative| {
            let figure = balanza_simulator::advice::Figure { value: 0.0, unstable: false };
            super::figure(Cell { figure, relative, mark: Mark::Good })
        };
        let cases = [(1.04, "1.0"), (9.96, "10"), (614.5, "614"), (0.58, "0.6"), (0.034, "0.03"), (0.002, "<0.01")];
        cases.into_iter().for_each(|(relative, expected)| assert_eq!(of(relative), expected));
        assert_eq!(of(f64::INFINITY), "∞");
    }

    #[test]
    fn json_has_every_cell() {
        let json = in_json(&Table::ready().unwrap());
        let hung = json.as_array().unwrap().iter().find(|situation| situation["scenario"] == "hung-server").unwrap();
        let random = hung["algorithms"].as_array().unwrap().iter().find(|cell| cell["algorithm"] == "random").unwrap();
        assert!(random["relative"] == 1.0 && random["mark"] == "fair" && random["value"].as_f64() > Some(0.0));
    }
}
