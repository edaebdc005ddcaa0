//! Lines and areas within a frame, and lines of no more points than a picture can show.

pub(crate) type Point = (f64, f64);

/// The rectangle that data are drawn in, in pixels.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame {
    pub left: f64,
    pub top: f64,
    pub right: f64,
    pub bottom: f64,
}

impl Frame {
    /// The place of a position on both axes; y grows upwards on paper and downwards in pixels.
    pub fn place(&self, (x, y): Point) -> Point {
        (self.left + x * (self.right - self.left), self.bottom - y * (self.bottom - self.top))
    }

    pub fn contains(&self, (x, y): Point) -> bool {
        (self.left - 1e-6..=self.right + 1e-6).contains(&x) && (self.top - 1e-6..=self.bottom + 1e-6).contains(&y)
    }

    fn clamp(&self, (x, y): Point) -> Point {
        (x.clamp(self.left, self.right), y.clamp(self.top, self.bottom))
    }

    /// The parts of a line that are within the frame.
    pub fn clip_line(&self, line: &[Point]) -> Vec<Vec<Point>> {
        let mut parts: Vec<Vec<Point>> = Vec::new();
        let mut open = false;
        for pair in line.windows(2) {
            let Some((from, to)) = self.clip_segment(pair[0], pair[1]) else {
                open = false;
                continue;
            };
            match parts.last_mut() {
                Some(part) if open => part.push(to),
                _ => parts.push(vec![from, to]),
            }
            open = self.contains(pair[1]);
        }
        parts
    }

    /// The part of a segment that is within the frame (Liang and Barsky).
    fn clip_segment(&self, from: Point, to: Point) -> Option<(Point, Point)> {
        let (dx, dy) = (to.0 - from.0, to.1 - from.1);
        let (mut enter, mut leave) = (0.0f64, 1.0f64);
        for (direction, distance) in
            [(-dx, from.0 - self.left), (dx, self.right - from.0), (-dy, from.1 - self.top), (dy, self.bottom - from.1)]
        {
            if direction == 0.0 {
                if distance < 0.0 {
                    return None;
                }
            } else if direction < 0.0 {
                enter = enter.max(distance / direction);
            } else {
                leave = leave.min(distance / direction);
            }
        }
        let at = |part: f64| self.clamp((from.0 + part * dx, from.1 + part * dy));
        (enter <= leave).then(|| (at(enter), at(leave)))
    }

    /// The part of an area that is within the frame (Sutherland and Hodgman).
    pub fn clip_area(&self, area: &[Point]) -> Vec<Point> {
        let by_x = |(x, y): Point| (y, x);
        let mut area = area.to_vec();
        for (limit, sign, turned) in
            [(self.left, 1.0, false), (self.right, -1.0, false), (self.top, 1.0, true), (self.bottom, -1.0, true)]
        {
            if turned {
                area = area.into_iter().map(by_x).collect();
            }
            area = clip_half(&area, limit, sign);
            if turned {
                area = area.into_iter().map(by_x).collect();
            }
        }
        area.into_iter().map(|point| self.clamp(point)).collect()
    }
}

/// The part of an area with `sign * (x - limit) >= 0`.
fn clip_half(area: &[Point], limit: f64, sign: f64) -> Vec<Point> {
    let inside = |point: Point| sign * (point.0 - limit) >= 0.0;
    let mut kept = Vec::new();
    for (index, &point) in area.iter().enumerate() {
        let before = area[(index + area.len() - 1) % area.len()];
        if inside(before) != inside(point) {
            let part = (limit - before.0) / (point.0 - before.0);
            kept.push((limit, before.1 + part * (point.1 - before.1)));
        }
        if inside(point) {
            kept.push(point);
        }
    }
    kept
}

