//! Prequal against the figure of its source's rule, and never worse than random.

use balanza_simulator::{Progress, Scenario, run};

/// Mean times in system in seconds: `prequal`, with probes, `random`.
fn means(balancers: u32, view: &str, servers: &str, service: &str, load: f64) -> [f64; 3] {
    let scenario = Scenario::parse(&format!(
        r#"
        algorithms = ["prequal", "prequal probe=/", "random"]
        loads = [{load}]
        replications = 2
        run = {{ requests = 100000 }}
        service = {{ kind = "exponential", mean = "{service}" }}
        dispatchers = {{ count = {balancers}, view = "{view}" }}
        {servers}
        "#
    ));
    let comparison = run(&scenario.unwrap(), ".".as_ref(), &Progress::new()).unwrap();
    std::array::from_fn(|i| comparison.points[0].runs[i].mean_time_in_system)
}

/// The paper's rule (NSDI 2024) has a mean of 46 ms on this farm, simulated on its own.
#[test]
fn it_does_not_herd() {
    let equal = "[[servers]]\ncount = 20";
    for (balancers, view) in [(1, "shared"), (10, "own"), (10, "shared"), (50, "own"), (50, "shared")] {
        let [prequal, probed, random] = means(balancers, view, equal, "20ms", 0.8);
        let most = if balancers == 1 { 0.046 } else { random };
        assert!(prequal < most && probed < most, "{balancers} {view}: {prequal}, {probed}; random {random}");
    }
}

#[test]
fn a_weight_does_not_count_twice() {
    let unequal = "[[servers]]\ncount = 5\nspeed = 2.0\nweight = 2\n[[servers]]\ncount = 5";
    let [prequal, probed, random] = means(1, "shared", unequal, "1s", 0.7);
    assert!(prequal < 0.6 * random && probed < 0.7 * random, "{prequal}, {probed}; random {random}");
}
