//! Draws farms, gives an answer from the log of each, and compares it with the truth: scripts/verify-recommend.sh.
#![allow(clippy::print_stdout, missing_docs, reason = "its output is a table")]

use std::process::ExitCode;

use balanza_recommend::study::Question;
use balanza_recommend::trial::Truth;
use balanza_recommend::verdict::Answer;

fn main() -> ExitCode {
    let number =
        |n: usize, default: usize| std::env::args().nth(n).and_then(|text| text.parse().ok()).unwrap_or(default);
    let (drawn, equal, requests, seed) = (number(1, 40), number(2, 10), number(3, 100_000), number(4, 1) as u64);
    let worth = std::env::args().nth(5).and_then(|text| text.parse().ok()).unwrap_or(Question::default().worth);
    let question = Question { worth, ..Question::default() };
    println!(
        "farm  servers  units  order   load  answer                             true p99  best p99  predicted     off  \
         loss  right"
    );
    let (mut right, mut enough, mut near, mut said) = (0, 0, 0, 0);
    let mut losses: Vec<f64> = Vec::new();
    for farm in 0..drawn + equal {
        let is_equal = farm >= drawn;
        let seed = seed * 1_000 + farm as u64;
        let truth = if is_equal { Truth::draw_equal(seed) } else { Truth::draw(seed) };
        let trial = match truth.trial(&question, requests, 10, requests / 10) {
            Ok(trial) => trial,
            Err(error) => {
                println!("{farm}: {error}");
                return ExitCode::FAILURE;
            }
        };
        if is_equal {
            said += u32::from(trial.study.verdict.answer == Answer::Stay);
        } else {
            right += u32::from(trial.is_right());
            enough += u32::from(trial.is_right() || trial.loss() <= worth);
            near += u32::from(trial.off() <= 0.2);
            losses.push(trial.loss());
        }
        let units: Vec<String> = truth.units.iter().map(u32::to_string).collect();
        println!(
            "{:4}{} {:8} {:>6}  {:6} {:5.2}  {:32} {:8.1}ms {:7.1}ms {:8.1}ms {:6.1}% {:5.1}%  {}",
            farm,
            if is_equal { "e" } else { " " },
            truth.speeds.len(),
            units[0],
            format!("{:?}", truth.order),
            truth.load,
            trial.answer(),
            trial.chosen().p99 * 1e3,
            trial.best().p99 * 1e3,
            trial.predicted() * 1e3,
            trial.off() * 100.0,
            trial.loss() * 100.0,
            if trial.is_right() { "yes" } else { "NO" },
        );
        if std::env::var_os("DETAILS").is_some() {
            println!("      {truth:?}");
            for server in &trial.study.servers {
                println!(
                    "      {} speed {:.3} units {:?} {:?} in flight {}",
                    server.name, server.speed, server.parallel, server.parallel_range, server.in_flight_max
                );
            }
            println!("      {:?} off {:.3} {:?}", trial.study.order, trial.study.check.p99.off(), trial.study.verdict);
        }
    }
    losses.sort_by(f64::total_cmp);
    let middle = losses.get(losses.len() / 2).copied().unwrap_or(0.0);
    println!("the recommended algorithm is the best or within the interval of the best: {right} of {drawn}");
    println!("the same, or within the {:.0} % that a change has to be worth: {enough} of {drawn}", worth * 100.0);
    println!("the predicted p99 is within 20 %: {near} of {drawn}");
    println!("farms without a difference that are answered with \"stay\": {said} of {equal}");
    println!(
        "loss of p99 against the best: median {:.1}%, worst {:.1}%",
        middle * 100.0,
        losses.last().unwrap_or(&0.0) * 100.0
    );
    let parts = |count: u32, of: usize, wanted: f64| f64::from(count) >= wanted * of as f64;
    if parts(enough, drawn, 0.9) && parts(near, drawn, 0.8) && parts(said, equal, 0.9) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
