//! An axis: its label, its scale, the range it shows and where on it a value lies.

use crate::ticks::{self, Format};

/// Beyond this, values count as not finite: differences of two of them must not overflow.
const LARGEST: f64 = 1e300;
/// Below this, a logarithmic axis has no value, and a linear one no width.
const SMALLEST: f64 = 1e-300;

/// Beyond this ratio of the greatest to the least positive value, a linear axis hides the small ones.
const WIDE: f64 = 8.0;

/// Whether these values lie so far apart that a logarithmic axis shows them better than a linear one. Only finite, positive
/// values count.
pub fn is_wide(values: impl IntoIterator<Item = f64>) -> bool {
    let values = values.into_iter().filter(|value| value.is_finite() && *value > 0.0);
    let (low, high) = values.fold((f64::INFINITY, 0.0f64), |(low, high), value| (low.min(value), high.max(value)));
    high / low > WIDE
}

/// One of the two axes of a [`crate::Chart`], or the one of [`crate::Bars`].
#[derive(Clone, Debug)]
pub struct Axis {
    pub(crate) label: String,
    pub(crate) log: bool,
    pub(crate) format: Format,
    range: (Option<f64>, Option<f64>),
    /// The least and the greatest value that the range covers beside those of its own picture.
    covered: Option<(f64, f64)>,
    /// Whether a logarithmic axis has a place for zero even if its own picture has no zero.
    zero: bool,
}

impl Axis {
    fn new(label: &str, log: bool) -> Self {
        let (label, format) = (label.to_string(), Format::Plain);
        Self { label, log, format, range: (None, None), covered: None, zero: false }
    }

    /// Equal distances for equal differences. The label says what the numbers are, with their unit.
    pub fn linear(label: &str) -> Self {
        Self::new(label, false)
    }

    /// Equal distances for equal ratios. If there are zeros, they lie at the low end, which is labelled 0; negative values are
    /// left out.
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

    /// The range includes these values in addition to those of its own picture. Pictures whose axes cover the same values
    /// have the same limits and can be compared.
    #[must_use]
    pub fn covering(mut self, values: impl IntoIterator<Item = f64>) -> Self {
        for value in values {
            if self.shows(value) {
                let (low, high) = self.covered.unwrap_or((value, value));
                self.covered = Some((low.min(value), high.max(value)));
            }
            self.zero |= self.log && is_zero(value);
        }
        self
    }

    /// Whether a value lies within the range of numbers that an axis of this kind can show.
    pub(crate) fn shows(&self, value: f64) -> bool {
        value.abs() <= LARGEST && (!self.log || value >= SMALLEST)
    }

    /// The axis with a range for these values; `wide` rounds the range outwards, to ticks.
    pub(crate) fn fitted(&self, values: impl Iterator<Item = f64>, wide: bool) -> Scale {
        let (mut low, mut high) = self.covered.unwrap_or((f64::INFINITY, f64::NEG_INFINITY));
        let mut zero = self.zero;
        for value in values {
            if self.shows(value) {
                (low, high) = (low.min(value), high.max(value));
            }
            zero |= self.log && is_zero(value);
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
        let scale = Scale { low, high, log: self.log, format: self.format, floor: None };
        // Whoever fixes the low end has decided what is cut off.
        if zero && self.range.0.is_none() { scale.with_zero() } else { scale }
    }
}

/// Whether a logarithmic axis takes this value for zero.
fn is_zero(value: f64) -> bool {
    (0.0..SMALLEST).contains(&value)
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
    pub log: bool,
    pub format: Format,
    /// The least number of a logarithmic axis that has a place for zero below it.
    floor: Option<f64>,
}

/// The part of a logarithmic axis that lies between zero and the least number.
const ZERO: f64 = 0.12;

impl Scale {
    /// The same axis with a place for zero at its low end.
    fn with_zero(self) -> Self {
        let below = (self.high / self.low).powf(ZERO / (1.0 - ZERO));
        Self { low: (self.low / below).max(SMALLEST), floor: Some(self.low), ..self }
    }

