//! The live picture: a table drawn over itself on a terminal, a line every two seconds elsewhere.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::time::{Duration, Instant};

use super::load::Counts;
use crate::target::Stats;

/// Mean times are over this long.
const WINDOW: Duration = Duration::from_secs(5);

/// Cells of the longest bar.
const BAR_WIDTH: usize = 30;

/// Draws the servers' counters.
pub(super) struct Screen {
    terminal: bool,
    speeds: Vec<f64>,
    start: Instant,
    /// Counters of the last [`WINDOW`], oldest first.
    history: VecDeque<(Instant, Vec<Stats>)>,
    lines_drawn: usize,
}

/// One server's row.
struct Row<'a> {
    name: &'a str,
    speed: f64,
    requests: u64,
    /// Of all answered requests, 0 to 1.
    share: f64,
    in_flight: u64,
    /// Over the window; none when nothing was answered in it.
    mean_ms: Option<f64>,
}

impl Screen {
    /// A screen for servers of these speeds.
    pub(super) fn new(terminal: bool, speeds: impl Iterator<Item = f64>) -> Self {
        Self { terminal, speeds: speeds.collect(), start: Instant::now(), history: VecDeque::new(), lines_drawn: 0 }
    }

    /// How often to draw.
    pub(super) fn interval(&self) -> Duration {
        Duration::from_millis(if self.terminal { 250 } else { 2000 })
    }

    /// Draws the counters as they are now, and `trouble` below them.
    pub(super) fn draw(
        &mut self,
        out: &mut dyn Write,
        stats: &[Stats],
        load: Option<Counts>,
        trouble: Option<&str>,
    ) -> io::Result<()> {
        self.draw_at(Instant::now(), out, stats, load, trouble)
    }

    fn draw_at(
        &mut self,
        now: Instant,
        out: &mut dyn Write,
        stats: &[Stats],
        load: Option<Counts>,
        trouble: Option<&str>,
    ) -> io::Result<()> {
        self.history.push_back((now, stats.to_vec()));
        while self.history.front().is_some_and(|(then, _)| now.duration_since(*then) > WINDOW) {
            self.history.pop_front();
        }
        let before = self.history.front().map_or(stats, |(_, stats)| stats.as_slice());
        let rows = rows(stats, before, &self.speeds);
        let seconds = now.duration_since(self.start).as_secs_f64();
        if self.terminal {
            let mut lines = table(&rows, load, seconds);
            lines.extend(trouble.map(|trouble| format!("  {trouble}")));
            let mut frame = String::new();
            if self.lines_drawn > 0 {
                frame += &format!("\x1b[{}A", self.lines_drawn);
            }
            // Without wrapping, a narrow window cuts the lines and the cursor still finds its way back.
            frame += "\x1b[?7l";
            for line in &lines {
                frame += &format!("\r{line}\x1b[K\n");
            }
            frame += "\x1b[?7h";
            self.lines_drawn = lines.len();
            out.write_all(frame.as_bytes())?;
        } else {
            let trouble = trouble.map(|trouble| format!(" | {trouble}")).unwrap_or_default();
            writeln!(out, "{}{trouble}", line(&rows, load, seconds))?;
        }
        out.flush()
    }
}

fn rows<'a>(stats: &'a [Stats], before: &[Stats], speeds: &[f64]) -> Vec<Row<'a>> {
    let total: u64 = stats.iter().map(|server| server.requests).sum();
    let row = |((now, before), speed): ((&'a Stats, &Stats), &f64)| {
        let answered = now.requests - before.requests;
        Row {
            name: &now.name,
            speed: *speed,
            requests: now.requests,
            share: if total == 0 { 0.0 } else { now.requests as f64 / total as f64 },
            in_flight: now.in_flight + now.queued,
            mean_ms: (answered > 0).then(|| (now.time_us - before.time_us) as f64 / answered as f64 / 1e3),
        }
    };
    stats.iter().zip(before).zip(speeds).map(row).collect()
}

fn table(rows: &[Row], load: Option<Counts>, seconds: f64) -> Vec<String> {
    let mut lines = vec![format!(
        "  {:<6} {:>5} {:>9} {:>7}  {:<BAR_WIDTH$} {:>9} {:>10}",
        "server", "speed", "requests", "share", "", "in flight", "mean time"
    )];
    for row in rows {
        lines.push(format!(
            "  {:<6} {:>5} {:>9} {:>6.1}%  {:<BAR_WIDTH$} {:>9} {:>10}",
            row.name,
            row.speed,
            row.requests,
            row.share * 100.0,
            bar(row.share),
            row.in_flight,
            mean(row)
        ));
    }
    lines.push(format!("  {seconds:.0} s, {}", clients(load)));
    lines
}

