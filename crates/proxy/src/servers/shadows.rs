//! `shadow`: algorithms that run beside the one that decides. Their choices are only counted.

use std::cell::RefCell;
use std::sync::Arc;

use balanza_balancing::{Choice, Decided, Fleet, FleetError, Member, Report, Shadow, ShadowDriver, Start, Tried};
use balanza_config::model::{self, SHADOWS_MAX};
use balanza_net::clock::{self, Nanos};

/// What each shadow of an upstream would have chosen, in the order of the configuration.
pub type Choices = [Choice; SHADOWS_MAX];

/// A shadow of an upstream, shared by its workers.
#[derive(Clone)]
pub struct Beside {
    /// The name of its algorithm.
    pub name: &'static str,
    /// The directive as it is written in the configuration.
    pub text: String,
    /// Its tables and counters.
    pub shadow: Arc<Shadow>,
}

impl Beside {
    /// Creates the shadows of an upstream with this fleet. A shadow whose line has not changed keeps its counters; if
    /// the fleet is the `same`, the shadow itself is kept.
    ///
    /// # Errors
    /// As for the fleet; a fleet that was created without an error causes none.
    pub fn all(
        conf: &model::Upstream,
        fleet: &Fleet,
        before: &[Beside],
        same: bool,
    ) -> Result<Vec<Beside>, FleetError> {
        let of = |conf: &model::Shadow| {
            let spec = &conf.balance.spec;
            let is_same = |before: &&Beside| {
                before.text == conf.text && format!("{:?}", before.shadow.spec()) == format!("{spec:?}")
            };
            let before = before.iter().find(is_same);
            if let Some(before) = before.filter(|_| same) {
                return Ok(before.clone());
            }
            let shadow = Shadow::new(spec, fleet, before.map(|before| &*before.shadow))?;
            Ok(Beside { name: conf.name(), text: conf.text.clone(), shadow: Arc::new(shadow) })
        };
        conf.shadows.iter().map(of).collect()
    }

    /// Whether two lists contain the same shadows.
    pub fn are_same(these: &[Beside], those: &[Beside]) -> bool {
        these.len() == those.len()
            && these.iter().zip(those).all(|(one, other)| Arc::ptr_eq(&one.shadow, &other.shadow))
    }
}

/// A worker's instances of an upstream's shadows.
pub struct Shadows(RefCell<Vec<ShadowDriver>>);

impl Shadows {
    /// Creates the shadows of a worker whose driver started with this seed; none in an upstream without shadows.
    pub fn of(shared: &[Beside], seed: u64, start: Start) -> Option<Shadows> {
        let driver = |beside: &Beside| ShadowDriver::new(Arc::clone(&beside.shadow), seed, start);
        (!shared.is_empty()).then(|| Shadows(RefCell::new(shared.iter().map(driver).collect())))
    }

    /// The head of a response has arrived.
    pub fn header(&self, now: Nanos, member: Member, time: Nanos) {
        self.0.borrow_mut().iter_mut().for_each(|shadow| shadow.header(now, member, time));
    }

    /// A request has ended. `latency` is how many requests were in flight at the server when it came, and its response
    /// time.
    pub fn complete(&self, now: Nanos, member: Member, report: &Report, latency: Option<(u32, Nanos)>) {
        for shadow in self.0.borrow_mut().iter_mut() {
            if let Some((in_flight, latency)) = latency {
                shadow.latency(now, member, in_flight, latency);
            }
            shadow.complete(now, member, report);
        }
    }
}

/// The shadows beside one choice.
pub struct Watching<'a> {
    shadows: Option<&'a Shadows>,
    /// The key for each shadow.
    keys: &'a [Vec<u8>],
    now: Nanos,
    choices: Choices,
}

impl<'a> Watching<'a> {
    /// No shadow has been asked yet.
    pub fn new(shadows: Option<&'a Shadows>, keys: &'a [Vec<u8>], now: Nanos) -> Watching<'a> {
        Watching { shadows, keys, now, choices: Choices::default() }
    }

    /// Asks the shadows that are compared with the server of a session.
    pub fn ask_of_session(&mut self, tried: &mut Tried) {
        self.ask(tried, ShadowDriver::judges_sessions);
    }

    /// Asks the shadows that have not been asked yet.
    pub fn ask_all(&mut self, tried: &mut Tried) {
        self.ask(tried, |_| true);
    }

    fn ask(&mut self, tried: &mut Tried, which: impl Fn(&ShadowDriver) -> bool) {
        let Some(shadows) = self.shadows else { return };
        for (at, shadow) in shadows.0.borrow_mut().iter_mut().enumerate() {
            if let Some(choice) = self.choices.get_mut(at).filter(|choice| **choice == Choice::NotAsked)
                && which(shadow)
            {
                let key = self.keys.get(at).map_or(&[][..], Vec::as_slice);
                *choice = shadow.choose(self.now, key, tried, clock::now);
            }
        }
    }

    /// A slot of `member` was taken. Returns what the shadows have chosen, if there are any.
    pub fn went(&self, member: Member, decided: Decided) -> Option<Choices> {
        for (shadow, choice) in self.shadows?.0.borrow_mut().iter_mut().zip(self.choices) {
            shadow.dispatched(self.now, member, choice, decided);
        }
        Some(self.choices)
    }
}