    /// Where a value lies: 0 at the low end, 1 at the high end; beyond both for values out of range. None if it has no place.
    pub fn position(&self, value: f64) -> Option<f64> {
        let position = if self.log {
            // A gap would hide that the value is known.
            if is_zero(value) {
                return Some(0.0);
            }
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
            ticks::log(self.floor.unwrap_or(self.low), self.high, wanted)
        } else {
            (ticks::linear(self.low, self.high, wanted), Vec::new())
        };
        let labels = ticks::labels(&major, self.log, self.format);
        let place = |tick: f64| self.position(tick).map(|position| position.clamp(0.0, 1.0));
        let zero = self.floor.map(|_| (0.0, self.number(0.0)));
        let major = major.into_iter().zip(labels).filter_map(|(tick, label)| Some((place(tick)?, label)));
        let major = zero.into_iter().chain(major).collect();
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
    fn wide_values_differ_more_than_eightfold() {
        assert!(is_wide([1.0, 8.1]) && !is_wide([1.0, 8.0]));
        assert!(!is_wide([]) && !is_wide([0.0, 5.0]) && !is_wide([f64::NAN, f64::INFINITY, 3.0]));
    }

    #[test]
    fn ranges_are_those_of_the_values() {
        assert_eq!(range(Axis::linear(""), &[1.0, 9.0, f64::NAN], true), (0.0, 10.0));
        assert_eq!(range(Axis::linear(""), &[1.0, 9.0], false), (1.0, 9.0));
        assert_eq!(range(Axis::linear("").from(2.0).to(4.0), &[1.0, 9.0], true), (2.0, 4.0));
        assert_eq!(range(Axis::log(""), &[-1.0, 0.3, 70.0], true), (0.2, 100.0));
        assert_eq!(range(Axis::linear(""), &[], true), (0.0, 1.0));
        assert_eq!(range(Axis::linear(""), &[4.0], true), (3.0, 5.0));
    }

    #[test]
    fn values_have_places() {
        let scale = Axis::log("").fitted([1.0, 100.0].into_iter(), false);
        assert_eq!(scale.position(10.0), Some(0.5));
        assert_eq!(scale.position(-1.0), None);
        assert_eq!(scale.position(f64::INFINITY), None);
        let scale = Axis::linear("").fitted([-1.0, 1.0].into_iter(), false);
        assert_eq!(scale.position(0.0), Some(0.5));
    }

    #[test]
    fn zero_lies_below_the_least_number_of_a_logarithmic_axis() {
        let scale = Axis::log("").fitted([0.0, 0.1, 1000.0].into_iter(), true);
        assert_eq!(scale.position(0.0), Some(0.0));
        let least = scale.position(0.1).unwrap();
        assert!((least - ZERO).abs() < 1e-9, "{least}");
        let (ticks, minor) = scale.ticks(5);
        assert_eq!(ticks[0], (0.0, "0".to_string()));
        assert!(ticks[1..].iter().all(|tick| tick.0 >= least) && minor.iter().all(|tick| *tick >= least));
        // Without a zero nothing is reserved for it; with a fixed low end it lies at that end.
        assert_eq!(range(Axis::log(""), &[0.1, 1000.0], true), (0.1, 1000.0));
        assert_eq!(range(Axis::log("").from(0.5), &[0.0, 1000.0], true), (0.5, 1000.0));
        let percent = Axis::log("").percent().fitted([0.0, 0.1, 0.9].into_iter(), true);
        assert_eq!(percent.ticks(5).0[0].1, "0%");
    }

    #[test]
    fn axes_that_cover_the_same_values_have_the_same_range() {
        let all = [0.0, 3.0, 500.0, f64::NAN];
        for axis in [Axis::linear(""), Axis::log("")] {
            let axis = axis.covering(all);
            let whole = axis.fitted(all.into_iter(), true);
            for value in all {
                let scale = axis.fitted([value].into_iter(), true);
                assert_eq!((scale.low, scale.high, scale.ticks(5)), (whole.low, whole.high, whole.ticks(5)));
            }
        }
    }
}
