//! What happened to servers, and when.

use super::grid::{Align, Grid};
use super::tables::cells_of;
use super::words::NOTHING;
use crate::record::Deed;
use crate::summary::{Happenings, Summary};
use crate::units::count;

/// How to read the table.
pub(super) const NOTE: &str = "Events are planned and are no reason to exclude a run; the requests that fail meanwhile are counted \
                               as errors. Times count from the beginning of the measured time.";

/// The events of a farm under a load, over all its runs; empty if there are none.
pub(super) fn table(summary: &Summary, place: (&str, &str)) -> Grid {
    let mut together: Vec<Happenings> = Vec::new();
    for cell in cells_of(summary, place) {
        for (at, event) in cell.events.iter().enumerate() {
            let key = |one: &Happenings| (one.server.clone(), one.what, one.planned);
            let same = |known: &Happenings| key(known) == key(event);
            // Of the same things without a planned time, the first belongs to the first of another cell.
            let earlier = cell.events[..at].iter().filter(|event| same(event)).count();
            match together.iter_mut().filter(|known| same(known)).nth(earlier) {
                Some(known) => {
                    known.at.extend(&event.at);
                    known.missed += event.missed;
                }
                None => together.push(event.clone()),
            }
        }
    }
    let mut grid = Grid::default()
        .column("planned", Align::Right, 0)
        .column("server", Align::Left, 0)
        .column("event", Align::Left, 0)
        .column("happened", Align::Left, 0);
    for event in together {
        let planned = event.planned.map_or_else(|| NOTHING.to_owned(), seconds);
        grid.row(vec![planned.into(), event.server.as_str().into(), words(event.what).into(), happened(&event).into()]);
    }
    grid
}

fn happened(event: &Happenings) -> String {
    let ends = [f64::min as fn(f64, f64) -> f64, f64::max].map(|end| event.at.iter().copied().reduce(end));
    let mut words = Vec::new();
    if let [Some(first), Some(last)] = ends.map(|end| end.map(seconds)) {
        let runs = count(event.at.len() as u64, "run");
        words.push(if first == last { format!("{first} in {runs}") } else { format!("{first} to {last} in {runs}") });
    }
    if event.missed > 0 {
        words.push(format!("not before the end of {}", count(event.missed.into(), "run")));
    }
    words.join("; ")
}

fn seconds(time: f64) -> String {
    format!("{time:.2} s")
}

fn words(what: Deed) -> &'static str {
    match what {
        Deed::Stop => "stops gracefully",
        Deed::Kill => "is killed",
        Deed::Start => "listens again",
        Deed::Freeze => "is frozen",
        Deed::Thaw => "is thawed",
        Deed::Slow => "becomes slow",
        Deed::Fast => "is as fast as before",
        Deed::Fail => "answers 503",
        Deed::Work => "works again",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    #[test]
    fn events_of_all_cells_are_together() {
        let mut summary = sample::summary();
        assert!(table(&summary, ("two unequal", "250")).is_empty());
        let event = |server: &str, what, planned, at: &[f64], missed| Happenings {
            server: server.into(),
            what,
            planned,
            at: at.into(),
            missed,
        };
        for (cell, late) in
            summary.cells.iter_mut().filter(|cell| cell.cell.load == "250").zip([0.0, 0.02].into_iter().cycle())
        {
            cell.events = vec![
                event("fast", Deed::Kill, Some(2.0), &[2.0 + late, 2.001], 0),
                event("fast", Deed::Start, None, &[2.5 + late], 1),
            ];
        }
        insta::assert_snapshot!(table(&summary, ("two unequal", "250")).markdown());
    }
}
