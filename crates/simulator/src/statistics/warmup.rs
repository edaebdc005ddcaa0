//! Where the warm-up ends: MSER-5.
//!
//! Of a series of means over equal spans of time, those of five neighbours are averaged; what is cut off at the start is
//! what makes the standard error of the rest least. Spans are of time and not of requests, as a busy time has more of
//! them. Source: White, "An effective truncation heuristic for bias reduction in simulation output" (1997).

/// What part of the series is to be cut off, in the first half: (part, whether the least was at the half's end, so that
/// there is no telling).
pub(crate) fn mser5(series: &[f64]) -> (f64, bool) {
    let batches: Vec<f64> = series.chunks_exact(5).map(|five| five.iter().sum::<f64>() / 5.0).collect();
    let n = batches.len();
    if n < 10 {
        return (0.0, true);
    }
    // From the end on, so that sums are of what is left.
    let (mut sum, mut squares) = (0.0, 0.0);
    let (mut best, mut cut) = (f64::INFINITY, 0);
    for d in (0..n).rev() {
        sum += batches[d];
        squares += batches[d] * batches[d];
        let left = (n - d) as f64;
        if d > n / 2 {
            continue;
        }
        let error = (squares - sum * sum / left).max(0.0) / (left * left);
        if error <= best {
            (best, cut) = (error, d);
        }
    }
    (cut as f64 / n as f64, cut == n / 2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::{Purpose, Random};

    #[test]
    fn the_transient_is_cut() {
        let mut random = Random::new(3, 0, Purpose::Service);
        let mut noise = || random.unit() - 0.5;
        // Rises to 10 with a time constant of 50 of 1,000.
        let rising: Vec<f64> = (0..1_000).map(|i| 10.0 * (1.0 - (-f64::from(i) / 50.0).exp()) + noise()).collect();
        let (part, late) = mser5(&rising);
        assert!((0.1..0.35).contains(&part) && !late, "{part}");
        let level: Vec<f64> = (0..1_000).map(|_| noise()).collect();
        assert!(mser5(&level).0 < 0.2);
        let growing: Vec<f64> = (0..1_000).map(f64::from).collect();
        assert!(mser5(&growing).1, "there is no telling");
    }
}
