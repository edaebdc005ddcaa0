//! Horizontal bars: values by name, with intervals.

use crate::axis::{Axis, Scale};
use crate::chart::{BOLD, EDGE, KEY, ROW, SIZE, TITLE, WIDTH, draw_x_ticks, legend_rows};
use crate::geometry::Frame;
use crate::svg::{Anchor, Svg};
use crate::{text, theme};

/// The height of one bar with its share of the space between.
const BAR: f64 = 17.0;

#[derive(Clone, Debug)]
struct Bar {
    name: String,
    value: f64,
    interval: Option<(f64, f64)>,
}

/// Values by name, one bar for each, in groups. On a logarithmic axis, which has no zero for bars to begin at, and after
/// [`Bars::dots`], the values are dots.
#[derive(Clone, Debug)]
pub struct Bars {
    title: String,
    axis: Axis,
    dots: bool,
    stacked: bool,
    groups: Vec<(String, Vec<Bar>)>,
    width: f64,
}

impl Bars {
    /// No bars yet, on this axis.
    pub fn new(title: &str, axis: Axis) -> Self {
        let dots = axis.log;
        Self { title: title.to_string(), axis, dots, stacked: false, groups: Vec::new(), width: WIDTH }
    }

    /// Dots instead of bars: for values whose distance from zero says nothing.
    #[must_use]
    pub fn dots(mut self) -> Self {
        self.dots = true;
        self
    }

    /// The bars of a group in one row, each where the one before ends: parts of a whole. Intervals are not drawn, and what is
    /// not above zero has no part. A logarithmic axis has no zero to begin at and keeps its dots.
    #[must_use]
    pub fn stacked(mut self) -> Self {
        self.stacked = !self.axis.log;
        self.dots = self.axis.log;
        self
    }

    /// A group with one bar.
    #[must_use]
    pub fn bar(self, name: &str, value: f64, interval: Option<(f64, f64)>) -> Self {
        self.group(name, [("", value, interval)])
    }

