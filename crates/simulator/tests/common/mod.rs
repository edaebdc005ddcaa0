//! What the tests of the ready scenarios have in common.

#![allow(dead_code, reason = "each file of tests uses a part of it")]

use balanza_simulator::gallery;
use balanza_simulator::result::{Comparison, Point, Run};
use balanza_simulator::{Progress, Scenario, run};

pub fn ready(name: &str) -> Scenario {
    gallery::find(name).expect("it is there").scenario().expect("it is a scenario")
}

pub fn simulated(scenario: &Scenario) -> Comparison {
    run(scenario, ".".as_ref(), &Progress::new()).expect("it can be simulated")
}

pub fn only(scenario: &Scenario) -> Point {
    let [point] = <[Point; 1]>::try_from(simulated(scenario).points).expect("one load");
    point
}

/// The run of an algorithm, by its text.
pub fn of<'a>(point: &'a Point, algorithm: &str) -> &'a Run {
    let found = point.runs.iter().find(|run| run.algorithm == algorithm);
    found.unwrap_or_else(|| panic!("{algorithm} was not simulated"))
}

pub fn mean(point: &Point, algorithm: &str) -> f64 {
    of(point, algorithm).mean_time_in_system
}

#[track_caller]
pub fn near(value: f64, expected: f64, part: f64) {
    assert!((value / expected - 1.0).abs() <= part, "{value} is not within {part} of {expected}");
}
