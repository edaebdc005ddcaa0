//! An axis: its label, its scale, the range it shows and where on it a value lies.

use crate::ticks::{self, Format};

/// Beyond this, values count as not finite: differences of two of them must not overflow.
const LARGEST: f64 = 1e300;
/// Below this, a logarithmic axis has no value, and a linear one no width.
const SMALLEST: f64 = 1e-300;

/// One of the two axes of a [`crate::Chart`], or the one of [`crate::Bars`].
#[derive(Clone, Debug)]
pub struct Axis {
    pub(crate) label: String,
    pub(crate) log: bool,
    pub(crate) format: Format,
    range: (Option<f64>, Option<f64>),
}

impl Axis {
    fn new(label: &str, log: bool) -> Self {
        Self { label: label.to_string(), log, format: Format::Plain, range: (None, None) }
    }

    /// Equal distances for equal differences. The label says what the numbers are, with their unit.
    pub fn linear(label: &str) -> Self {
        Self::new(label, false)
    }

    /// Equal distances for equal ratios. Values that are not above zero are left out.
    pub fn log(label: &str) -> Self {
        Self::new(label, true)
    }

    /// The values are seconds; the axis writes 20 ms, 3 s.
    #[must_use]
    pub fn seconds(mut self) -> Self {
        self.format = Format::Seconds;
        self
    }

    /// The values are parts of one; the axis writes percent.
    #[must_use]
    pub fn percent(mut self) -> Self {
        self.format = Format::Percent;
        self
    }

    /// Shows no less than this at the low end, instead of what the values need. What lies below is cut off.
    #[must_use]
    pub fn from(mut self, low: f64) -> Self {
        self.range.0 = Some(low).filter(|&low| self.shows(low));
        self
    }

    /// Shows no more than this at the high end, instead of what the values need. What lies beyond is cut off.
    #[must_use]
    pub fn to(mut self, high: f64) -> Self {
        self.range.1 = Some(high).filter(|&high| self.shows(high));
        self
    }

    /// Whether a value has a place on an axis of this kind.
    pub(crate) fn shows(&self, value: f64) -> bool {
        value.abs() <= LARGEST && (!self.log || value >= SMALLEST)
    }

    /// The axis with a range for these values; `wide` rounds the range outwards, to ticks.
    pub(crate) fn fitted(&self, values: impl Iterator<Item = f64>, wide: bool) -> Scale {
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values.filter(|&value| self.shows(value)) {
            (low, high) = (low.min(value), high.max(value));
        }
        if low > high {
            // Nothing to show; some axis all the same.
            (low, high) = if self.log { (0.1, 1.0) } else { (0.0, 1.0) };
        }
        (low, high) = (self.range.0.unwrap_or(low), self.range.1.unwrap_or(high));
        if low > high {
            (low, high) = (high, low);
        }
        let (low, high) = if self.log { fit_log(low, high, wide) } else { fit_linear(low, high, wide, self.range) };
        let low = self.range.0.filter(|&fixed| fixed < high && wide).unwrap_or(low);
        let high = self.range.1.filter(|&fixed| fixed > low && wide).unwrap_or(high);
        Scale { low, high, log: self.log, format: self.format }
    }
}

fn fit_linear(mut low: f64, mut high: f64, wide: bool, fixed: (Option<f64>, Option<f64>)) -> (f64, f64) {
    if wide && fixed.0.is_none() && low > 0.0 && low < 0.6 * high {
        low = 0.0;
    }
    if wide && fixed.1.is_none() && high < 0.0 && high > 0.6 * low {
        high = 0.0;
    }
    let magnitude = low.abs().max(high.abs());
    if high - low <= magnitude * 1e-9 || high - low < SMALLEST {
        let half = if magnitude < SMALLEST { 0.5 } else { magnitude * 0.25 };
        (low, high) = (low - half, high + half);
    }
    if wide {
        let step = ticks::step(low, high, 5);
        (low, high) = ((low / step + 1e-9).floor() * step, (high / step - 1e-9).ceil() * step);
    }
    (low, high)
}

