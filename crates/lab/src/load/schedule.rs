//! The requests of a log at the times at which a load sends them.

use std::path::PathBuf;

use anyhow::{Context, bail};
use balanza_recommend::format::Escape;
use balanza_recommend::read::{Candidate, Input};
use balanza_recommend::requests::{Asked, Requests, requests};

use crate::plan::{self, Replay};
use crate::record::Replayed;

/// When to send what: pure data, known before the load begins.
#[derive(Debug, Default)]
pub struct Schedule {
    /// In the order of their times.
    arrivals: Vec<Arrival>,
    asked: Vec<Asked>,
    replayed: Replayed,
}

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Arrival {
    /// Nanoseconds since the load began.
    pub at: u64,
    /// Which of the texts it is.
    pub asked: u32,
    /// Number of the log's client.
    pub client: u32,
}

impl Schedule {
    /// Reads a load's log.
    ///
    /// Errors: the log cannot be read, with a format of its own if it has none that is known; it has no request there.
    pub fn read(log: &Replay) -> anyhow::Result<Schedule> {
        let escape = match log.escape {
            plan::Escape::Default => Escape::Default,
            plan::Escape::Json => Escape::Json,
            plan::Escape::None => Escape::None,
        };
        let format = |text: &String| Candidate { name: "of the plan".into(), text: text.clone(), escape };
        let formats = log.format.iter().map(format).collect();
        let input = Input { files: vec![PathBuf::from(&log.file)], formats, ..Input::default() };
        let read = requests(&input).with_context(|| format!("cannot read the log {}", log.file))?;
        let schedule = Schedule::of(read, log);
        if schedule.arrivals.is_empty() {
            let from = crate::units::show_duration(log.from.0);
            bail!("the log {} ends before from = \"{from}\"", log.file);
        }
        Ok(schedule)
    }

    fn of(log: Requests, replay: &Replay) -> Schedule {
        let first = log.requests.first().map_or(0, |request| request.begin);
        let begin = first.saturating_add(replay.from.0.as_micros() as u64);
        let cut = log.requests.iter().filter(|request| request.begin >= begin);
        let arrival = |request: &balanza_recommend::requests::Request| Arrival {
            at: ((request.begin - begin) as f64 * 1e3 / replay.speed) as u64,
            asked: request.asked,
            client: request.client,
        };
        let arrivals: Vec<Arrival> = cut.map(arrival).collect();
        let replayed = Replayed {
            requests: log.requests.len() as u64,
            unsendable: log.unsendable,
            strange: log.strange,
            exact: log.exact,
        };
        Schedule { arrivals, asked: log.asked, replayed }
    }

    /// The request of this number.
    pub(super) fn arrival(&self, number: u64) -> Option<Arrival> {
        self.arrivals.get(usize::try_from(number).ok()?).copied()
    }

    /// What a request asks for.
    pub(super) fn asked(&self, number: u32) -> Option<&Asked> {
        self.asked.get(number as usize)
    }

    /// When its last request is sent.
    pub(super) fn length(&self) -> u64 {
        self.arrivals.last().map_or(0, |last| last.at)
    }

    /// What the log gave.
    pub(super) fn replayed(&self) -> Replayed {
        self.replayed
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use balanza_recommend::requests::Request;
    use proptest::prelude::*;

    use super::*;
    use crate::load::arrivals::Arrivals;
    use crate::plan::Time;

    const SECOND: u64 = 1_000_000_000;

    fn log(begins: &[u64]) -> Requests {
        let mut begins = begins.to_vec();
        begins.sort_unstable();
        let asked = vec![Asked { method: "GET".into(), uri: "/".into() }];
        let request = |begin: &u64| Request { begin: *begin, asked: 0, client: 0 };
        Requests { requests: begins.iter().map(request).collect(), asked, ..Requests::default() }
    }

    fn replay(speed: f64, from: Duration) -> Replay {
        let text = format!("file = \"x\"\nspeed = {speed:?}");
        Replay { from: Time(from), ..toml::from_str(&text).unwrap() }
    }

    #[test]
    fn a_cut_of_a_log_at_twice_its_speed() {
        let schedule =
            Schedule::of(log(&[1_000_000, 3_000_000, 3_500_000, 9_000_000]), &replay(2.0, Duration::from_secs(2)));
        let times: Vec<u64> = schedule.arrivals.iter().map(|arrival| arrival.at).collect();
        assert_eq!(times, [0, SECOND / 4, 3 * SECOND]);
        assert_eq!((schedule.length(), schedule.replayed.requests), (3 * SECOND, 4));
    }

    #[test]
    fn a_log_that_begins_after_the_load_has_ended() {
        let schedule = Arc::new(Schedule::of(log(&[0, 6_000_000]), &replay(1.0, Duration::from_secs(1))));
        let mut arrivals = Arrivals::of_log(&schedule, 0, Some(SECOND), None);
        assert_eq!((arrivals.next(), arrivals.pop(u64::MAX)), (None, None));
    }

    proptest! {
        /// Times are those of the log, by the speed, however late they are taken; nothing is left out and nothing is
        /// sent before its time or after the end.
        #[test]
        fn times_are_the_log_s(
            begins in prop::collection::vec(0u64..20_000_000, 1..60),
            speed in 0.1f64..50.0,
            from in 0u64..5_000,
            seconds in 1u64..30,
            looks in prop::collection::vec(1u64..3_000_000_000, 1..40),
        ) {
            let from = Duration::from_millis(from);
            let schedule = Arc::new(Schedule::of(log(&begins), &replay(speed, from)));
            let mut arrivals = Arrivals::of_log(&schedule, 0, Some(seconds * SECOND), None);
            let mut sent = Vec::new();
            let mut now = 0;
            for step in looks.into_iter().chain([u64::MAX / 2]) {
                now += step;
                while let Some((intended, number)) = arrivals.pop(now) {
                    prop_assert!(intended <= now);
                    prop_assert_eq!(number, sent.len() as u64);
                    sent.push(intended);
                }
                prop_assert!(arrivals.next().is_none_or(|next| next > now));
            }
            let mut expected: Vec<u64> = begins.clone();
            expected.sort_unstable();
            let begin = expected[0] + from.as_micros() as u64;
            let expected: Vec<u64> = expected.into_iter().filter(|time| *time >= begin)
                .map(|time| ((time - begin) as f64 * 1e3 / speed) as u64)
                .filter(|time| *time < seconds * SECOND).collect();
            prop_assert_eq!(sent, expected);
        }
    }
}
