//! Series over two axes.

use crate::axis::{Axis, Scale};
use crate::geometry::{Frame, Point, thin};
use crate::series::{Series, Shape};
use crate::svg::{Anchor, Svg};
use crate::{text, theme};

/// The width of a chart, unless told otherwise: wide enough to read, narrow enough that its letters are still legible when
/// it fills a phone.
pub(crate) const WIDTH: f64 = 440.0;
const HEIGHT: f64 = 300.0;
pub(crate) const TITLE: f64 = 15.0;
/// Titles are bold: as wide as a text of this size.
pub(crate) const BOLD: f64 = 18.0;
pub(crate) const SIZE: f64 = 13.0;
pub(crate) const ROW: f64 = 19.0;
pub(crate) const EDGE: f64 = 8.0;

/// Series of numbers over two axes.
#[derive(Clone, Debug)]
pub struct Chart {
    title: String,
    x: Axis,
    y: Axis,
    series: Vec<Series>,
    rules: Vec<(f64, String)>,
    size: (f64, f64),
}

impl Chart {
    /// An empty chart with linear axes. The title says what is seen.
    pub fn new(title: &str) -> Self {
        let (x, y) = (Axis::linear(""), Axis::linear(""));
        Self { title: title.to_string(), x, y, series: Vec::new(), rules: Vec::new(), size: (WIDTH, HEIGHT) }
    }

    /// The horizontal axis.
    #[must_use]
    pub fn x(mut self, axis: Axis) -> Self {
        self.x = axis;
        self
    }

    /// The vertical axis.
    #[must_use]
    pub fn y(mut self, axis: Axis) -> Self {
        self.y = axis;
        self
    }

    /// One series more. Colours are given in this order.
    #[must_use]
    pub fn series(mut self, series: Series) -> Self {
        self.series.push(series);
        self
    }

    /// A dashed horizontal line with a note, such as a limit.
    #[must_use]
    pub fn rule(mut self, y: f64, note: &str) -> Self {
        self.rules.push((y, note.to_string()));
        self
    }

    /// The size in pixels, instead of 440 by 300; the legend adds to the height.
    #[must_use]
    pub fn size(mut self, width: f64, height: f64) -> Self {
        self.size = (width.clamp(200.0, 4000.0), height.clamp(160.0, 4000.0));
        self
    }

    /// The picture for a [`crate::Page`].
    pub fn svg(&self) -> String {
        self.draw().fragment()
    }

    /// The picture as a file of its own.
    pub fn document(&self) -> String {
        self.draw().document()
    }

    fn draw(&self) -> Svg {
        let x = self.x.fitted(self.series.iter().flat_map(Series::xs), false);
        let noted = self.rules.iter().map(|rule| rule.0);
        let y = self.y.fitted(self.series.iter().flat_map(Series::ys).chain(noted), true);
        let (width, height) = self.size;

        let title = text::wrap(&self.title, BOLD, width - 2.0 * EDGE);
        let (y_ticks, y_minor) = y.ticks(5);
        let widest = y_ticks.iter().map(|(_, label)| text::width(label, SIZE)).fold(0.0, f64::max);
        let legend = legend_rows(&self.names(), width - 2.0 * EDGE);
        let above = EDGE + ROW * title.len() as f64 + if self.y.label.is_empty() { 8.0 } else { ROW + 9.0 };
        let below = ROW + if self.x.label.is_empty() { 4.0 } else { ROW };
        let frame = Frame {
            left: (EDGE + widest + 6.0).min(width / 2.0),
            top: above,
            right: width - EDGE - 10.0,
            bottom: (height - below).max(above + 60.0),
        };
        let foot = frame.bottom + below;
        let mut svg = Svg::new(width, foot + ROW * legend.len() as f64 + EDGE, &self.in_words());

        for (row, line) in title.iter().enumerate() {
            svg.text("title", (EDGE, EDGE + TITLE + ROW * row as f64 - 2.0), Anchor::Start, line);
        }
        if !self.y.label.is_empty() {
            svg.text("quiet", (EDGE, above - 14.0), Anchor::Start, &text::fit(&self.y.label, SIZE, width - 2.0 * EDGE));
        }
        draw_y_ticks(&mut svg, &frame, &y_ticks, &y_minor);
        draw_x_ticks(&mut svg, &frame, &x, width);
        if !self.x.label.is_empty() {
            let label = text::fit(&self.x.label, SIZE, width - 2.0 * EDGE);
            let room = text::width(&label, SIZE) / 2.0;
            let middle =
                f64::midpoint(frame.left, frame.right).clamp(EDGE + room, (width - EDGE - room).max(EDGE + room));
            svg.text("quiet", (middle, foot - 5.0), Anchor::Middle, &label);
        }

        svg.open("data");
        let places = self.places();
        for pass in [true, false] {
            for (series, place) in self.series.iter().zip(&places).filter(|(series, _)| series.reference == pass) {
                self.draw_series(&mut svg, &frame, (&x, &y), series, *place);
            }
        }
        svg.close();
        for (at, note) in &self.rules {
            self.draw_rule(&mut svg, &frame, &y, *at, note);
        }
        svg.rect("frame", frame.left, frame.top, frame.right - frame.left, frame.bottom - frame.top);
        for (row, entries) in legend.iter().enumerate() {
            for &(index, left) in entries {
                self.draw_key(
                    &mut svg,
                    &self.series[index],
                    places[index],
                    (EDGE + left, foot + ROW * row as f64 + 12.0),
                );
            }
        }
        svg
    }

