//! What is wrong with a load.

use super::{Arrivals, Load};

/// What is wrong with a load: the field, what is wrong, what to do.
pub(super) fn problems_of_a_load(load: &Load) -> Vec<(&'static str, String, String)> {
    let open = load.is_open();
    let ways = [load.users.is_some(), load.rate.is_some(), load.log.is_some()];
    let several = ways.iter().filter(|given| **given).count() > 1;
    let log = load.log.as_ref();
    let wrongs = [
        (
            several,
            if load.rate.is_some() { "rate" } else { "log" },
            "more than one of users, rate and log",
            "users are a closed loop, a rate or a log is an open one",
        ),
        (
            load.users.is_none() && !open,
            "name",
            "neither users nor a rate nor a log",
            "users = 100, or rate = 1000, or log = { file = \"access.log\" }",
        ),
        (
            log.is_some_and(|log| !(log.speed > 0.0 && log.speed <= 1e6)),
            "log.speed",
            "no speed",
            "above 0; 2 is twice as fast as the log",
        ),
        (
            log.is_some() && (load.path != "/" || load.pages != 1),
            if load.pages == 1 { "path" } else { "pages" },
            "a log has its own paths",
            "leave it out",
        ),
        (load.users == Some(0), "users", "0 users send nothing", "1 or more"),
        (
            load.rate.is_some_and(|rate| !(rate > 0.0 && rate <= 1e6)),
            "rate",
            "no rate",
            "between 0 and 1,000,000 a second",
        ),
        (
            load.duration.is_some() && load.requests.is_some(),
            "requests",
            "both a duration and requests",
            "one of them ends it",
        ),
        (
            load.duration.is_none() && load.requests.is_none(),
            "name",
            "no end",
            "duration = \"10s\", or requests = 10000",
        ),
        (load.requests == Some(0), "requests", "0 requests", "1 or more"),
        (
            load.duration.is_some_and(|time| time <= load.warmup),
            "warmup",
            "nothing is left after the warm-up",
            "the duration contains it",
        ),
        (load.timeout.is_zero(), "timeout", "a timeout of nothing", "1ms or more"),
        (open && !load.think.is_zero(), "think", "a rate has no users that think", "leave it out"),
        (open && !load.ramp.is_zero(), "ramp", "a rate has no users that start", "leave it out"),
        (
            load.rate.is_none() && load.arrivals == Arrivals::Poisson,
            "arrivals",
            "arrivals are of a rate",
            "users send when they are answered, and a log has its own times",
        ),
        (!load.path.starts_with('/'), "path", "a path begins with /", ""),
        (load.path.contains([' ', '\r', '\n']), "path", "a path without spaces", "write %20"),
        (load.pages > 1 && !load.path.contains("{}"), "pages", "the path names no page", "path = \"/page/{}\""),
        (load.pages == 0, "pages", "0 pages", "1 or more"),
        (!(1..=10_000).contains(&load.sources), "sources", "no number of addresses", "between 1 and 10000"),
        (load.connections_max == Some(0), "connections_max", "0 connections send nothing", "1 or more"),
    ];
    let wrongs = wrongs.into_iter().filter(|(wrong, ..)| *wrong);
    let told = |message: &str| format!("load \"{}\": {message}", load.name);
    let problems: Vec<_> = wrongs.map(|(_, field, message, hint)| (field, told(message), hint.to_owned())).collect();
    match load.check_tool() {
        Err(reason) if problems.is_empty() => vec![("tool", told(&reason), String::new())],
        _ => problems,
    }
}
