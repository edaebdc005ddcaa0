//! What happened lately.

use std::collections::VecDeque;
use std::time::SystemTime;

use balanza_config::model::membership::Protocol;

/// How many are remembered.
const MOST: usize = 1000;

/// Something that happened.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Event {
    /// What: `start`, `respawn`, `reload`, `added`, `removed`, `state`, `drained`, `cut_off`, `method` or `experiment`.
    pub kind: &'static str,
    /// The same for people.
    pub text: String,
    /// The upstream that it concerns.
    pub upstream: Option<(Protocol, String)>,
    /// The server that it concerns.
    pub server: Option<String>,
}

/// The last events, numbered from 1.
#[derive(Default)]
pub struct Events {
    list: VecDeque<(u64, SystemTime, Event)>,
    last: u64,
}

impl Events {
    /// Adds one.
    pub fn add(&mut self, time: SystemTime, event: Event) {
        self.last += 1;
        if self.list.len() == MOST {
            self.list.pop_front();
        }
        self.list.push_back((self.last, time, event));
    }

    /// Those with a number above this one.
    pub fn since(&self, number: u64) -> impl Iterator<Item = &(u64, SystemTime, Event)> {
        self.list.iter().filter(move |(known, _, _)| *known > number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_events_are_forgotten() {
        let mut events = Events::default();
        for _ in 0..MOST + 5 {
            events.add(SystemTime::UNIX_EPOCH, Event::default());
        }
        let numbers: Vec<u64> = events.since(0).map(|(number, _, _)| *number).collect();
        assert_eq!((numbers.len(), numbers[0]), (MOST, 6));
        assert_eq!(events.since(1003).count(), 2);
    }
}
