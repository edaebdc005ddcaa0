//! The live picture: tables drawn over themselves on a terminal, a line for each farm every two seconds elsewhere.

use std::io::{self, Write};
use std::time::Duration;

use super::keys::Controls;
use super::load::Latencies;
use super::server::Condition;
use super::view::{Row, View};
use crate::text::wrap;

/// Cells of the longest bar, and of the shortest that is worth drawing.
const BAR_MAX: usize = 30;
const BAR_MIN: usize = 8;

/// Of the first column, the server's name.
const NAME_WIDTH: usize = 8;

/// A column of a table behind the server's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    State,
    Median,
    InFlight,
    Share,
    Rate,
    P99,
    Errors,
}

/// From left to right, with their widths.
const COLUMNS: [(Column, &str, usize); 7] = [
    (Column::State, "speed", 9),
    (Column::Rate, "req/s", 7),
    (Column::Share, "share", 8),
    (Column::InFlight, "in flight", 11),
    (Column::Median, "p50", 9),
    (Column::P99, "p99", 9),
    (Column::Errors, "errors", 8),
];

/// Columns that a narrow terminal leaves out, the first one first.
const DISPENSABLE: [Column; 4] = [Column::State, Column::Median, Column::InFlight, Column::Share];

/// How a text looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    Plain,
    Strong,
    Dim,
    Good,
    Bad,
    Server(usize),
}

impl Look {
    /// The parameters of the escape sequence that selects it.
    fn code(self) -> &'static str {
        match self {
            Look::Plain => "",
            Look::Strong => "1",
            Look::Dim => "2",
            Look::Good => "32",
            Look::Bad => "1;31",
            Look::Server(index) => ["32", "34", "33", "35", "36"][index % 5],
        }
    }
}

/// What a terminal that is not high enough leaves out: notes first, then servers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Rank {
    Note,
    Server,
    #[default]
    Essential,
}

/// A line of the picture.
#[derive(Clone, Debug, Default)]
struct Line {
    parts: Vec<(Look, String)>,
    rank: Rank,
}

impl Line {
    fn new(look: Look, text: impl Into<String>) -> Self {
        Self::default().and(look, text)
    }

    fn and(mut self, look: Look, text: impl Into<String>) -> Self {
        self.parts.push((look, text.into()));
        self
    }

    fn ranked(mut self, rank: Rank) -> Self {
        self.rank = rank;
        self
    }

    fn text(&self, colours: bool) -> String {
        let part = |(look, text): &(Look, String)| match (colours, look.code()) {
            (true, code) if !code.is_empty() => format!("\x1b[{code}m{text}\x1b[0m"),
            _ => text.clone(),
        };
        self.parts.iter().map(part).collect()
    }
}

/// Draws farms.
pub(super) struct Screen {
    terminal: bool,
    colours: bool,
    lines_drawn: usize,
}

/// What is drawn beside the farms.
pub(super) struct Frame<'a> {
    pub(super) views: &'a [View],
    pub(super) controls: &'a Controls,
    /// Whether keys are heard.
    pub(super) keys: bool,
    pub(super) elapsed: Duration,
    /// Columns and lines of the terminal.
    pub(super) size: (usize, usize),
}

impl Screen {
    pub(super) fn new(terminal: bool, colours: bool) -> Self {
        Self { terminal, colours: terminal && colours, lines_drawn: 0 }
    }

    /// How often to draw.
    pub(super) fn interval(&self) -> Duration {
        Duration::from_millis(if self.terminal { 250 } else { 2000 })
    }

    pub(super) fn draw(&mut self, out: &mut dyn Write, frame: &Frame) -> io::Result<()> {
        if self.terminal {
            self.draw_over(out, frame)?
        } else {
            append(out, frame)?
        }
        out.flush()
    }

    fn draw_over(&mut self, out: &mut dyn Write, frame: &Frame) -> io::Result<()> {
        let lines = fit(picture(frame), frame.size.1.saturating_sub(1).max(4));
        let mut text = String::new();
        if self.lines_drawn > 0 {
            text += &format!("\x1b[{}A", self.lines_drawn);
        }
        // Without wrapping, a narrow window cuts the lines and the cursor still finds its way back.
        text += "\x1b[?7l";
        for line in &lines {
            text += &format!("\r{}\x1b[K\n", line.text(self.colours));
        }
        text += "\x1b[J\x1b[?7h";
        self.lines_drawn = lines.len();
        out.write_all(text.as_bytes())
    }
}

