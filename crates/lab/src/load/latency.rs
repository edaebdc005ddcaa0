//! Distributions of times: recorded in microseconds with three significant digits, kept and merged in seconds.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::record::Latency;

/// What a [`Latency`] lists.
pub const PERCENTILES: [f64; 5] = [50.0, 90.0, 95.0, 99.0, 99.9];

/// Longest time that a [`Recorder`] tells from longer ones.
const LONGEST: Duration = Duration::from_secs(3600);

const NANOSECONDS: f64 = 1e9;

/// Collects times without allocating; mean, deviation and extremes are exact.
#[derive(Clone, Debug)]
pub struct Recorder {
    histogram: Histogram<u64>,
    seconds: f64,
    squares: f64,
    min: Duration,
    max: Duration,
}

impl Default for Recorder {
    fn default() -> Self {
        Self { histogram: histogram(LONGEST, 3), seconds: 0.0, squares: 0.0, min: Duration::MAX, max: Duration::ZERO }
    }
}

impl Recorder {
    /// Adds a time.
    pub fn record(&mut self, time: Duration) {
        self.histogram.saturating_record(time.as_micros() as u64);
        let seconds = time.as_secs_f64();
        self.seconds += seconds;
        self.squares += seconds * seconds;
        self.min = self.min.min(time);
        self.max = self.max.max(time);
    }

    /// What was recorded.
    pub fn latency(&self) -> Latency {
        let latency = Latency::of(&self.histogram);
        let count = latency.count as f64;
        if latency.count == 0 {
            return latency;
        }
        let mean = self.seconds / count;
        let variance = (self.squares / count - mean * mean).max(0.0);
        Latency {
            mean: Some(mean),
            sd: Some(variance.sqrt()),
            min: Some(self.min.as_secs_f64()),
            max: Some(self.max.as_secs_f64()),
            ..latency
        }
    }
}

/// An empty histogram in microseconds that never grows.
pub(super) fn histogram(longest: Duration, digits: u8) -> Histogram<u64> {
    Histogram::new_with_max(longest.as_micros() as u64, digits).expect("bounds and digits are in the allowed range")
}

impl Latency {
    /// The distribution in a histogram of microseconds.
    pub fn of(histogram: &Histogram<u64>) -> Latency {
        if histogram.is_empty() {
            return Latency::default();
        }
        let seconds = |microseconds: f64| microseconds / 1e6;
        let buckets = histogram.iter_recorded();
        let mut latency = Latency {
            count: histogram.len(),
            mean: Some(seconds(histogram.mean())),
            sd: Some(seconds(histogram.stdev())),
            min: Some(seconds(histogram.min() as f64)),
            max: Some(seconds(histogram.max() as f64)),
            percentiles: Vec::new(),
            histogram: buckets
                .map(|bucket| (seconds(bucket.value_iterated_to() as f64), bucket.count_at_value()))
                .collect(),
        };
        latency.percentiles = latency.listed();
        latency
    }

    /// The time that this part (0 to 1) of the requests did not exceed. A distribution without a histogram knows only its
    /// extremes and the percentiles that it lists.
    pub fn quantile(&self, part: f64) -> Option<f64> {
        if self.count == 0 {
            return None;
        }
        if part <= 0.0 && self.min.is_some() {
            return self.min;
        }
        if part >= 1.0 && self.max.is_some() {
            return self.max;
        }
        if self.histogram.is_empty() {
            let listed = self.percentiles.iter().find(|(percentile, _)| (percentile - part * 100.0).abs() < 1e-9);
            return listed.map(|(_, time)| *time);
        }
        let in_buckets: u64 = self.histogram.iter().map(|(_, count)| count).sum();
        // A product that should be whole can be a little more.
        let wanted = (part * in_buckets as f64 - 1e-6).ceil().max(1.0) as u64;
        let mut seen = 0;
        let bucket = self.histogram.iter().find(|(_, count)| {
            seen += count;
            seen >= wanted
        });
        let time = bucket.or(self.histogram.last())?.0;
        Some(self.max.map_or(time, |max| time.min(max)))
    }

