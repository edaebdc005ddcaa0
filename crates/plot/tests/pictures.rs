//! What holds for every picture, whatever the numbers; and how some look, as snapshots.

use std::ops::Range;

use balanza_plot::{Axis, Bars, Cell, Chart, Heat, Page, Series, Table};
use proptest::prelude::*;

/// All numbers in attributes of drawn elements, as (x, y) where they come in pairs.
fn path_points(svg: &str) -> Vec<(f64, f64)> {
    let mut points = Vec::new();
    for data in attributes(svg, "d") {
        for corner in data.split(['M', 'L', 'Z']).filter(|corner| !corner.is_empty()) {
            let (x, y) = corner.split_once(' ').expect("x and y");
            points.push((x.parse().expect("a number"), y.parse().expect("a number")));
        }
    }
    points
}

fn attributes<'a>(svg: &'a str, name: &str) -> impl Iterator<Item = &'a str> {
    let mark = format!(" {name}=\"");
    let starts: Vec<usize> = svg.match_indices(&mark).map(|(at, mark)| at + mark.len()).collect();
    starts.into_iter().map(move |start| &svg[start..start + svg[start..].find('"').expect("a closing quote")])
}

fn numbers(svg: &str, name: &str) -> Vec<f64> {
    attributes(svg, name).map(|value| value.parse().expect("a number")).collect()
}

fn data(svg: &str) -> &str {
    let start = svg.find("<g class=\"data\">").expect("data");
    &svg[start..start + svg[start..].find("</g>").expect("an end")]
}

/// The rectangle that the data have to stay in: left, top, right, bottom.
fn frame(svg: &str) -> (f64, f64, f64, f64) {
    let start = svg.rfind("<rect class=\"frame\"").expect("a frame");
    let frame = &svg[start..start + svg[start..].find('>').expect("an end") + 1];
    let one = |name| numbers(frame, name)[0];
    (one("x"), one("y"), one("x") + one("width"), one("y") + one("height"))
}

fn check(svg: &str, (width, height): (f64, f64)) {
    assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    let (left, top, right, bottom) = frame(svg);
    let inside = |x: f64, y: f64, slack: f64| {
        (left - slack..=right + slack).contains(&x) && (top - slack..=bottom + slack).contains(&y)
    };
    let drawn = data(svg);
    for (x, y) in path_points(drawn) {
        assert!(inside(x, y, 0.2), "({x}, {y}) is outside {:?}: {svg}", frame(svg));
    }
    for (x, y) in numbers(drawn, "cx").into_iter().zip(numbers(drawn, "cy")) {
        assert!(inside(x, y, 0.2), "({x}, {y}) is outside: {svg}");
    }
    for (name, size) in [("x", width), ("y", height), ("cx", width), ("cy", height)] {
        for value in numbers(svg, name) {
            assert!((0.0..=size).contains(&value), "{name}={value} is off the picture: {svg}");
        }
    }
}

fn size(svg: &str) -> (f64, f64) {
    let view = attributes(svg, "viewBox").next().expect("a size");
    let numbers: Vec<f64> = view.split(' ').map(|number| number.parse().expect("a number")).collect();
    (numbers[2], numbers[3])
}

/// Numbers as simulations and bugs make them.
fn value() -> impl Strategy<Value = f64> {
    prop_oneof![
        6 => -1e3..1e3f64,
        3 => 1e-6..1e6f64,
        1 => any::<f64>(),
        1 => prop::sample::select(vec![0.0, -0.0, 1.0, f64::NAN, f64::INFINITY, f64::MIN_POSITIVE, f64::MAX, -f64::MAX, 5e-324]),
    ]
}

fn axis() -> impl Strategy<Value = Axis> {
    (any::<bool>(), 0..3, prop::option::of(value()), prop::option::of(value()), "[a-h ]{0,60}").prop_map(
        |(log, format, low, high, label)| {
            let axis = if log { Axis::log(&label) } else { Axis::linear(&label) };
            let axis = match format {
                0 => axis,
                1 => axis.seconds(),
                _ => axis.percent(),
            };
            let axis = if let Some(low) = low { axis.from(low) } else { axis };
            if let Some(high) = high { axis.to(high) } else { axis }
        },
    )
}

