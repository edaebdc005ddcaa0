//! Strips of many values, one colour each: the queues of all servers at a glance.

use crate::axis::Axis;
use crate::chart::{BOLD, EDGE, ROW, SIZE, TITLE, WIDTH, x_ticks};
use crate::geometry::Frame;
use crate::svg::{Anchor, Svg};
use crate::text;
use crate::theme::RAMP_STEPS;

/// The height of a strip, and the space below it.
const STRIP: (f64, f64) = (22.0, 4.0);
/// How high and wide the smallest cells of a map are.
const CELL: f64 = 4.0;
/// How wide the colours of the legend are.
const KEY: f64 = 270.0;
/// How high a map is at most.
const MAP: f64 = 200.0;

/// Named strips of values. A strip with more values than columns shows the mean of each column's values.
#[derive(Clone, Debug)]
pub struct Heat {
    title: String,
    values: Axis,
    rows: Vec<(String, Vec<f64>)>,
    ends: (String, String),
    map: bool,
    width: f64,
}

impl Heat {
    /// No strips yet. The axis says what the colours mean, and whether they follow the values or their logarithms.
    pub fn new(title: &str, values: Axis) -> Self {
        let ends = (String::new(), String::new());
        Self { title: title.to_string(), values, rows: Vec::new(), ends, map: false, width: WIDTH }
    }

    /// One strip more, its values from left to right.
    #[must_use]
    pub fn row(mut self, name: &str, values: impl IntoIterator<Item = f64>) -> Self {
        self.rows.push((name.to_string(), values.into_iter().collect()));
        self
    }

    /// What is at the left and at the right end of the strips.
    #[must_use]
    pub fn ends(mut self, left: &str, right: &str) -> Self {
        self.ends = (left.to_string(), right.to_string());
        self
    }

    /// The strips lie close and have no names: a map of many, such as servers over time. More strips than have room become
    /// means of neighbours.
    #[must_use]
    pub fn map(mut self) -> Self {
        self.map = true;
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
        let title = text::wrap(&self.title, BOLD, self.width - 2.0 * EDGE);
        let rows = self.shown();
        let names =
            if self.map { 0.0 } else { rows.iter().map(|row| text::width(row.0, SIZE)).fold(0.0, f64::max) + 8.0 };
        let (left, right) = ((EDGE + names).min(self.width * 0.45), self.width - EDGE - 4.0);
        let (strip, gap) = if self.map { ((MAP / rows.len().max(1) as f64).min(30.0), 0.0) } else { STRIP };
        let top = EDGE + ROW * title.len() as f64 + 6.0;
        let bottom = top + (strip + gap) * rows.len() as f64;
        let ends = if self.ends.0.is_empty() && self.ends.1.is_empty() { 0.0 } else { ROW };

        let narrowest = if self.map { CELL } else { CELL / 2.0 };
        let columns: Vec<Vec<f64>> =
            rows.iter().map(|(_, values)| columns(values, ((right - left) / narrowest) as usize)).collect();
        let scale = self.values.fitted(columns.iter().flatten().copied(), false);
        let shade = |value: f64| {
            let position = scale.position(value)?.clamp(0.0, 1.0);
            Some(((position * RAMP_STEPS as f64) as usize).min(RAMP_STEPS - 1))
        };

        let words = format!("{}: {} of {}", self.title, self.values.label, self.names());
        let mut svg = Svg::new(self.width, bottom + ends + 3.5 * ROW, &words);
        for (row, line) in title.iter().enumerate() {
            svg.text("title", (EDGE, EDGE + TITLE + ROW * row as f64 - 2.0), Anchor::Start, line);
        }
        let mut cells = vec![Vec::new(); RAMP_STEPS];
        for (row, columns) in columns.iter().enumerate() {
            let y = top + (strip + gap) * row as f64;
            let column = (right - left) / columns.len().max(1) as f64;
            let mut from = 0;
            while from < columns.len() {
                // Neighbours of one shade are one rectangle.
                let here = shade(columns[from]);
                let length = columns[from..].iter().take_while(|value| shade(**value) == here).count();
                if let Some(shade) = here {
                    cells[shade].push((left + column * from as f64, y, column * length as f64, strip));
                }
                from += length;
            }
        }
        for (shade, cells) in cells.iter().enumerate() {
            svg.rects(&format!("h{shade}"), cells);
        }
        if self.map {
            svg.rect("frame", left, top, right - left, bottom - top);
        } else {
            for (row, (name, _)) in rows.iter().enumerate() {
                let y = top + (strip + gap) * row as f64;
                let name = text::fit(name, SIZE, left - EDGE - 8.0);
                svg.text("", (left - 8.0, y + strip / 2.0 + 4.5), Anchor::End, &name);
                svg.rect("frame", left, y, right - left, strip);
            }
        }
        if ends > 0.0 {
            svg.text("quiet", (left, bottom + 14.0), Anchor::Start, &self.ends.0);
            svg.text("quiet", (right, bottom + 14.0), Anchor::End, &self.ends.1);
        }
        self.draw_key(&mut svg, &scale, bottom + ends + 10.0);
        svg
    }