/// Leaves out lines of low rank, from the last one on, until the rest fits.
fn fit(mut lines: Vec<Line>, height: usize) -> Vec<Line> {
    for rank in [Rank::Note, Rank::Server] {
        while lines.len() > height
            && let Some(last) = lines.iter().rposition(|line| line.rank == rank)
        {
            lines.remove(last);
        }
    }
    lines.truncate(height);
    lines
}

fn picture(frame: &Frame) -> Vec<Line> {
    let (width, _) = frame.size;
    let mut lines = Vec::new();
    for (index, view) in frame.views.iter().enumerate() {
        if index > 0 {
            lines.push(Line::new(Look::Plain, "").ranked(Rank::Note));
        }
        let focused = frame.views.len() > 1 && frame.controls.farm == index;
        lines.extend(farm(view, frame, focused, width));
    }
    let rate = frame.views.first().map_or(0, |view| view.rate);
    let load = if rate > 0 { format!("load {rate} requests/s") } else { "no load of its own: send requests".into() };
    lines.push(Line::new(Look::Dim, format!("  {} s, {load}", frame.elapsed.as_secs())));
    if let Some(prompt) = &frame.controls.prompt {
        lines.push(
            Line::new(Look::Strong, format!("  algorithm: {prompt}_"))
                .and(Look::Dim, "   Enter takes it, Esc does not; `balanza algorithms` lists them"),
        );
    } else if frame.keys {
        lines.push(Line::new(Look::Dim, "  a algorithm  \u{2190} \u{2192} next one  v versus  + - load  q quit"));
        lines.push(Line::new(Look::Dim, "  \u{2191} \u{2193} server: s slow  t stop  k kill  r revive"));
    }
    lines
}

fn farm(view: &View, frame: &Frame, focused: bool, width: usize) -> Vec<Line> {
    let total = &view.total;
    let failed = if view.counts.failed > 0 { Look::Bad } else { Look::Good };
    let mark = if focused { "\u{25b6} " } else { "  " };
    let sums = format!("   {:.0} req/s  p50 {}  p99 {}  ", total.rate, time(total.p50), time(total.p99));
    let mut lines = vec![
        Line::new(Look::Strong, format!("{mark}{}", view.algorithm))
            .and(Look::Plain, sums)
            .and(failed, format!("{} failed", view.counts.failed)),
    ];
    let columns = columns(width);
    let bar = bar_width(&columns, width);
    lines.push(Line::new(Look::Dim, heading(&columns, bar)));
    for (index, row) in view.rows.iter().enumerate() {
        let chosen = frame.keys && frame.controls.server == index;
        let rank = if chosen { Rank::Essential } else { Rank::Server };
        lines.push(server(row, index, chosen, &columns, bar).ranked(rank));
    }
    let note = |line: Line| line.ranked(Rank::Note);
    let notes = |look, text: &str| -> Vec<Line> {
        wrap(text, width.saturating_sub(3)).into_iter().map(|text| Line::new(look, format!("  {text}"))).collect()
    };
    lines.extend(view.overload.iter().flat_map(|text| notes(Look::Bad, text)));
    lines.extend(notes(Look::Plain, &view.why).into_iter().map(note));
    if !view.pick.is_empty() {
        let name = view.rows.get(frame.controls.server).map_or("", |row| &row.name);
        let text = format!("last choice of {name}: {}", view.pick);
        lines.extend(notes(Look::Dim, &text).into_iter().map(note));
    }
    lines.extend(view.tls.iter().flat_map(|text| notes(Look::Dim, text)).map(note));
    lines.extend(view.trouble.iter().flat_map(|text| notes(Look::Bad, text)).map(note));
    lines.extend(view.news.iter().flat_map(|text| notes(Look::Good, &format!("> {text}"))).map(note));
    lines
}

/// The columns that fit a terminal of this width.
fn columns(width: usize) -> Vec<(Column, &'static str, usize)> {
    let mut columns = COLUMNS.to_vec();
    for dispensable in DISPENSABLE {
        if used(&columns) > width {
            columns.retain(|(column, ..)| *column != dispensable);
        }
    }
    columns
}

fn used(columns: &[(Column, &str, usize)]) -> usize {
    NAME_WIDTH + columns.iter().map(|(_, _, width)| width).sum::<usize>()
}

/// Cells of the longest bar, 0 where there is no room for one.
fn bar_width(columns: &[(Column, &str, usize)], width: usize) -> usize {
    let room = width.saturating_sub(used(columns) + 2).min(BAR_MAX);
    if room < BAR_MIN || !columns.iter().any(|(column, ..)| *column == Column::Share) { 0 } else { room }
}