fn series() -> impl Strategy<Value = Series> {
    let pairs = || prop::collection::vec((value(), value()), 0..80);
    (0..4, pairs(), pairs(), any::<[bool; 4]>(), "[a-hα-ω<&]{0,20}").prop_map(
        |(shape, points, intervals, with, name)| {
            let series = match shape {
                0 => Series::line(&name, points),
                1 => Series::step(&name, points),
                2 => Series::points(&name, points),
                _ => Series::histogram(&name, points.into_iter().zip(&intervals).map(|((a, b), c)| (a, b, c.0))),
            };
            let series = if with[0] { series.band(intervals.clone()) } else { series };
            let series = if with[1] { series.whiskers(intervals) } else { series };
            let series = if with[2] { series.markers() } else { series };
            if with[3] { series.reference() } else { series }
        },
    )
}

fn strips(count: Range<usize>, length: Range<usize>) -> impl Strategy<Value = Vec<(String, Vec<f64>)>> {
    prop::collection::vec(("[a-h_]{0,40}", prop::collection::vec(value(), length)), count)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn charts_stay_in_their_frame(
        x in axis(), y in axis(), all in prop::collection::vec(series(), 0..6),
        rule in value(), width in 100.0..900.0f64, height in 0.0..600.0f64,
    ) {
        let chart = Chart::new("title").x(x).y(y).size(width, height).rule(rule, "limit");
        let svg = all.into_iter().fold(chart, Chart::series).svg();
        check(&svg, size(&svg));
    }

    #[test]
    fn bars_stay_in_their_frame(
        axis in axis(), dots in any::<bool>(),
        bars in prop::collection::vec(("[a-h_]{0,40}", value(), prop::option::of((value(), value()))), 0..20),
    ) {
        let chart = Bars::new("title", axis);
        let chart = if dots { chart.dots() } else { chart };
        let svg = bars.iter().fold(chart, |chart, (name, value, range)| chart.bar(name, *value, *range)).svg();
        check(&svg, size(&svg));
    }

    #[test]
    fn stacked_bars_stay_in_their_frame_and_do_not_overlap(
        axis in axis(), rows in prop::collection::vec(prop::collection::vec(("[a-h_]{0,40}", value()), 0..9), 0..9),
    ) {
        let bars = rows.iter().fold(Bars::new("title", axis).stacked(), |bars, row| {
            bars.group("row", row.iter().map(|(name, value)| (name.as_str(), *value, None)))
        });
        let svg = bars.svg();
        check(&svg, size(&svg));

        let drawn = data(&svg).split_inclusive('\n').filter(|line| line.contains("\"bar ")).collect::<String>();
        let drawn = drawn.as_str();
        let rects: Vec<_> = numbers(drawn, "x").into_iter().zip(numbers(drawn, "y")).zip(numbers(drawn, "width")).collect();
        for pair in rects.windows(2) {
            let ((x, y), width) = pair[0];
            prop_assert!(pair[1].0.1 > y || pair[1].0.0 >= x + width - 0.2, "{svg}");
        }
    }

    #[test]
    fn strips_stay_on_the_picture(
        axis in axis(), map in any::<bool>(),
        // Few pictures have many strips that are long as well: they take most of the time.
        rows in prop_oneof![8 => strips(0..80, 0..90), 8 => strips(0..8, 0..900), 1 => strips(0..80, 0..900)],
    ) {
        let heat = Heat::new("title", axis).ends("first", "last");
        let heat = if map { heat.map() } else { heat };
        let svg = rows.into_iter().fold(heat, |heat, (name, values)| heat.row(&name, values)).svg();
        prop_assert!(!svg.contains("NaN") && !svg.contains("inf"));
        let (width, height) = size(&svg);
        for (name, size) in [("x", width), ("y", height)] {
            for value in numbers(&svg, name) {
                prop_assert!((0.0..=size).contains(&value), "{name}={value}");
            }
        }
        // All cells are between the left and right ends of the frames and above the key.
        let end = numbers(&svg, "y").into_iter().fold(0.0, f64::max);
        for cell in attributes(&svg, "d").flat_map(|data| data.split('M').skip(1)) {
            let numbers: Vec<f64> =
                cell.split([' ', 'h', 'v', 'z']).filter(|part| !part.is_empty()).map(|part| part.parse().unwrap()).collect();
            let [x, y, right, down, back] = numbers[..] else { panic!("{cell}") };
            prop_assert!(x >= 0.0 && x + right <= width - 8.0 && y >= 0.0 && y + down <= end && back == -right, "{cell}");
        }
    }

    /// What is drawn is where the axes say: a value between two ticks lies between them on paper.
    #[test]
    fn order_on_paper_is_the_order_of_values(values in prop::collection::vec(1e-3..1e3f64, 2..40), log in any::<bool>()) {
        let axis = if log { Axis::log("") } else { Axis::linear("") };
        let points = values.iter().enumerate().map(|(i, &y)| (i as f64, y));
        let svg = Chart::new("").y(axis).size(440.0, 600.0).series(Series::points("s", points)).svg();
        let heights = numbers(data(&svg), "cy");
        prop_assert_eq!(heights.len(), values.len());
        for i in 0..values.len() {
            for j in 0..values.len() {
                prop_assert!(values[i] <= values[j] || heights[i] <= heights[j] + 0.1);
            }
        }
    }

    #[test]
    fn text_of_users_is_no_markup(text in "\\PC{0,40}|<script>alert\\(1\\)</script>|\"onload=\"x") {
        let chart = Chart::new(&text).x(Axis::linear(&text)).series(Series::line(&text, [(0.0, 1.0)]).markers());
        let mut table = Table::new([Cell::text(&text)]);
        table.row([Cell::number(&text)]);
        let page = Page::new(&text).heading(&text).paragraph(&text).note(&text).preformatted(&text);
        let page = page.subheading(&text).list([&text]).details(&text, true, |page| page.note(&text));
        let html = page.figure(&chart.svg(), &text).table(&table).html();
        prop_assert!(!html.contains("<script"));
        prop_assert!(!html.contains("\"onload"));
    }
}

