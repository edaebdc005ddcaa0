//! The answer as a page with pictures.

use balanza_plot::{Axis, Bars, Cell, Chart, Page, Series, Table, percent, seconds};

use super::words;
use crate::runs::Outcome;
use crate::study::Study;
use crate::verdict::{Goal, mean_and_half};

/// Candidates in the picture of tails.
const TAILS: usize = 4;

/// One HTML file with everything in it.
pub fn html(study: &Study, diff: &str) -> String {
    let mut page = Page::new(&words::headline(study)).paragraph(&words::reason(study)).paragraph(&words::log(study));
    if !diff.is_empty() {
        page = page.heading("The change").preformatted(diff);
    }
    page = page
        .heading("Candidates")
        .figure(&bars(study), "Each candidate on the fitted servers, with the same requests; bars are 95 % intervals over the runs.")
        .table(&candidates(study))
        .note(
            "Response times are from the arrival at the balancer to the end of the server's answer, retries included; the way \
             to the client is not in them.",
        )
        .figure(&tails(study), "The part of the requests that takes longer, for the current algorithm and the best candidates.")
        .heading("What would change this")
        .list(study.what_ifs.iter().map(|what_if| words::what_if(study, what_if)));
    page = page
        .heading("The servers, as the log shows them")
        .table(&servers(study))
        .paragraph(words::order(study))
        .note(
            "Speed is relative to the mean of the servers; servers whose speeds cannot be told apart have the same. \"At a \
             time\" is how many requests a server works on at full speed, and follows from how response times depend on the \
             requests that were there. Capacity is that times speed over mean work.",
        );
    if study.by_time.len() > 1 {
        let spans = study.by_time.len() as f64;
        let points =
            study.by_time.iter().enumerate().map(|(i, work)| ((i as f64 + 0.5) / spans * study.observed.span, *work));
        let chart = Chart::new("Work of a request by time")
            .x(Axis::linear("seconds since the beginning of the log"))
            .y(Axis::linear("relative to the mean").from(0.0))
            .series(Series::line("mean work", points).markers());
        page = page.figure(&chart.svg(), "Candidates get works of the same time of the log.");
    }
    page = page
        .heading("How far the model is off")
        .paragraph(&words::check(study))
        .paragraph(&words::again(study))
        .figure(
            &model(study),
            "Quantiles of the response times in the last 30 % of the log, and as the model predicts them.",
        );
    if !study.notes.is_empty() {
        page = page.heading("Notes").list(&study.notes);
    }
    page.heading("Method")
        .paragraph(
            "The log is not replayed: response times that were observed under one algorithm are not those under another. From \
             the response times and the requests in flight, the model finds what each server can do and how much work each \
             request was; each candidate is then simulated with the arrivals as they were and work drawn from that of \
             requests of the same class and time. All candidates get the same requests and are compared in pairs.",
        )
        .html()
}

fn label(study: &Study, outcome: &Outcome) -> String {
    let now = std::ptr::eq(outcome, &raw const study.outcomes[0]);
    format!("{}{}", outcome.candidate.label(), if now { " (now)" } else { "" })
}

fn sorted(study: &Study) -> Vec<&Outcome> {
    let mut outcomes: Vec<&Outcome> = study.outcomes.iter().collect();
    outcomes.sort_by(|a, b| study.goal.of(a).total_cmp(&study.goal.of(b)));
    outcomes
}

fn bars(study: &Study) -> String {
    let goal = study.goal;
    let axis = if goal == Goal::Errors {
        Axis::linear("failed requests").percent()
    } else {
        Axis::linear(goal.name()).seconds()
    };
    let bars = Bars::new(goal.name(), axis.from(0.0));
    let bar = |bars: Bars, outcome: &Outcome| {
        let each: Vec<f64> = outcome
            .each
            .iter()
            .map(|(mean, p99, failed)| match goal {
                Goal::Mean => *mean,
                Goal::Errors => *failed,
                Goal::P99 | Goal::Servers => *p99,
            })
            .collect();
        let (mean, half) = mean_and_half(&each);
        bars.bar(&label(study, outcome), mean, half.is_finite().then_some(((mean - half).max(0.0), mean + half)))
    };
    sorted(study).into_iter().fold(bars, bar).svg()
}

fn candidates(study: &Study) -> Table {
    let heading = ["mean", "p50", "p90", "p99", "failed", "utilisation"];
    let mut table = Table::new(std::iter::once(Cell::text("candidate")).chain(heading.map(Cell::number)));
    for outcome in sorted(study) {
        table.row([
            Cell::text(label(study, outcome)),
            Cell::number(seconds(outcome.mean)),
            Cell::number(seconds(outcome.p50)),
            Cell::number(seconds(outcome.p90)),
            Cell::number(seconds(outcome.p99)),
            Cell::number(percent(outcome.failed)),
            Cell::number(percent(outcome.utilization)),
        ]);
    }
    table
}

fn tails(study: &Study) -> String {
    let mut shown = sorted(study);
    shown.truncate(TAILS);
    if !shown.iter().any(|outcome| std::ptr::eq(*outcome, &raw const study.outcomes[0])) {
        shown.insert(0, &study.outcomes[0]);
    }
    let chart = Chart::new("Tails").x(Axis::log("response time").seconds()).y(Axis::log("part that takes longer"));
    let series = |chart: Chart, outcome: &Outcome| {
        let total: u64 = outcome.histogram.iter().map(|(_, count)| count).sum();
        let mut left = total;
        let points = outcome.histogram.iter().map(|(to, count)| {
            left -= count;
            (*to, left as f64 / total.max(1) as f64)
        });
        let points: Vec<(f64, f64)> = points.filter(|(_, part)| *part > 1e-4).collect();
        chart.series(Series::line(&label(study, outcome), points))
    };
    shown.into_iter().fold(chart, series).svg()
}

fn model(study: &Study) -> String {
    let points =
        |of: fn(&(f64, f64, f64)) -> f64| study.check.curve.iter().map(move |point| (of(point), 1.0 - point.0));
    Chart::new("Model and log")
        .x(Axis::log("response time").seconds())
        .y(Axis::log("part that takes longer"))
        .series(Series::line("log", points(|point| point.2)))
        .series(Series::line("model", points(|point| point.1)).reference())
        .svg()
}

fn servers(study: &Study) -> Table {
    let heading = ["requests", "speed", "at a time", "capacity", "peak", "most in flight", "failed"];
    let mut table = Table::new(std::iter::once(Cell::text("server")).chain(heading.map(Cell::number)));
    for server in &study.servers {
        let error = if server.speed_error.is_finite() {
            format!(" ± {:.2}", server.speed * server.speed_error)
        } else {
            String::new()
        };
        table.row([
            Cell::text(&server.name),
            Cell::number(server.attempts.to_string()),
            Cell::number(format!("{:.2}{error}", server.speed)),
            Cell::number(words::parallel(server)),
            Cell::number(words::capacity(server)),
            Cell::number(format!("{:.0}/s", server.peak)),
            Cell::number(server.in_flight_max.to_string()),
            Cell::number(percent(server.failed)),
        ]);
    }
    table
}