    /// A group of bars (name, value, interval) that stand together. Equal names have equal colours.
    #[must_use]
    pub fn group<'a>(mut self, name: &str, bars: impl IntoIterator<Item = (&'a str, f64, Option<(f64, f64)>)>) -> Self {
        let bars = bars.into_iter().map(|(name, value, interval)| Bar { name: name.to_string(), value, interval });
        self.groups.push((name.to_string(), bars.collect()));
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

    fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for bar in self.groups.iter().flat_map(|group| &group.1) {
            if !names.contains(&bar.name.as_str()) {
                names.push(&bar.name);
            }
        }
        names
    }

    fn scale(&self) -> Scale {
        if self.stacked {
            let sums = self.groups.iter().map(|(_, bars)| self.parts(bars).map(|(_, _, end)| end).fold(0.0, f64::max));
            return self.axis.fitted(sums.chain([0.0]), true);
        }
        let bars = self.groups.iter().flat_map(|group| &group.1);
        let values = bars.flat_map(|bar| {
            let (low, high) = bar.interval.unwrap_or((bar.value, bar.value));
            [bar.value, low, high]
        });
        let zero = (!self.dots).then_some(0.0);
        self.axis.fitted(values.chain(zero), true)
    }

    /// The bars of a stacked row with where they begin and end.
    fn parts<'a>(&self, bars: &'a [Bar]) -> impl Iterator<Item = (&'a Bar, f64, f64)> {
        let parts = bars.iter().filter(|bar| bar.value > 0.0 && self.axis.shows(bar.value));
        parts.scan(0.0, |end, bar| {
            let start = *end;
            *end += bar.value;
            Some((bar, start, *end))
        })
    }

    /// The height of a group's bars.
    fn height(&self, bars: &[Bar]) -> f64 {
        BAR * if self.stacked { 1.0 } else { bars.len() as f64 }
    }

    fn draw(&self) -> Svg {
        let names = self.names();
        let scale = self.scale();
        let title = text::wrap(&self.title, BOLD, self.width - 2.0 * EDGE);
        let legend = legend_rows(&names, self.width - 2.0 * EDGE);
        let widest = self.groups.iter().map(|(name, _)| text::width(name, SIZE)).fold(0.0, f64::max);
        let rows: f64 = self.groups.iter().map(|(_, bars)| self.height(bars) + 6.0).sum();
        let top = EDGE + ROW * title.len() as f64 + 6.0;
        let frame = Frame {
            left: (EDGE + widest + 8.0).min(self.width * 0.45),
            top,
            right: self.width - EDGE - 14.0,
            bottom: top + rows.max(BAR) + 4.0,
        };
        let foot = frame.bottom + ROW + if self.axis.label.is_empty() { 4.0 } else { ROW };
        let words = format!("{}: {}", self.title, self.axis.label);
        let mut svg = Svg::new(self.width, foot + ROW * legend.len() as f64 + EDGE, &words);
        for (row, line) in title.iter().enumerate() {
            svg.text("title", (EDGE, EDGE + TITLE + ROW * row as f64 - 2.0), Anchor::Start, line);
        }
        draw_x_ticks(&mut svg, &frame, &scale, self.width);
        if !self.axis.label.is_empty() {
            let label = text::fit(&self.axis.label, SIZE, self.width - 2.0 * EDGE);
            let room = text::width(&label, SIZE) / 2.0;
            let middle = f64::midpoint(frame.left, frame.right).min(self.width - EDGE - room).max(EDGE + room);
            svg.text("quiet", (middle, foot - 5.0), Anchor::Middle, &label);
        }
        svg.open("data");
        let mut y = frame.top + 4.0;
        for (group, bars) in &self.groups {
            let height = self.height(bars);
            let label = text::fit(group, SIZE, frame.left - EDGE - 4.0);
            svg.text("", (frame.left - 8.0, y + height / 2.0 + 4.5), Anchor::End, &label);
            let place = |bar: &Bar| names.iter().position(|name| *name == bar.name).unwrap_or(0);
            if self.stacked {
                for (bar, start, end) in self.parts(bars) {
                    draw_part(&mut svg, &frame, &scale, (group, bar, place(bar)), (start, end), y + BAR / 2.0);
                }
                y += BAR;
            }
            for bar in bars.iter().filter(|_| !self.stacked) {
                self.draw_bar(&mut svg, &frame, &scale, (group, bar, place(bar)), y + BAR / 2.0);
                y += BAR;
            }
            y += 6.0;
        }
        svg.close();
        svg.rect("frame", frame.left, frame.top, frame.right - frame.left, frame.bottom - frame.top);
        for (row, entries) in legend.iter().enumerate() {
            for &(index, left) in entries {
                let (left, middle) = (EDGE + left, foot + ROW * row as f64 + 12.0);
                if self.dots {
                    svg.marker(index, (left + KEY / 2.0, middle), None);
                } else {
                    svg.rect(&format!("bar {}", theme::colour_class(index)), left, middle - 5.0, KEY, 10.0);
                }
                svg.text("", (left + KEY + 5.0, middle + 4.5), Anchor::Start, names[index]);
            }
        }
        svg
    }

    fn draw_bar(&self, svg: &mut Svg, frame: &Frame, scale: &Scale, (group, bar, place): (&str, &Bar, usize), y: f64) {
        let at = |value: f64| Some(frame.place((scale.position(value)?.clamp(0.0, 1.0), 0.0)).0);
        let Some(x) = at(bar.value) else {
            return svg.text("quiet", (frame.left + 6.0, y + 4.5), Anchor::Start, "–");
        };
        let mut hint = [group, &bar.name].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ");
        hint.push_str(&format!(": {}", scale.number(bar.value)));
        if let Some((low, high)) = bar.interval {
            hint.push_str(&format!(" ({} to {})", scale.number(low), scale.number(high)));
        }
        if !self.dots {
            let zero = at(0.0).unwrap_or(frame.left);
            let class = format!("bar {}", theme::colour_class(place));
            svg.rect_with_hint(&class, x.min(zero), y - 6.0, (x - zero).abs(), 12.0, &hint);
        }
        if let Some((low, high)) = bar.interval
            && let (Some(low), Some(high)) = (at(low), at(high))
        {
            let class = if self.dots { theme::colour_class(place) } else { "ink".to_string() };
            svg.line(&format!("whisker {class}"), (low, y), (high, y));
            svg.line(&format!("whisker {class}"), (low, y - 3.0), (low, y + 3.0));
            svg.line(&format!("whisker {class}"), (high, y - 3.0), (high, y + 3.0));
        }
        if self.dots {
            svg.marker(place, (x, y), Some(&hint));
        }
    }
}

/// A part of a stacked row.
fn draw_part(
    svg: &mut Svg,
    frame: &Frame,
    scale: &Scale,
    (group, bar, place): (&str, &Bar, usize),
    (start, end): (f64, f64),
    y: f64,
) {
    let at = |value: f64| Some(frame.place((scale.position(value)?.clamp(0.0, 1.0), 0.0)).0);
    let (Some(left), Some(right)) = (at(start), at(end)) else { return };
    // A thin gap tells neighbours of similar colours apart.
    let width = if right - left > 2.0 { right - left - 0.8 } else { right - left };
    let hint = format!("{group}, {}: {}", bar.name, scale.number(bar.value));
    svg.rect_with_hint(&format!("bar {}", theme::colour_class(place)), left, y - 6.5, width, 13.0, &hint);
}
