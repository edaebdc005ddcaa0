//! Writing SVG: a few elements, coordinates with one decimal.

use std::fmt::{self, Write};

use crate::text::escape;
use crate::theme;

/// A coordinate or length in pixels, written with at most one decimal.
#[derive(Clone, Copy)]
pub(crate) struct Px(pub f64);

impl fmt::Display for Px {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        debug_assert!(self.0.is_finite(), "a coordinate is a number");
        let tenths = (self.0 * 10.0).round() as i64;
        match (tenths / 10, tenths % 10) {
            (whole, 0) => write!(f, "{whole}"),
            (0, tenth) if tenth < 0 => write!(f, "-0.{}", -tenth),
            (whole, tenth) => write!(f, "{whole}.{}", tenth.abs()),
        }
    }
}

/// Where a text stands relative to its position.
#[derive(Clone, Copy)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

/// A picture that is being written.
pub(crate) struct Svg {
    width: f64,
    height: f64,
    label: String,
    body: String,
}

impl Svg {
    /// `label` says what the picture shows to those who do not see it.
    pub fn new(width: f64, height: f64, label: &str) -> Self {
        Self { width, height, label: escape(label), body: String::new() }
    }

    fn write(&mut self, element: fmt::Arguments) {
        self.body.write_fmt(element).expect("a String takes everything");
        self.body.push('\n');
    }

    pub fn rect(&mut self, class: &str, x: f64, y: f64, width: f64, height: f64) {
        let (x, y, width, height) = (Px(x), Px(y), Px(width), Px(height));
        self.write(format_args!(r#"<rect class="{class}" x="{x}" y="{y}" width="{width}" height="{height}"/>"#));
    }

    /// Many rectangles (x, y, width, height) as one element.
    pub fn rects(&mut self, class: &str, rects: &[(f64, f64, f64, f64)]) {
        let mut d = String::new();
        for &(x, y, width, height) in rects {
            let _ = write!(d, "M{} {}h{}v{}h{}z", Px(x), Px(y), Px(width), Px(height), Px(-width));
        }
        if !d.is_empty() {
            self.write(format_args!(r#"<path class="{class}" d="{d}"/>"#));
        }
    }

    /// Like [`Svg::rect`], with a text that appears under the pointer.
    pub fn rect_with_hint(&mut self, class: &str, x: f64, y: f64, width: f64, height: f64, hint: &str) {
        let (x, y, width, height, hint) = (Px(x), Px(y), Px(width), Px(height), escape(hint));
        self.write(format_args!(
            r#"<rect class="{class}" x="{x}" y="{y}" width="{width}" height="{height}"><title>{hint}</title></rect>"#
        ));
    }

    pub fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        let (x1, y1, x2, y2) = (Px(from.0), Px(from.1), Px(to.0), Px(to.1));
        self.write(format_args!(r#"<path class="{class}" d="M{x1} {y1}L{x2} {y2}"/>"#));
    }

    /// Several connected lines as one element; `close` makes areas of them.
    pub fn path(&mut self, class: &str, lines: &[Vec<(f64, f64)>], close: bool) {
        let mut d = String::new();
        for line in lines {
            for (index, &(x, y)) in line.iter().enumerate() {
                let _ = write!(d, "{}{} {}", if index == 0 { 'M' } else { 'L' }, Px(x), Px(y));
            }
            if close && !line.is_empty() {
                d.push('Z');
            }
        }
        if !d.is_empty() {
            self.write(format_args!(r#"<path class="{class}" d="{d}"/>"#));
        }
    }

    /// The marker of a series around a point, with a text that appears under the pointer.
    pub fn marker(&mut self, series: usize, (x, y): (f64, f64), hint: Option<&str>) {
        let class = theme::series_class(series);
        let hint = hint.map_or_else(String::new, |hint| format!("<title>{}</title>", escape(hint)));
        let r = 3.2;
        let (cx, cy) = (Px(x), Px(y));
        match theme::marker(series) {
            theme::Marker::Circle => {
                self.write(format_args!(r#"<circle class="mark {class}" cx="{cx}" cy="{cy}" r="{r}">{hint}</circle>"#));
            }
            theme::Marker::Square => {
                let (left, top, side) = (Px(x - r), Px(y - r), Px(2.0 * r));
                self.write(format_args!(
                    r#"<rect class="mark {class}" x="{left}" y="{top}" width="{side}" height="{side}">{hint}</rect>"#
                ));
            }
            theme::Marker::Diamond => {
                self.polygon(&class, &[(x, y - 1.4 * r), (x + 1.4 * r, y), (x, y + 1.4 * r), (x - 1.4 * r, y)], &hint)
            }
            theme::Marker::Triangle => {
                self.polygon(&class, &[(x, y - 1.3 * r), (x + 1.25 * r, y + r), (x - 1.25 * r, y + r)], &hint);
            }
        }
    }

    fn polygon(&mut self, class: &str, corners: &[(f64, f64)], content: &str) {
        let points: Vec<String> = corners.iter().map(|&(x, y)| format!("{},{}", Px(x), Px(y))).collect();
        self.write(format_args!(r#"<polygon class="mark {class}" points="{}">{content}</polygon>"#, points.join(" ")));
    }

    pub fn text(&mut self, class: &str, (x, y): (f64, f64), anchor: Anchor, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "",
            Anchor::Middle => r#" text-anchor="middle""#,
            Anchor::End => r#" text-anchor="end""#,
        };
        self.write(format_args!(
            r#"<text class="{class}" x="{}" y="{}"{anchor}>{}</text>"#,
            Px(x),
            Px(y),
            escape(text)
        ));
    }

    pub fn open(&mut self, class: &str) {
        self.write(format_args!(r#"<g class="{class}">"#));
    }

    pub fn close(&mut self) {
        self.write(format_args!("</g>"));
    }

    /// The picture for a page that has [`theme::css`] already.
    pub fn fragment(self) -> String {
        let Self { width, height, label, body } = self;
        let (width, height) = (Px(width), Px(height));
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"plot\" viewBox=\"0 0 {width} {height}\" role=\"img\" \
             aria-label=\"{label}\">\n{body}</svg>\n"
        )
    }

    /// The picture as a file: with its size, its colours and a background of its own.
    pub fn document(self) -> String {
        let Self { width, height, label, body } = self;
        let (width, height, css) = (Px(width), Px(height), theme::css());
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"plot\" viewBox=\"0 0 {width} {height}\" \
             width=\"{width}\" height=\"{height}\" role=\"img\">\n<title>{label}</title>\n<style>\n{css}</style>\n\
             <rect class=\"paper\" width=\"{width}\" height=\"{height}\"/>\n{body}</svg>\n"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pixels_have_one_decimal_at_most() {
        let written = |value| Px(value).to_string();
        assert_eq!(written(12.0), "12");
        assert_eq!(written(12.04), "12");
        assert_eq!(written(12.06), "12.1");
        assert_eq!(written(-0.26), "-0.3");
        assert_eq!(written(-3.12), "-3.1");
        assert_eq!(written(-0.01), "0");
    }
}