fn loads() -> Chart {
    let loads = [0.5, 0.7, 0.8, 0.9, 0.95];
    let curve = |name: &str, values: [f64; 5]| {
        Series::line(name, loads.into_iter().zip(values))
            .band(values.map(|value| (value * 0.98, value * 1.02)))
            .markers()
    };
    Chart::new("Mean time in system by load")
        .x(Axis::linear("load"))
        .y(Axis::log("mean time in system, in service times"))
        .series(curve("random", [2.0, 3.33, 5.0, 10.0, 20.0]))
        .series(curve("two_choices", [1.267, 1.620, 1.959, 2.645, 3.461]))
        .series(Series::line("one queue for all", loads.into_iter().zip([1.0, 1.0, 1.01, 1.05, 1.13])).reference())
        .rule(10.0, "time-out")
}

#[test]
fn a_chart() {
    insta::assert_snapshot!(loads().svg());
}

#[test]
fn a_chart_as_a_file() {
    insta::assert_snapshot!(loads().document());
}

#[test]
fn a_tail_and_a_histogram() {
    let tail = (0..6).map(|i| (f64::from(i) * 0.1, 10f64.powi(-i)));
    let chart = Chart::new("Tail")
        .x(Axis::linear("time").seconds())
        .y(Axis::log("part of requests that take longer"))
        .series(Series::step("least_conn", tail))
        .series(Series::histogram("", [(0.0, 0.1, 0.5), (0.1, 0.2, 0.25), (0.2, 0.3, f64::NAN), (0.3, 0.4, 0.1)]));
    insta::assert_snapshot!(chart.svg());
}