    /// Which colour each series has: those that are no reference are counted.
    fn places(&self) -> Vec<usize> {
        let mut next = 0..;
        self.series.iter().map(|series| if series.reference { 0 } else { next.next().unwrap_or(0) }).collect()
    }

    /// A single series needs no legend if it has no name.
    fn names(&self) -> Vec<&str> {
        self.series.iter().map(|series| series.name.as_str()).collect()
    }

    fn in_words(&self) -> String {
        let names: Vec<&str> = self.names().into_iter().filter(|name| !name.is_empty()).collect();
        let (x, y) = (&self.x.label, &self.y.label);
        format!("{}: {y} over {x}; {}", self.title, names.join(", "))
    }

    fn draw_series(&self, svg: &mut Svg, frame: &Frame, (x, y): (&Scale, &Scale), series: &Series, place: usize) {
        let class = if series.reference { "reference".to_string() } else { theme::series_class(place) };
        let spot = |value: (f64, f64)| Some(frame.place((x.position(value.0)?, y.position(value.1)?)));

        for area in band(series, spot) {
            svg.path(&format!("band {class}"), &[frame.clip_area(&area)], true);
        }
        for line in unbroken(&series.points, spot) {
            let line = match series.shape {
                Shape::Points => continue,
                Shape::Step => steps(&line),
                Shape::Line | Shape::Area => line,
            };
            if series.shape == Shape::Area {
                let (first, last) = (line[0], line[line.len() - 1]);
                let mut area = thin(line.clone());
                area.extend([(last.0, frame.bottom), (first.0, frame.bottom)]);
                svg.path(&format!("area {class}"), &[frame.clip_area(&area)], true);
            }
            let quiet = if series.reference { "quiet " } else { "" };
            let parts: Vec<Vec<Point>> = frame.clip_line(&line).into_iter().map(thin).collect();
            svg.path(&format!("line {quiet}{class}"), &parts, false);
        }
        for (&(at, _), &(low, high)) in series.points.iter().zip(&series.whiskers) {
            if let (Some(low), Some(high)) = (spot((at, low)), spot((at, high))) {
                svg.path(&format!("whisker {class}"), &frame.clip_line(&[low, high]), false);
            }
        }
        if series.markers {
            let mut seen = std::collections::BTreeSet::new();
            for &value in &series.points {
                let Some(point) = spot(value).filter(|&point| frame.contains(point)) else { continue };
                // A million points on the same spot are one point.
                if seen.insert(((point.0 * 2.0) as i64, (point.1 * 2.0) as i64)) {
                    let hint = format!("{}: {}, {}", series.name, x.number(value.0), y.number(value.1));
                    svg.marker(place, point, Some(&hint));
                }
            }
        }
    }

    fn draw_rule(&self, svg: &mut Svg, frame: &Frame, y: &Scale, at: f64, note: &str) {
        let Some(position) = y.position(at).filter(|position| (0.0..=1.0).contains(position)) else { return };
        let (_, height) = frame.place((0.0, position));
        svg.line("rule", (frame.left, height), (frame.right, height));
        let baseline = if height - frame.top > ROW { height - 5.0 } else { height + SIZE + 2.0 };
        let note = text::fit(note, SIZE, frame.right - frame.left - 8.0);
        svg.text("quiet", (frame.right - 4.0, baseline), Anchor::End, &note);
    }

    fn draw_key(&self, svg: &mut Svg, series: &Series, place: usize, (left, middle): Point) {
        let class = if series.reference { "reference".to_string() } else { theme::series_class(place) };
        match series.shape {
            Shape::Area => svg.rect(&format!("area {class}"), left, middle - 5.0, KEY, 10.0),
            Shape::Points => {}
            _ if series.reference => svg.line(&format!("line quiet {class}"), (left, middle), (left + KEY, middle)),
            _ => svg.line(&format!("line {class}"), (left, middle), (left + KEY, middle)),
        }
        if series.markers {
            svg.marker(place, (left + KEY / 2.0, middle), None);
        }
        let name = text::fit(&series.name, SIZE, self.size.0 - 2.0 * EDGE - KEY - 5.0);
        svg.text("", (left + KEY + 5.0, middle + 4.5), Anchor::Start, &name);
    }
}

