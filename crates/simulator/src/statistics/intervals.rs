//! Means and intervals over replications.

/// Mean, and half the width of its 95 % confidence interval by Student's t; `None` for fewer than two values.
pub fn mean_and_ci95(values: &[f64]) -> (f64, Option<f64>) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    if values.len() < 2 {
        return (mean, None);
    }
    let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1.0);
    (mean, Some(student95(values.len() - 1) * (variance / n).sqrt()))
}

/// The 97.5 % quantile of Student's t distribution.
fn student95(freedom: usize) -> f64 {
    const TABLE: [f64; 12] =
        [12.7062, 4.30265, 3.18245, 2.77645, 2.57058, 2.44691, 2.36462, 2.306, 2.26216, 2.22814, 2.20099, 2.17881];
    if let Some(t) = freedom.checked_sub(1).and_then(|i| TABLE.get(i)) {
        return *t;
    }
    // Cornish and Fisher's expansion about the normal quantile: right to 1e-4 from here on.
    let (z, v) = (1.959_963_984_540_054_f64, freedom as f64);
    let g1 = (z.powi(3) + z) / 4.0;
    let g2 = (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / 96.0;
    let g3 = (3.0 * z.powi(7) + 19.0 * z.powi(5) + 17.0 * z.powi(3) - 15.0 * z) / 384.0;
    z + g1 / v + g2 / v.powi(2) + g3 / v.powi(3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn student() {
        for (freedom, t) in [(1, 12.7062), (9, 2.26216), (13, 2.16037), (20, 2.08596), (30, 2.04227), (120, 1.97993)] {
            assert!((student95(freedom) - t).abs() < 2e-4, "{freedom}: {}", student95(freedom));
        }
    }

    #[test]
    fn intervals() {
        assert_eq!(mean_and_ci95(&[3.0]), (3.0, None));
        let (mean, half) = mean_and_ci95(&[1.0, 2.0, 3.0]);
        // s = 1, t(2) = 4.303.
        assert!((mean - 2.0).abs() < 1e-12 && (half.unwrap() - 4.30265 / 3f64.sqrt()).abs() < 1e-9);
    }
}