    /// The strips that are drawn: all, or as many means of neighbours as a map has room for.
    fn shown(&self) -> Vec<(&str, Vec<f64>)> {
        let most = if self.map { (MAP / CELL) as usize } else { usize::MAX };
        let count = self.rows.len().min(most);
        let length = self.rows.iter().map(|row| row.1.len()).max().unwrap_or(0);
        (0..count)
            .map(|row| {
                let group = &self.rows[row * self.rows.len() / count..(row + 1) * self.rows.len() / count];
                let values = match group {
                    [(_, values)] => values.clone(),
                    _ => (0..length).map(|at| mean(group.iter().filter_map(|row| row.1.get(at)))).collect(),
                };
                (group[0].0.as_str(), values)
            })
            .collect()
    }

    /// The colours with the values that they stand for, and which scale they follow.
    fn draw_key(&self, svg: &mut Svg, scale: &crate::axis::Scale, y: f64) {
        let step = KEY / RAMP_STEPS as f64;
        for shade in 0..RAMP_STEPS {
            svg.rect(&format!("h{shade}"), EDGE + step * shade as f64, y, step, 12.0);
        }
        let bar = Frame { left: EDGE, top: y, right: EDGE + KEY, bottom: y + 12.0 };
        let (ticks, _) = x_ticks(&bar, scale);
        for (position, _) in &ticks {
            svg.rect("frame", bar.place((*position, 0.0)).0, bar.bottom, 0.1, 4.0);
        }
        svg.rect("frame", EDGE, y, KEY, 12.0);
        for (position, label) in ticks {
            // The first number stays on the picture.
            let middle = bar.place((position, 0.0)).0.max(EDGE + text::width(&label, SIZE) / 2.0);
            svg.text("quiet", (middle, bar.bottom + 16.5), Anchor::Middle, &label);
        }
        let kind = if scale.log { "logarithmic" } else { "linear" };
        let label = text::fit(&format!("{}; {kind} scale", self.values.label), SIZE, self.width - 2.0 * EDGE);
        svg.text("quiet", (EDGE, bar.bottom + 16.5 + ROW), Anchor::Start, &label);
    }

    fn names(&self) -> String {
        self.rows.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ")
    }
}

/// The means of at most `most` runs of neighbours, of equal length but for one.
fn columns(values: &[f64], most: usize) -> Vec<f64> {
    let count = values.len().min(most.max(1));
    (0..count)
        .map(|column| mean(values[column * values.len() / count..(column + 1) * values.len() / count].iter()))
        .collect()
}

/// The mean of those that are numbers; NaN if none is.
fn mean<'a>(values: impl Iterator<Item = &'a f64> + Clone) -> f64 {
    let numbers = values.filter(|value| value.is_finite());
    match numbers.clone().count() {
        0 => f64::NAN,
        // Divided before they are added: the sum of large numbers is no number.
        count => numbers.map(|value| value / count as f64).sum(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_values_become_the_means_of_columns() {
        assert_eq!(columns(&[1.0, 3.0, 5.0, 7.0], 2), [2.0, 6.0]);
        assert_eq!(columns(&[1.0, 3.0], 5), [1.0, 3.0]);
        assert_eq!(columns(&[], 5), [0.0; 0]);
        let values: Vec<f64> = (0..1000).map(f64::from).collect();
        let columns = columns(&values, 7);
        assert_eq!(columns.len(), 7);
        assert!(columns.windows(2).all(|pair| pair[0] < pair[1]));
    }
}
