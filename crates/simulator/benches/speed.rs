//! Events a second of one core, two_choices with exponential service at a load of 0.9, 100 to 1,000,000 servers, and the
//! memory of it: `cargo bench -p balanza-simulator -- [ALGORITHM] [SERVERS…]`. By processor time, so that other work on
//! the machine does not count.
//!
//! The events counted are arrivals and ends of service: one draw of a service time, one choice, one completion, one
//! event stored and taken for each pair of them.
#![allow(missing_docs)]

use balanza_simulator::{Progress, Scenario, run};

/// What is asked for: servers, and events a second.
const BUDGETS: [(u32, f64); 2] = [(100, 10e6), (1_000_000, 2e6)];
const SIZES: [(u32, u64); 5] =
    [(100, 10_000_000), (1_000, 10_000_000), (10_000, 10_000_000), (100_000, 10_000_000), (1_000_000, 20_000_000)];

/// The greatest memory of this process so far, in MiB.
fn peak() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|l| l.trim().trim_end_matches("kB").trim().parse::<f64>().ok()).unwrap_or(0.0) / 1024.0
}

fn main() -> Result<(), balanza_simulator::Error> {
    let words: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    let (sizes, names): (Vec<&String>, Vec<&String>) = words.iter().partition(|word| word.parse::<u32>().is_ok());
    let algorithm = names.first().map_or("two_choices", |name| name.as_str());
    println!("{algorithm}, load 0.9\n{:>10} {:>12} {:>10} {:>10}", "servers", "events/s", "E[T]", "MiB");
    for (servers, requests) in
        SIZES.into_iter().filter(|(n, _)| sizes.is_empty() || sizes.iter().any(|s| **s == n.to_string()))
    {
        let scenario = format!(
            "algorithms = [\"{algorithm}\"]\nloads = [0.9]\nreplications = 1\n\
             run = {{ requests = {requests}, warmup = 0 }}\n[[servers]]\ncount = {servers}\n"
        );
        let comparison = run(&Scenario::parse(&scenario)?, ".".as_ref(), &Progress::new())?;
        let run = &comparison.points[0].runs[0];
        println!("{servers:10} {:12.3e} {:10.4} {:10.0}", run.events_per_second, run.mean_time_in_system, peak());
        for (_, least) in BUDGETS.iter().filter(|(n, least)| *n == servers && run.events_per_second < *least) {
            println!("{:10} below {least:e}", "");
        }
    }
    Ok(())
}