    /// The distribution of all requests of several. Count, mean and deviation are those of the requests taken together;
    /// there are percentiles if every part has a histogram.
    pub fn merge(parts: &[&Latency]) -> Latency {
        let parts: Vec<&Latency> = parts.iter().copied().filter(|part| part.count > 0).collect();
        if let [] | [_] = parts[..] {
            return parts.first().copied().cloned().unwrap_or_default();
        }
        let count: u64 = parts.iter().map(|part| part.count).sum();
        let weighted = |value: &dyn Fn(&Latency) -> Option<f64>| -> Option<f64> {
            let sum: Option<f64> = parts.iter().map(|part| Some(value(part)? * part.count as f64)).sum();
            Some(sum? / count as f64)
        };
        let mean = weighted(&|part| part.mean);
        let variance = mean.and_then(|mean| weighted(&|part| Some(part.sd?.powi(2) + (part.mean? - mean).powi(2))));
        let mut merged = Latency {
            count,
            mean,
            sd: variance.map(f64::sqrt),
            min: parts.iter().map(|part| part.min).reduce(|a, b| Some(a?.min(b?))).flatten(),
            max: parts.iter().map(|part| part.max).reduce(|a, b| Some(a?.max(b?))).flatten(),
            ..Latency::default()
        };
        if parts.iter().all(|part| !part.histogram.is_empty()) {
            // Whole nanoseconds: a bucket that was written and read may differ in its last digit.
            let mut buckets: BTreeMap<u64, u64> = BTreeMap::new();
            for (time, count) in parts.iter().flat_map(|part| &part.histogram) {
                *buckets.entry((time * NANOSECONDS).round() as u64).or_default() += count;
            }
            merged.histogram = buckets.into_iter().map(|(time, count)| (time as f64 / NANOSECONDS, count)).collect();
            merged.percentiles = merged.listed();
        }
        merged
    }

    fn listed(&self) -> Vec<(f64, f64)> {
        PERCENTILES.iter().filter_map(|&percentile| Some((percentile, self.quantile(percentile / 100.0)?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn recorded(milliseconds: &[u64]) -> Latency {
        let mut recorder = Recorder::default();
        milliseconds.iter().for_each(|&time| recorder.record(Duration::from_millis(time)));
        recorder.latency()
    }

    #[test]
    fn a_recorder_is_exact_where_it_can_be() {
        let latency = recorded(&(1..=1000).collect::<Vec<_>>());
        assert_eq!((latency.count, latency.min, latency.max), (1000, Some(0.001), Some(1.0)));
        assert!((latency.mean.unwrap() - 0.5005).abs() < 1e-9);
        assert!((latency.sd.unwrap() - 0.288675).abs() < 1e-6);
        for (percentile, time) in &latency.percentiles {
            let exact = percentile / 100.0;
            assert!((time - exact).abs() <= exact / 1000.0 + 1e-6, "{percentile}: {time}");
        }
        assert_eq!(latency.histogram.iter().map(|(_, count)| count).sum::<u64>(), 1000);
        assert_eq!(latency.quantile(1.0), Some(1.0));
    }

    #[test]
    fn nothing_recorded_is_no_distribution() {
        assert_eq!(recorded(&[]), Latency::default());
        assert_eq!(Latency::merge(&[]), Latency::default());
        assert_eq!(Latency::default().quantile(0.5), None);
        let one = recorded(&[3]);
        assert_eq!(Latency::merge(&[&one, &Latency::default()]), one);
    }

    #[test]
    fn percentiles_without_a_histogram_are_those_listed() {
        let told =
            Latency { count: 10, percentiles: vec![(50.0, 0.2), (99.9, 0.4)], max: Some(0.5), ..Latency::default() };
        assert_eq!(told.quantile(0.5), Some(0.2));
        assert_eq!(told.quantile(0.999), Some(0.4));
        assert_eq!(told.quantile(1.0), Some(0.5));
        assert_eq!(told.quantile(0.95), None);
        let merged = Latency::merge(&[&told, &recorded(&[1])]);
        assert_eq!((merged.count, merged.percentiles.len(), merged.mean, merged.max), (11, 0, None, Some(0.5)));
    }

    #[test]
    fn longer_than_the_longest_keeps_its_maximum() {
        let latency = recorded(&[2 * 3600 * 1000]);
        assert_eq!(latency.max, Some(7200.0));
        assert!(latency.quantile(0.5).unwrap() >= 3600.0);
    }

    proptest! {
        #[test]
        fn merged_is_as_recorded_together(times in prop::collection::vec(0u64..5000, 2..80), at in 0usize..80) {
            let (a, b) = times.split_at(at.min(times.len()));
            // Through JSON, as runs are kept.
            let kept = |part: &[u64]| -> Latency {
                serde_json::from_str(&serde_json::to_string(&recorded(part)).unwrap()).unwrap()
            };
            let (merged, whole) = (Latency::merge(&[&kept(a), &kept(b)]), recorded(&times));
            let near = |a: f64, b: f64| (a - b).abs() < 1e-6;
            prop_assert_eq!(merged.count, whole.count);
            prop_assert!(near(merged.mean.unwrap(), whole.mean.unwrap()));
            prop_assert!(near(merged.sd.unwrap(), whole.sd.unwrap()));
            prop_assert!(near(merged.max.unwrap(), whole.max.unwrap()));
            for part in [0.0, 0.1, 0.5, 0.9, 0.99, 1.0] {
                prop_assert!(near(merged.quantile(part).unwrap(), whole.quantile(part).unwrap()), "{}", part);
            }
            prop_assert_eq!(merged.histogram.len(), whole.histogram.len());
        }
    }
}