/// The same line on paper with at most four points for each column of pixels: first, lowest, highest, last.
pub(crate) fn thin(line: Vec<Point>) -> Vec<Point> {
    if line.len() < 64 {
        return line;
    }
    let mut thinned: Vec<Point> = Vec::new();
    let mut start = 0;
    while start < line.len() {
        let column = line[start].0.floor();
        let length = line[start..].iter().take_while(|point| point.0.floor() == column).count();
        let points = &line[start..start + length];
        if length <= 4 {
            thinned.extend(points);
        } else {
            let extreme = |sign: f64| {
                let order = |one: &&Point, other: &&Point| (sign * one.1).total_cmp(&(sign * other.1));
                points.iter().max_by(order).copied().unwrap_or(points[0])
            };
            thinned.extend([points[0], extreme(1.0), extreme(-1.0), points[length - 1]]);
        }
        start += length;
    }
    thinned
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FRAME: Frame = Frame { left: 10.0, top: 20.0, right: 110.0, bottom: 80.0 };

    fn points() -> impl Strategy<Value = Vec<Point>> {
        prop::collection::vec((-200.0..300.0f64, -200.0..300.0f64), 2..40)
    }

    fn area_of(polygon: &[Point]) -> f64 {
        let next = |index: usize| polygon[(index + 1) % polygon.len()];
        (0..polygon.len()).map(|i| polygon[i].0 * next(i).1 - next(i).0 * polygon[i].1).sum::<f64>().abs() / 2.0
    }

    #[test]
    fn a_line_across_is_cut_at_both_sides() {
        assert_eq!(FRAME.clip_line(&[(0.0, 50.0), (200.0, 50.0)]), [[(10.0, 50.0), (110.0, 50.0)]]);
        assert_eq!(FRAME.clip_line(&[(0.0, 0.0), (200.0, 0.0)]), [[(0.0, 0.0); 0]; 0]);
        let parts = FRAME.clip_line(&[(20.0, 50.0), (20.0, 200.0), (40.0, 200.0), (40.0, 50.0)]);
        assert_eq!(parts, [[(20.0, 50.0), (20.0, 80.0)], [(40.0, 80.0), (40.0, 50.0)]]);
    }

    #[test]
    fn an_area_around_becomes_the_frame() {
        let clipped = FRAME.clip_area(&[(0.0, 0.0), (200.0, 0.0), (200.0, 200.0), (0.0, 200.0)]);
        assert!((area_of(&clipped) - 6000.0).abs() < 1e-6, "{clipped:?}");
    }

    proptest! {
        #[test]
        fn clipped_lines_are_inside_and_keep_what_was(line in points()) {
            let parts = FRAME.clip_line(&line);
            for point in parts.iter().flatten() {
                prop_assert!(FRAME.contains(*point));
            }
            // Every inner point of a segment that is within the frame is on one of the parts.
            for pair in line.windows(2) {
                for step in 1..20 {
                    let part = f64::from(step) / 20.0;
                    let point = (pair[0].0 + part * (pair[1].0 - pair[0].0), pair[0].1 + part * (pair[1].1 - pair[0].1));
                    let (x, y) = point;
                    if !(10.1..=109.9).contains(&x) || !(20.1..=79.9).contains(&y) {
                        continue;
                    }
                    let near = parts.iter().flat_map(|part| part.windows(2)).any(|segment| {
                        let (a, b) = (segment[0], segment[1]);
                        let length = (b.0 - a.0).hypot(b.1 - a.1);
                        (a.0 - x).hypot(a.1 - y) + (b.0 - x).hypot(b.1 - y) <= length + 1e-6
                    });
                    prop_assert!(near, "{point:?} is lost");
                }
            }
        }

        #[test]
        fn clipped_areas_are_inside(area in points()) {
            for point in FRAME.clip_area(&area) {
                prop_assert!(FRAME.contains(point));
            }
        }

        #[test]
        fn thin_lines_keep_extremes_and_ends(values in prop::collection::vec(-100.0..100.0f64, 1..3000)) {
            let line: Vec<Point> = values.iter().enumerate().map(|(i, &y)| (i as f64 * 0.05, y)).collect();
            let thinned = thin(line.clone());
            let extremes = |line: &[Point]| line.iter().fold((f64::MAX, f64::MIN), |(a, b), p| (a.min(p.1), b.max(p.1)));
            prop_assert_eq!(extremes(&thinned), extremes(&line));
            prop_assert_eq!(thinned.first(), line.first());
            prop_assert_eq!(thinned.last(), line.last());
            prop_assert!(thinned.len() <= 64 + 4 * 151);
        }
    }
}
