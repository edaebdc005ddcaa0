//! Pearson's test of counts against expected shares.

/// The statistic of `counts` against `weights`, in standard deviations of its distribution by the cube-root
/// approximation of Wilson and Hilferty (1931). Counts of fair draws exceed 6 once in a thousand million times; turns in
/// order are below 0. A count where nothing is expected is infinite.
pub fn deviation(counts: &[u64], weights: &[f64]) -> f64 {
    let total: u64 = counts.iter().sum();
    let sum: f64 = weights.iter().sum();
    let mut statistic = 0.0;
    let mut freedom = -1.0;
    for (count, weight) in counts.iter().zip(weights) {
        let expected = total as f64 * weight / sum;
        if expected == 0.0 {
            if *count > 0 {
                return f64::INFINITY;
            }
            continue;
        }
        statistic += (*count as f64 - expected).powi(2) / expected;
        freedom += 1.0;
    }
    if freedom < 1.0 {
        return 0.0;
    }
    let spread = 2.0 / (9.0 * freedom);
    ((statistic / freedom).cbrt() - (1.0 - spread)) / spread.sqrt()
}

/// More than fair draws ever reach.
pub const LIMIT: f64 = 6.0;

#[test]
fn draws_pass_and_wrong_weights_do_not() {
    let mut state = 1u64;
    let mut draw = |of: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let mixed = (state ^ state >> 29).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed >> 33) % of
    };
    let mut counts = [0u64; 4];
    for _ in 0..100_000 {
        // Weights 5, 1, 2, 2.
        counts[[0, 0, 0, 0, 0, 1, 2, 2, 3, 3][draw(10) as usize]] += 1;
    }
    let fair = deviation(&counts, &[5.0, 1.0, 2.0, 2.0]);
    assert!(fair.abs() < 4.0, "{counts:?}: {fair}");
    assert!(deviation(&counts, &[5.0, 1.1, 2.0, 2.0]) > LIMIT);
    assert!(deviation(&counts, &[1.0, 1.0, 1.0, 1.0]) > 50.0);
    assert_eq!(deviation(&counts, &[5.0, 0.0, 2.0, 2.0]), f64::INFINITY);
    assert!(deviation(&[500, 100, 200, 200], &[5.0, 1.0, 2.0, 2.0]) < 0.0);
}
