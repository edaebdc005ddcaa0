//! A zone of `limit_req`.

use std::sync::Arc;

use balanza_config::model::{self, RequestLimit};
use balanza_config::template::Template;

use super::bucket::{Bucket, wait};
use super::counts::Counts;
use super::table::{Table, Updated};

/// Bytes of a state in NGINX, without its key.
const STATE: usize = 80;

/// A zone in one configuration.
pub struct RequestZone {
    /// Its name.
    pub name: String,
    /// What requests are counted by.
    pub key: Template,
    /// Thousandths of a request in a second.
    rate: u64,
    states: Arc<States>,
}

/// What is kept over reloads.
struct States {
    size: u64,
    key: String,
    buckets: Table<Bucket>,
    counts: Counts,
}

/// What a zone says of a request. Excesses are in thousandths of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// Within the burst.
    Within(u64),
    /// Beyond it.
    Beyond(u64),
    /// There is no memory for the key.
    Full,
}

impl RequestZone {
    /// A zone with the states that it had in the configuration before.
    ///
    /// # Errors
    /// It had another key.
    pub fn new(conf: &model::RequestZone, before: Option<&RequestZone>) -> anyhow::Result<RequestZone> {
        let kept = before.map(|before| &before.states).filter(|states| states.size == conf.size);
        if let Some(states) = kept
            && states.key != conf.key_text
        {
            let (name, key, was) = (&conf.name, &conf.key_text, &states.key);
            anyhow::bail!("limit_req \"{name}\" uses the \"{key}\" key while previously it used the \"{was}\" key");
        }
        let states = kept.cloned().unwrap_or_else(|| {
            Arc::new(States {
                size: conf.size,
                key: conf.key_text.clone(),
                buckets: Table::new(conf.size, STATE),
                counts: Counts::default(),
            })
        });
        Ok(RequestZone { name: conf.name.clone(), key: conf.key.clone(), rate: conf.rate, states })
    }

    /// Counts a request, unless it is beyond the burst. `now` is in milliseconds.
    pub fn take(&self, key: &[u8], limit: &RequestLimit, now: u64) -> Found {
        let rate = self.rate;
        let stale = |bucket: &Bucket| bucket.is_stale(rate, now);
        let updated = self.states.buckets.update(key, Bucket::first(now), stale, |bucket| {
            let excess = bucket.excess(rate, now);
            if excess > limit.burst {
                return Found::Beyond(excess);
            }
            bucket.take(rate, now);
            Found::Within(excess)
        });
        match updated {
            Updated::Old(found) => found,
            Updated::New => Found::Within(0),
            Updated::Full => Found::Full,
        }
    }

    /// The same without counting it: other zones have to be asked too.
    pub fn look(&self, key: &[u8], limit: &RequestLimit, now: u64) -> Found {
        let excess = self.states.buckets.find(key).map_or(0, |bucket| bucket.excess(self.rate, now));
        if excess > limit.burst { Found::Beyond(excess) } else { Found::Within(excess) }
    }

    /// Counts a request that was looked at.
    pub fn settle(&self, key: &[u8], now: u64) -> Found {
        let stale = |bucket: &Bucket| bucket.is_stale(self.rate, now);
        let take = |bucket: &mut Bucket| bucket.take(self.rate, now);
        match self.states.buckets.update(key, Bucket::first(now), stale, take) {
            Updated::Old(excess) => Found::Within(excess),
            Updated::New => Found::Within(0),
            Updated::Full => Found::Full,
        }
    }

    /// Milliseconds that a request with this excess waits.
    pub fn wait(&self, excess: u64, limit: &RequestLimit) -> u64 {
        wait(excess, limit.delay, self.rate)
    }

    /// The key as it is written.
    pub fn key_text(&self) -> &str {
        &self.states.key
    }

    /// What was decided.
    pub fn counts(&self) -> &Counts {
        &self.states.counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conf(rate: u64, size: u64, key: &str) -> model::RequestZone {
        let key_text = key.to_string();
        model::RequestZone { name: "one".into(), size, key: Template::default(), key_text, rate }
    }

    const LIMIT: RequestLimit = RequestLimit { zone: 0, burst: 2000, delay: 0 };

    #[test]
    fn a_reload_keeps_the_states_and_takes_the_rate() {
        let one = RequestZone::new(&conf(1000, 1 << 20, "$a"), None).unwrap();
        let found: Vec<Found> = (0..4).map(|_| one.take(b"k", &LIMIT, 5000)).collect();
        assert_eq!(found, [Found::Within(0), Found::Within(1000), Found::Within(2000), Found::Beyond(3000)]);
        let next = RequestZone::new(&conf(4000, 1 << 20, "$a"), Some(&one)).unwrap();
        assert_eq!(next.take(b"k", &LIMIT, 5250), Found::Within(2000));
        assert_eq!(next.wait(2000, &LIMIT), 500);
        // Another size begins with nothing.
        let larger = RequestZone::new(&conf(4000, 2 << 20, "$b"), Some(&next)).unwrap();
        assert_eq!(larger.take(b"k", &LIMIT, 5250), Found::Within(0));
        let error = RequestZone::new(&conf(4000, 2 << 20, "$c"), Some(&larger)).err().unwrap().to_string();
        assert_eq!(error, "limit_req \"one\" uses the \"$c\" key while previously it used the \"$b\" key");
    }

    #[test]
    fn looking_counts_nothing() {
        let one = RequestZone::new(&conf(1000, 1 << 20, "$a"), None).unwrap();
        assert_eq!(one.look(b"k", &LIMIT, 5), Found::Within(0));
        assert_eq!(one.settle(b"k", 5), Found::Within(0));
        assert_eq!(one.look(b"k", &LIMIT, 5), Found::Within(1000));
        assert_eq!(one.look(b"k", &LIMIT, 5), Found::Within(1000));
        assert_eq!(one.settle(b"k", 5), Found::Within(1000));
    }

    #[test]
    fn threads_let_in_no_more_than_the_burst() {
        let one = RequestZone::new(&conf(1000, 1 << 20, "$a"), None).unwrap();
        let limit = RequestLimit { burst: 99_000, ..LIMIT };
        let passed: usize = std::thread::scope(|scope| {
            let thread = || (0..1000).filter(|_| matches!(one.take(b"k", &limit, 7), Found::Within(_))).count();
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(thread)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(passed, 100);
    }
}