/// The width of a line in the legend.
pub(crate) const KEY: f64 = 24.0;

/// The legend in rows: which series, and how far from the left.
pub(crate) fn legend_rows(names: &[&str], room: f64) -> Vec<Vec<(usize, f64)>> {
    let mut rows: Vec<Vec<(usize, f64)>> = Vec::new();
    let mut end = f64::INFINITY;
    for (index, name) in names.iter().enumerate().filter(|(_, name)| !name.is_empty()) {
        let width = KEY + 5.0 + text::width(name, SIZE);
        if end + width > room {
            rows.push(Vec::new());
            end = 0.0;
        }
        if let Some(row) = rows.last_mut() {
            row.push((index, end));
        }
        end += width + 12.0;
    }
    rows
}

fn draw_y_ticks(svg: &mut Svg, frame: &Frame, ticks: &[(f64, String)], minor: &[f64]) {
    for &position in minor {
        let (_, y) = frame.place((0.0, position));
        svg.line("minor", (frame.left, y), (frame.right, y));
    }
    for (position, label) in ticks {
        let (_, y) = frame.place((0.0, *position));
        svg.line("grid", (frame.left, y), (frame.right, y));
        svg.text("quiet", (frame.left - 6.0, y + 4.5), Anchor::End, label);
    }
}

/// The numbers along the bottom of a frame, and positions of minor lines: as many numbers as have room.
pub(crate) fn x_ticks(frame: &Frame, scale: &Scale) -> (Vec<(f64, String)>, Vec<f64>) {
    let fits = |ticks: &[(f64, String)]| {
        let ends = |(position, label): &(f64, String)| {
            let (middle, half) = (frame.place((*position, 0.0)).0, text::width(label, SIZE) / 2.0);
            (middle - half, middle + half)
        };
        ticks.windows(2).all(|pair| ends(&pair[0]).1 + 8.0 <= ends(&pair[1]).0)
    };
    (2..=7)
        .rev()
        .map(|wanted| scale.ticks(wanted))
        .find(|(ticks, _)| fits(ticks))
        .unwrap_or_else(|| (scale.ticks(1).0.into_iter().take(1).collect(), Vec::new()))
}

/// Draws the numbers along the bottom of a frame.
pub(crate) fn draw_x_ticks(svg: &mut Svg, frame: &Frame, scale: &Scale, width: f64) {
    let (ticks, minor) = x_ticks(frame, scale);
    for position in minor {
        let (x, _) = frame.place((position, 0.0));
        svg.line("minor", (x, frame.top), (x, frame.bottom));
    }
    for (position, label) in ticks {
        let (x, _) = frame.place((position, 0.0));
        svg.line("grid", (x, frame.top), (x, frame.bottom));
        // The outermost numbers stay on the picture.
        let half = text::width(&label, SIZE) / 2.0;
        let middle = x.min(width - half).max(half);
        svg.text("quiet", (middle, frame.bottom + 16.5), Anchor::Middle, &label);
    }
}

/// The stretches of points without a gap, in pixels.
fn unbroken(points: &[(f64, f64)], spot: impl Fn((f64, f64)) -> Option<Point>) -> Vec<Vec<Point>> {
    let stretches = points.iter().map(|&value| spot(value)).collect::<Vec<_>>();
    let stretches = stretches.split(Option::is_none).filter(|stretch| !stretch.is_empty());
    stretches.map(|stretch| stretch.iter().copied().flatten().collect()).collect()
}

/// The band around a line as areas in pixels.
fn band(series: &Series, spot: impl Fn((f64, f64)) -> Option<Point>) -> Vec<Vec<Point>> {
    let edges: Vec<Option<(Point, Point)>> = series
        .points
        .iter()
        .zip(&series.band)
        .map(|(&(x, _), &(low, high))| Some((spot((x, low))?, spot((x, high))?)))
        .collect();
    let stretches = edges.split(Option::is_none).filter(|stretch| stretch.len() > 1);
    stretches
        .map(|stretch| {
            let there = stretch.iter().flatten().map(|edge| edge.1);
            let back = stretch.iter().flatten().rev().map(|edge| edge.0);
            thin(there.collect()).into_iter().chain(thin(back.collect())).collect()
        })
        .collect()
}

/// The corners of a line whose values hold until the next.
fn steps(line: &[Point]) -> Vec<Point> {
    let mut corners = Vec::with_capacity(2 * line.len());
    for pair in line.windows(2) {
        corners.extend([pair[0], (pair[1].0, pair[0].1)]);
    }
    corners.extend(line.last());
    corners
}
