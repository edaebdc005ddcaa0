//! Spans that are lost, as the error log is told of them: of each kind of reason once a minute.

use std::time::{Duration, Instant};

use super::failure::Kind;

/// How often a kind is told of at most.
const SILENCE: Duration = Duration::from_secs(60);

/// Spans that were lost.
#[derive(Default)]
pub struct Losses(Vec<Loss>);

struct Loss {
    kind: Kind,
    /// The latest reason.
    why: String,
    /// Spans that were not told of yet.
    count: u64,
    told: Option<Instant>,
}

impl Losses {
    /// Counts spans that were lost.
    pub fn add(&mut self, kind: Kind, count: u64, why: &str) {
        if count == 0 {
            return;
        }
        match self.0.iter_mut().find(|loss| loss.kind == kind) {
            Some(loss) => {
                loss.count += count;
                why.clone_into(&mut loss.why);
            }
            None => self.0.push(Loss { kind, why: why.to_owned(), count, told: None }),
        }
    }

    /// What is to be told now: how many, and why.
    pub fn due(&mut self, now: Instant) -> impl Iterator<Item = (u64, &str)> {
        let is_due = move |told: Option<Instant>| told.is_none_or(|told| now.duration_since(told) >= SILENCE);
        let due = self.0.iter_mut().filter(move |loss| loss.count > 0 && is_due(loss.told));
        due.map(move |loss| {
            loss.told = Some(now);
            (std::mem::take(&mut loss.count), &*loss.why)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_is_told_of_once_a_minute() {
        let mut losses = Losses::default();
        let begin = Instant::now();
        let due = |losses: &mut Losses, seconds| -> Vec<(u64, String)> {
            let now = begin + Duration::from_secs(seconds);
            losses.due(now).map(|(count, why)| (count, why.to_owned())).collect()
        };
        losses.add(Kind::Http(400), 0, "none");
        assert_eq!(due(&mut losses, 0), []);
        losses.add(Kind::Http(400), 2, "bad");
        assert_eq!(due(&mut losses, 0), [(2, "bad".into())]);
        losses.add(Kind::Http(400), 3, "bad");
        losses.add(Kind::Http(404), 5, "none");
        losses.add(Kind::Crowded, 7, "many");
        assert_eq!(due(&mut losses, 1), [(5, "none".into()), (7, "many".into())]);
        losses.add(Kind::Http(400), 4, "still bad");
        assert_eq!(due(&mut losses, 59), []);
        assert_eq!(due(&mut losses, 60), [(7, "still bad".into())]);
        assert_eq!(due(&mut losses, 600), []);
    }
}
