//! Charts as SVG text and reports as one HTML file, for the simulator and the lab.
//!
//! ```
//! use balanza_plot::{Axis, Chart, Series};
//!
//! let svg = Chart::new("M/M/1")
//!     .x(Axis::linear("load"))
//!     .y(Axis::log("mean time in system, service times"))
//!     .series(Series::line("1 / (1 - load)", [(0.5, 2.0), (0.9, 10.0), (0.99, 100.0)]).markers())
//!     .document();
//! assert!(svg.starts_with("<svg"));
//! ```
//!
//! - [`Chart`]: lines, steps, points, bands and histograms over two axes, each linear or logarithmic;
//! - [`Bars`]: values by name, with intervals, or stacked as parts of a whole;
//! - [`Heat`]: strips of many values, one colour each;
//! - [`Page`]: headings, paragraphs, lists, tables and charts in one HTML file that needs nothing else.
//!
//! Every picture has `svg()` for a [`Page`], which brings the colours, and `document()` for a file of its own. Light or dark
//! is what the reader's browser prefers; paper is always light. Series differ by colour, dashes and markers, so that no
//! meaning hangs on colour alone. What cannot be drawn (NaN, infinite, negative on a logarithmic axis) leaves a gap,
//! never a coordinate outside the frame. Pictures that are compared get the same limits by [`Axis::covering`].

#![forbid(unsafe_code)]
// A write to a standard error that is closed or full panics in these.
#![deny(clippy::print_stderr, clippy::print_stdout)]

mod axis;
mod bars;
mod chart;
mod geometry;
mod heat;
mod page;
mod series;
mod svg;
mod text;
mod theme;
mod ticks;

pub use axis::{Axis, is_wide};
pub use bars::Bars;
pub use chart::Chart;
pub use heat::Heat;
pub use page::{Cell, Page, Table};
pub use series::Series;
pub use text::columns;

/// The text with a capital letter at its beginning, for a heading or a sentence.
pub fn capitalised(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

/// A number as people read it, with three digits: 0.0153, 12.3k, 2.5·10⁻⁴.
pub fn number(value: f64) -> String {
    ticks::number(value, ticks::Format::Plain)
}

/// A time of so many seconds as people read it: 15.3 ms.
pub fn seconds(value: f64) -> String {
    ticks::number(value, ticks::Format::Seconds)
}

/// A part of one as people read it: 1.53%.
pub fn percent(value: f64) -> String {
    ticks::number(value, ticks::Format::Percent)
}