fn fit_log(mut low: f64, mut high: f64, wide: bool) -> (f64, f64) {
    if high / low < 1.0 + 1e-9 {
        (low, high) = ((low / 2.0).max(SMALLEST), high * 2.0);
    }
    if wide {
        // Outwards to 1, 2 or 5 times a power of ten.
        let round = |value: f64, up: bool| {
            let power = value.log10().floor();
            let part = value / 10f64.powf(power);
            let steps = [1.0, 2.0, 5.0, 10.0];
            let factor = if up {
                steps.into_iter().find(|&step| step >= part * (1.0 - 1e-9)).unwrap_or(10.0)
            } else {
                steps.into_iter().rev().find(|&step| step <= part * (1.0 + 1e-9)).unwrap_or(1.0)
            };
            factor * 10f64.powf(power)
        };
        (low, high) = (round(low, false).max(SMALLEST), round(high, true));
    }
    (low, high)
}

/// An axis with its range.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    pub low: f64,
    pub high: f64,
    log: bool,
    pub format: Format,
}

impl Scale {
    /// Where a value lies: 0 at the low end, 1 at the high end; beyond both for values out of range. None if it has no place.
    pub fn position(&self, value: f64) -> Option<f64> {
        let position = if self.log {
            if !(SMALLEST..=LARGEST).contains(&value) {
                return None;
            }
            (value.ln() - self.low.ln()) / (self.high.ln() - self.low.ln())
        } else {
            (value - self.low) / (self.high - self.low)
        };
        // Far outside is far outside; the geometry of pictures needs numbers of their order.
        (value.abs() <= LARGEST && position.is_finite()).then(|| position.clamp(-1e6, 1e6))
    }

    /// The numbers along the axis as (position, label), and positions of minor lines.
    pub fn ticks(&self, wanted: usize) -> (Vec<(f64, String)>, Vec<f64>) {
        let (major, minor) = if self.log {
            ticks::log(self.low, self.high, wanted)
        } else {
            (ticks::linear(self.low, self.high, wanted), Vec::new())
        };
        let labels = ticks::labels(&major, self.log, self.format);
        let place = |tick: f64| self.position(tick).map(|position| position.clamp(0.0, 1.0));
        let major = major.into_iter().zip(labels).filter_map(|(tick, label)| Some((place(tick)?, label))).collect();
        (major, minor.into_iter().filter_map(place).collect())
    }

    /// A value of this axis in words.
    pub fn number(&self, value: f64) -> String {
        ticks::number(value, self.format)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(axis: Axis, values: &[f64], wide: bool) -> (f64, f64) {
        let scale = axis.fitted(values.iter().copied(), wide);
        (scale.low, scale.high)
    }

    #[test]
    fn ranges_are_those_of_the_values() {
        assert_eq!(range(Axis::linear(""), &[1.0, 9.0, f64::NAN], true), (0.0, 10.0));
        assert_eq!(range(Axis::linear(""), &[1.0, 9.0], false), (1.0, 9.0));
        assert_eq!(range(Axis::linear("").from(2.0).to(4.0), &[1.0, 9.0], true), (2.0, 4.0));
        assert_eq!(range(Axis::log(""), &[0.0, 0.3, 70.0], true), (0.2, 100.0));
        assert_eq!(range(Axis::linear(""), &[], true), (0.0, 1.0));
        assert_eq!(range(Axis::linear(""), &[4.0], true), (3.0, 5.0));
    }

    #[test]
    fn values_have_places() {
        let scale = Axis::log("").fitted([1.0, 100.0].into_iter(), false);
        assert_eq!(scale.position(10.0), Some(0.5));
        assert_eq!(scale.position(0.0), None);
        assert_eq!(scale.position(f64::INFINITY), None);
        let scale = Axis::linear("").fitted([-1.0, 1.0].into_iter(), false);
        assert_eq!(scale.position(0.0), Some(0.5));
    }
}
