//! The answer for a terminal.

use std::fmt::Write as _;

use balanza_plot::{columns, percent, seconds};

use super::words;
use crate::study::Study;

/// Candidates that are listed.
const LISTED: usize = 8;

/// The rows as columns, a little to the right.
fn table(rows: &[Vec<String>]) -> String {
    columns(rows, 1).lines().map(|line| format!("  {line}\n")).collect()
}

fn strings<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(String::from).to_vec()
}

/// The whole answer as text.
pub fn text(study: &Study, diff: &str) -> String {
    let mut text = format!("{}\n\n", words::log(study));
    let mut rows = vec![strings(["server", "requests", "speed", "at a time", "capacity", "peak", "failed"])];
    for server in &study.servers {
        rows.push(vec![
            server.name.clone(),
            server.attempts.to_string(),
            format!("{:.2}", server.speed),
            words::parallel(server),
            words::capacity(server),
            format!("{:.0}/s", server.peak),
            percent(server.failed),
        ]);
    }
    text += &table(&rows);
    let _ = write!(text, "\n{}\n{}\n{}\n\n", words::order(study), words::check(study), words::again(study));

    let goal = study.goal;
    let mut order: Vec<usize> = (0..study.outcomes.len()).collect();
    order.sort_by(|a, b| goal.of(&study.outcomes[*a]).total_cmp(&goal.of(&study.outcomes[*b])));
    let chosen = words::chosen(study);
    let shown: Vec<usize> = order
        .iter()
        .enumerate()
        .filter(|(place, index)| *place < LISTED || [0, chosen].contains(*index))
        .map(|(_, i)| *i)
        .collect();
    let mut rows = vec![strings(["candidate", "mean", "p50", "p99", "failed"])];
    for index in &shown {
        let outcome = &study.outcomes[*index];
        let mark = if *index == 0 { " (now)" } else { "" };
        rows.push(vec![
            format!("{}{mark}", outcome.candidate.label()),
            seconds(outcome.mean),
            seconds(outcome.p50),
            seconds(outcome.p99),
            percent(outcome.failed),
        ]);
    }
    text += &table(&rows);
    let left_out = study.outcomes.len() - shown.len();
    if left_out > 0 {
        let _ = writeln!(text, "  and {left_out} more");
    }
    let _ = write!(text, "\n{}\n{}\n", words::headline(study), words::reason(study));
    if !diff.is_empty() {
        let _ = write!(text, "\n{diff}");
    }
    text += "\nWhat would change this:\n";
    for what_if in &study.what_ifs {
        let _ = writeln!(text, "- {}", words::what_if(study, what_if));
    }
    if !study.notes.is_empty() {
        text += "\nNotes:\n";
        for note in &study.notes {
            let _ = writeln!(text, "- {note}");
        }
    }
    text
}
