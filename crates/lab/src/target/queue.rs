//! The queue of a target whose requests hold a worker without using a processor: a [`Station`] on the machine's clock.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::accept::Admission;
use super::station::{Event, Station};
use super::stats::Visit;
use super::timer::{Timer, rung};

/// See the module.
#[derive(Debug)]
pub(super) struct Queue {
    /// Time 0 of the station.
    epoch: Instant,
    timer: Timer,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    station: Station,
    requests: HashMap<u64, Request>,
    /// When the timer rings.
    alarm: Option<f64>,
    /// Empty between calls; kept for its memory.
    events: Vec<Event>,
}

/// What waits for a request in the station. Dropped when its work ends, or when it leaves without any.
#[derive(Debug)]
struct Request {
    visit: Visit,
    answer: oneshot::Sender<Instant>,
    /// Its connection counts as open while it is worked on, even if the client has left.
    admission: Option<Arc<Admission>>,
}

impl Queue {
    pub(super) fn new(station: Station) -> io::Result<Self> {
        let state = State { station, requests: HashMap::new(), alarm: None, events: Vec::new() };
        Ok(Self { epoch: Instant::now(), timer: Timer::new()?, state: Mutex::new(state) })
    }

    /// Waits for a worker and holds it for so long. Returns when the work ended, a moment ago. `since` is when the request
    /// counts as arrived, if not now. A caller that stops waiting gives up its place, but a worker that began goes on.
    pub(super) async fn hold(
        &self,
        work: Duration,
        since: Option<Instant>,
        mut visit: Visit,
        admission: Option<Arc<Admission>>,
    ) -> Option<Instant> {
        let (answer, answered) = oneshot::channel();
        let ticket = {
            let now = Instant::now();
            let mut state = self.lock();
            let State { station, requests, events, .. } = &mut *state;
            let number = station.arrive(self.at(since.unwrap_or(now)), work.as_secs_f64(), events);
            // It waits unless the last event is its start.
            if events.last() != Some(&Event::Started(number)) {
                visit.queue();
            }
            requests.insert(number, Request { visit, answer, admission });
            self.settle(&mut state, now);
            Ticket { queue: self, number }
        };
        let end = answered.await.ok();
        // What ended needs not leave.
        if end.is_some() {
            std::mem::forget(ticket);
        }
        end
    }

    /// Ends what has ended, whenever something has, for ever.
    pub(super) async fn run(&self) -> io::Result<()> {
        let alarms = self.timer.alarms()?;
        loop {
            rung(&alarms).await?;
            let mut state = self.lock();
            state.alarm = None;
            self.settle(&mut state, Instant::now());
        }
    }

    /// Forgets all requests, those at work too.
    pub(super) fn clear(&self) {
        let requests = std::mem::take(&mut self.lock().requests);
        drop(requests);
    }

    /// Brings what the station says happened until now to the requests, and sets the alarm for what happens next.
    fn settle(&self, state: &mut State, now: Instant) {
        let State { station, requests, alarm, events } = state;
        station.advance(self.at(now), events);
        for event in events.drain(..) {
            match event {
                Event::Started(number) => {
                    if let Some(request) = requests.get_mut(&number) {
                        request.visit.work();
                    }
                }
                Event::Ended(number, at) => {
                    let Some(Request { visit, answer, admission }) = requests.remove(&number) else { continue };
                    let end = self.epoch + Duration::from_secs_f64(at.max(0.0));
                    if answer.send(end).is_ok() {
                        visit.finish();
                    } else if let Some(admission) = admission {
                        admission.over(Some(end));
                    }
                }
            }
        }
        let due = station.due();
        if let Some(at) = due
            && *alarm != due
        {
            self.timer.set((self.epoch + Duration::from_secs_f64(at.max(0.0))).saturating_duration_since(now));
        }
        *alarm = due;
    }

    fn at(&self, instant: Instant) -> f64 {
        instant.saturating_duration_since(self.epoch).as_secs_f64()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request's place in the queue, given up when this is dropped.
struct Ticket<'a> {
    queue: &'a Queue,
    number: u64,
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        let mut state = self.queue.lock();
        if state.station.leave(self.number) {
            state.requests.remove(&self.number);
        }
    }
}