fn heading(columns: &[(Column, &str, usize)], bar: usize) -> String {
    let mut text = format!("{:<NAME_WIDTH$}", "  server");
    for (column, title, width) in columns {
        text += &format!("{title:>width$}");
        if *column == Column::Share && bar > 0 {
            text += &" ".repeat(bar + 2);
        }
    }
    text
}

fn server(row: &Row, index: usize, chosen: bool, columns: &[(Column, &str, usize)], bar: usize) -> Line {
    let mark = if chosen { "\u{203a} " } else { "  " };
    let name = format!("{mark}{}", row.name);
    let mut line = Line::new(Look::Strong, format!("{name:<NAME_WIDTH$}"));
    for (column, _, width) in columns {
        let (look, text) = cell(row, *column);
        line = line.and(look, format!("{text:>width$}"));
        if *column == Column::Share && bar > 0 {
            let cells = self::bar(row.share, bar);
            let rest = bar.saturating_sub(cells.chars().count());
            line = line.and(Look::Server(index), format!("  {cells}")).and(Look::Plain, " ".repeat(rest));
        }
    }
    line
}

fn cell(row: &Row, column: Column) -> (Look, String) {
    let well = matches!(row.condition, Condition::Well);
    match column {
        Column::State => match row.condition {
            Condition::Well => (Look::Plain, speed(row.speed)),
            Condition::Slow => (Look::Bad, format!("slow {}", speed(row.speed))),
            Condition::Stopped => (Look::Bad, "stopped".into()),
            Condition::Killed => (Look::Bad, "killed".into()),
        },
        Column::Rate => (Look::Plain, format!("{:.0}", row.latencies.rate)),
        Column::Share => (Look::Plain, format!("{:.1}%", row.share * 100.0)),
        Column::InFlight => (if well { Look::Plain } else { Look::Bad }, row.in_flight.to_string()),
        Column::Median => (Look::Plain, time(row.latencies.p50)),
        Column::P99 => {
            let late = row.latencies.p99.is_some_and(|p99| p99 >= Duration::from_secs(1));
            (if late { Look::Bad } else { Look::Plain }, time(row.latencies.p99))
        }
        Column::Errors => (if row.errors > 0 { Look::Bad } else { Look::Plain }, row.errors.to_string()),
    }
}

/// A speed as a part of that of a fast server.
fn speed(speed: f64) -> String {
    if speed < 1.0 { format!("1/{:.0}", 1.0 / speed) } else { format!("{speed:.0}") }
}

fn time(latency: Option<Duration>) -> String {
    latency.map_or("-".into(), |latency| format!("{:.0} ms", latency.as_secs_f64() * 1e3))
}

/// A bar in eighths of a cell.
fn bar(share: f64, width: usize) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = (share.clamp(0.0, 1.0) * (width * 8) as f64).round() as usize;
    "█".repeat(eighths / 8) + EIGHTHS[eighths % 8]
}

/// A line for each farm.
fn append(out: &mut dyn Write, frame: &Frame) -> io::Result<()> {
    for view in frame.views {
        let server = |row: &Row| {
            let Latencies { rate, p50, p99 } = row.latencies;
            let state = match row.condition {
                Condition::Well => "",
                Condition::Slow => " (slow)",
                Condition::Stopped => " (stopped)",
                Condition::Killed => " (killed)",
            };
            format!(
                "{}{state} {} requests, {rate:.0}/s, {:.1}%, {} in flight, p50 {}, p99 {}, {} errors",
                row.name,
                row.requests,
                row.share * 100.0,
                row.in_flight,
                time(p50),
                time(p99),
                row.errors
            )
        };
        let mut parts = vec![format!("{} s", frame.elapsed.as_secs()), view.algorithm.clone()];
        parts.extend(view.rows.iter().map(server));
        parts.push(match view.rate {
            0 => "no load of its own: send requests".into(),
            rate => format!("load: {rate}/s, {} answered, {} failed", view.counts.answered, view.counts.failed),
        });
        parts.extend(view.tls.clone());
        parts.extend(view.overload.clone());
        parts.extend(view.news.last().cloned());
        parts.extend(view.trouble.clone());
        writeln!(out, "{}", parts.join(" | "))?;
    }
    Ok(())
}

#[cfg(test)]
#[path = "screen_tests.rs"]
mod tests;