fn line(rows: &[Row], load: Option<Counts>, seconds: f64) -> String {
    let server = |row: &Row| {
        let share = row.share * 100.0;
        format!("{} {} ({share:.1}%), {} in flight, {}", row.name, row.requests, row.in_flight, mean(row))
    };
    let servers: Vec<String> = rows.iter().map(server).collect();
    format!("{seconds:.0} s | {} | {}", servers.join(" | "), clients(load))
}

fn clients(load: Option<Counts>) -> String {
    match load {
        Some(counts) => format!("load: {} answered, {} failed", counts.answered, counts.failed),
        None => "no load of its own: send requests".into(),
    }
}

fn mean(row: &Row) -> String {
    row.mean_ms.map_or("-".into(), |mean| format!("{mean:.0} ms"))
}

/// A bar in eighths of a cell.
fn bar(share: f64) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = (share.clamp(0.0, 1.0) * (BAR_WIDTH * 8) as f64).round() as usize;
    "█".repeat(eighths / 8) + EIGHTHS[eighths % 8]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stats(requests: [u64; 3], in_flight: u64) -> Vec<Stats> {
        let server = |(index, requests): (usize, u64)| Stats {
            name: format!("s{}", index + 1),
            requests,
            in_flight,
            queued: 1,
            time_us: requests * 20_000 * (index as u64 + 1),
            ..Stats::default()
        };
        requests.into_iter().enumerate().map(server).collect()
    }

    fn screen(terminal: bool) -> Screen {
        Screen::new(terminal, [1.0, 0.5, 0.25].into_iter())
    }

    #[test]
    fn a_terminal_sees_one_table_drawn_over_itself() {
        let mut screen = screen(true);
        let mut out = Vec::new();
        let start = screen.start;
        screen.draw_at(start, &mut out, &stats([0, 0, 0], 0), None, None).unwrap();
        out.push(b'~');
        let counts = Counts { answered: 20, failed: 1 };
        screen.draw_at(start + Duration::from_secs(2), &mut out, &stats([12, 6, 2], 3), Some(counts), None).unwrap();
        let text = String::from_utf8(out).unwrap().replace('\x1b', "ESC");
        insta::assert_snapshot!(text);
        let drawn = text.split_once('~').unwrap().0.matches('\n').count();
        assert!(text.contains(&format!("~ESC[{drawn}A")), "the cursor returns to the first line");
    }

    #[test]
    fn elsewhere_there_is_a_line_each_time() {
        let mut screen = screen(false);
        let mut out = Vec::new();
        let start = screen.start;
        screen.draw_at(start, &mut out, &stats([0, 0, 0], 0), None, None).unwrap();
        let (counts, trouble) = (Some(Counts::default()), Some("balancer's log: 1 alert; last: x"));
        screen.draw_at(start + Duration::from_secs(2), &mut out, &stats([12, 6, 2], 3), counts, trouble).unwrap();
        insta::assert_snapshot!(String::from_utf8(out).unwrap());
    }

    #[test]
    fn the_mean_time_forgets_what_is_older_than_the_window() {
        let mut screen = screen(false);
        let start = screen.start;
        let mut slow = stats([100, 0, 0], 0);
        slow[0].time_us = 100 * 1_000_000;
        let mut fast = slow.clone();
        (fast[0].requests, fast[0].time_us) = (110, slow[0].time_us + 10 * 5_000);
        let mut out = Vec::new();
        screen.draw_at(start, &mut out, &stats([0, 0, 0], 0), None, None).unwrap();
        screen.draw_at(start + Duration::from_secs(4), &mut out, &slow, None, None).unwrap();
        screen.draw_at(start + Duration::from_secs(8), &mut out, &fast, None, None).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.lines().last().unwrap().contains("s1 110 (100.0%), 1 in flight, 5 ms"), "{text}");
    }

    #[test]
    fn bars_are_as_long_as_the_share() {
        assert_eq!(bar(0.0), "");
        assert_eq!(bar(1.0).chars().count(), BAR_WIDTH);
        assert_eq!(bar(0.5), "█".repeat(15));
        assert_eq!(bar(1.0 / 240.0), "▏");
    }
}