#[test]
fn zeros_on_logarithmic_axes_do_not_break_a_line() {
    let points = (0..200).map(|i| (f64::from(i), if i % 3 == 0 { 0.0 } else { f64::from(i) }));
    for shape in [Series::line, Series::step] {
        let series = shape("round_robin", points.clone().collect::<Vec<_>>());
        let svg = Chart::new("Unevenness").x(Axis::log("requests")).y(Axis::log("deviation")).series(series).svg();
        check(&svg, size(&svg));
        assert_eq!(data(&svg).matches('M').count(), 1, "one line without a gap: {svg}");
        // Both axes say where zero is.
        assert_eq!(svg.matches(">0</text>").count(), 2, "{svg}");
    }
    let gap = [(1.0, 1.0), (2.0, 2.0), (3.0, f64::NAN), (4.0, 1.0), (5.0, 2.0)];
    let svg = Chart::new("").y(Axis::log("")).series(Series::line("", gap)).svg();
    assert_eq!(data(&svg).matches('M').count(), 2, "what is not known is a gap: {svg}");
}

#[test]
fn legends_of_colours_name_their_scale() {
    let strip = |axis| Heat::new("Queues", axis).row("least_conn", [0.0, 1.0, 10.0, 900.0]).svg();
    let (linear, log) = (strip(Axis::linear("requests")), strip(Axis::log("requests")));
    assert!(linear.contains("requests; linear scale"), "{linear}");
    assert!(log.contains("requests; logarithmic scale") && log.contains(">0</text>"), "{log}");
    // On the logarithmic scale 1, 10 and 900 differ; on the linear one, 0, 1 and 10 are one shade.
    let shades = |svg: &str| (0..9).filter(|shade| svg.contains(&format!("<path class=\"h{shade}\""))).count();
    assert_eq!((shades(&linear), shades(&log)), (2, 4));
}

#[test]
fn bars_with_intervals() {
    let bars = Bars::new("Mean time", Axis::linear("service times"))
        .group("round_robin", [("10 users", 1.2, Some((1.1, 1.3))), ("250 users", 9.0, Some((8.0, 10.5)))])
        .group("least_conn", [("10 users", 1.2, Some((1.1, 1.3))), ("250 users", f64::NAN, None)]);
    insta::assert_snapshot!(bars.svg());
}

#[test]
fn stacked_bars() {
    let bars = Bars::new("Processor time", Axis::linear("processors"))
        .stacked()
        .group("round_robin", [("balancer", 0.11, None), ("s1", 0.05, None), ("s2", 0.05, None)])
        .group("least_conn", [("balancer", 0.26, None), ("s1", 0.11, None), ("s2", f64::NAN, None)]);
    insta::assert_snapshot!(bars.svg());
}

#[test]
fn a_heat_strip() {
    let heat = Heat::new("Queues of all servers", Axis::linear("requests in the server, mean"))
        .row("random", (0..40).map(|i| f64::from(i % 7)))
        .row("two_choices", (0..40).map(|i| f64::from(i % 3)))
        .ends("server 1", "server 40");
    insta::assert_snapshot!(heat.svg());
}

#[test]
fn a_heat_map() {
    let heat = Heat::new("Servers over time", Axis::linear("requests in the server").to(10.0)).map().ends("0 s", "9 s");
    let heat = (0..100).fold(heat, |heat, server| heat.row("", (0..10).map(|time| f64::from(server * time) / 90.0)));
    insta::assert_snapshot!(heat.svg());
}

#[test]
fn a_page() {
    let mut table = Table::new([Cell::text("algorithm"), Cell::number("mean"), Cell::text("against random")]);
    table.row([Cell::text("two_choices"), Cell::number("2.65 ± 0.02"), Cell::good("74% shorter")]);
    table.row([Cell::text("round_robin"), Cell::number("9.98 ± 0.20"), Cell::text("no detectable difference")]);
    let page = Page::new("A comparison")
        .paragraph("Said & done.")
        .table(&table)
        .figure("<svg></svg>\n", "one")
        .figure("<svg></svg>\n", "")
        .heading("Scenario")
        .preformatted("servers = 10\n")
        .note("seed 1")
        .details("More", false, |page| page.subheading("Part").list(["one", "two"]).figure("<svg></svg>\n", "in it"));
    insta::assert_snapshot!(page.html());
}
