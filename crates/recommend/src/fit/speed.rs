//! How fast each server is: from the works of requests of the same class.

/// Speeds within this of each other are the same.
const SAME: f64 = 0.03;
/// Standard errors within which two speeds are the same.
const ERRORS: f64 = 3.0;

/// Logarithms of works of one server: their mean, its standard error, and how many.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Level {
    /// The mean.
    pub mean: f64,
    /// Standard error of the mean.
    pub error: f64,
    /// Works.
    pub count: f64,
}

/// Speeds relative to their mean, with the relative half-width of their 95 % interval. Servers whose speeds cannot be told
/// apart have the same.
pub fn speeds(levels: &[Level]) -> Vec<(f64, f64)> {
    let mut order: Vec<usize> = (0..levels.len()).filter(|i| levels[*i].count > 1.0).collect();
    order.sort_by(|a, b| levels[*a].mean.total_cmp(&levels[*b].mean));
    // Neighbours in the order of their levels, joined while they are the same.
    let mut groups: Vec<(Level, Vec<usize>)> = order.iter().map(|i| (levels[*i], vec![*i])).collect();
    loop {
        let apart = |pair: &[(Level, Vec<usize>)]| {
            let error = (pair[0].0.error.powi(2) + pair[1].0.error.powi(2)).sqrt();
            (pair[1].0.mean - pair[0].0.mean) / (ERRORS * error).max(SAME)
        };
        let nearest = (0..groups.len().saturating_sub(1)).map(|i| (apart(&groups[i..i + 2]), i));
        let Some((distance, at)) = nearest.min_by(|a, b| a.0.total_cmp(&b.0)) else { break };
        if distance >= 1.0 {
            break;
        }
        let (second, members) = groups.remove(at + 1);
        let (first, into) = &mut groups[at];
        let count = first.count + second.count;
        first.mean = (first.mean * first.count + second.mean * second.count) / count;
        first.error = ((first.error * first.count).powi(2) + (second.error * second.count).powi(2)).sqrt() / count;
        first.count = count;
        into.extend(members);
    }
    let total: f64 = groups.iter().map(|(level, _)| level.count).sum();
    let middle = groups.iter().map(|(level, _)| level.mean * level.count).sum::<f64>() / total.max(1.0);
    let mut speeds = vec![(1.0, f64::INFINITY); levels.len()];
    for (level, members) in groups {
        members.into_iter().for_each(|i| speeds[i] = ((middle - level.mean).exp(), 1.96 * level.error));
    }
    speeds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_is_no_difference() {
        let level = |mean: f64, error: f64| Level { mean, error, count: 1_000.0 };
        let same = speeds(&[level(1.0, 0.03), level(1.05, 0.03), level(0.95, 0.03)]);
        assert!(same.iter().all(|(speed, _)| (speed - 1.0).abs() < 1e-9), "{same:?}");
        let two = speeds(&[level(1.0, 0.01), level(1.0 + 2f64.ln(), 0.01), level(1.01, 0.01)]);
        assert!((two[0].0 / two[1].0 - 2.0).abs() < 0.02 && two[0] == two[2], "{two:?}");
        let unseen = speeds(&[level(1.0, 0.01), Level::default()]);
        assert_eq!(unseen[1].0, 1.0);
    }
}
