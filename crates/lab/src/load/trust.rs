//! Whether a measurement is one of the system, or of the generator that measured it.

use crate::record::Measured;

/// More of a processor than this, and the generator has no time left to be on time: it does one thing after the other.
const CPU_MAX: f64 = 0.9;

/// Seconds by which a generator may be late that shares its processors with what it measures: a few of their turns.
pub(super) const LAG_ALLOWED: f64 = 0.01;

/// Part of the median latency that the lag may be: what it adds to the times is then smaller than what is compared.
const LAG_PART: f64 = 0.1;

/// Why the measurement must not be believed; empty if nothing speaks against it.
///
/// The generator was the bottleneck if it used more than 0.9 of a processor, or if it was late, in more than one of 100
/// cases, by more than 10 ms and more than a tenth of the median latency. Tools that tell neither are believed.
pub fn invalid(measured: &Measured) -> Vec<String> {
    let mut reasons = Vec::new();
    if let Some(cpu) = measured.cpu.filter(|&cpu| cpu > CPU_MAX) {
        reasons.push(format!(
            "the load generator was the bottleneck: it used {:.0} % of a processor, and more than {:.0} % leaves no time \
             to be on time",
            cpu * 100.0,
            CPU_MAX * 100.0
        ));
    }
    if let Some(lag) = measured.lag.as_ref().and_then(|lag| lag.quantile(0.99)) {
        let median = measured.latency.quantile(0.5).unwrap_or(0.0);
        let allowed = LAG_ALLOWED.max(LAG_PART * median);
        if lag > allowed {
            reasons.push(format!(
                "the load generator was late: 1 of 100 times by {:.1} ms or more, and {:.1} ms is allowed where the \
                 median latency is {:.1} ms",
                lag * 1e3,
                allowed * 1e3,
                median * 1e3
            ));
        }
    }
    reasons
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Latency;

    fn measured(cpu: f64, lag: f64, median: f64) -> Measured {
        let of = |time: f64| Latency { count: 9, percentiles: vec![(50.0, time), (99.0, time)], ..Latency::default() };
        Measured { cpu: Some(cpu), lag: Some(of(lag)), latency: of(median), ..Measured::default() }
    }

    #[test]
    fn a_run_is_refused_for_what_the_generator_did() {
        assert_eq!(invalid(&measured(0.5, 0.001, 0.01)), Vec::<String>::new());
        // Late by 30 ms is much for answers of 10 ms and little for those of 1 s.
        assert_eq!(invalid(&measured(0.5, 0.03, 1.0)), Vec::<String>::new());
        assert_eq!(invalid(&Measured::default()), Vec::<String>::new());
        insta::assert_snapshot!(invalid(&measured(0.97, 0.03, 0.01)).join("\n"), @r"
        the load generator was the bottleneck: it used 97 % of a processor, and more than 90 % leaves no time to be on time
        the load generator was late: 1 of 100 times by 30.0 ms or more, and 10.0 ms is allowed where the median latency is 10.0 ms
        ");
    }
}
