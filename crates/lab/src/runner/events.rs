//! The events of one run: what is due, and what has happened.

use std::collections::VecDeque;
use std::time::Duration;

use crate::plan::{Action, Event, Farm};
use crate::process::Sampler;
use crate::record::{Deed, Happened};
use crate::servers::Servers;

/// How soon to look again after something that is not done yet.
const AGAIN: Duration = Duration::from_millis(5);

/// Who does it.
pub(super) trait Hands {
    /// Returns whether it is done; it is asked for again otherwise.
    fn perform(&mut self, server: usize, deed: Deed, factor: f64) -> anyhow::Result<bool>;
    /// Whether a server that was told to stop has ended.
    fn is_gone(&mut self, server: usize) -> anyhow::Result<bool>;
}

/// Servers, and who watches their processes.
pub(super) struct Watched<'a> {
    pub servers: &'a mut Servers,
    pub sampler: &'a Sampler,
}

impl Hands for Watched<'_> {
    fn perform(&mut self, server: usize, deed: Deed, factor: f64) -> anyhow::Result<bool> {
        let before = self.servers.pid(server);
        let done = self.servers.perform(server, deed, factor)?;
        match self.servers.pid(server) {
            Some(pid) if before != Some(pid) => self.sampler.again(&self.servers.names()[server], pid),
            _ => {}
        }
        Ok(done)
    }

    fn is_gone(&mut self, server: usize) -> anyhow::Result<bool> {
        self.servers.is_gone(server)
    }
}

/// The events of a run on their way.
pub(super) struct Events {
    /// The measured time begins so long after the load.
    from: Duration,
    courses: Vec<Course>,
    happened: Vec<Happened>,
}

/// Steps that are made one after the other.
struct Course {
    steps: VecDeque<Step>,
    factor: f64,
    /// When the last one was done.
    last: Duration,
}

struct Step {
    server: usize,
    name: String,
    when: When,
    what: What,
}

enum When {
    /// Since the load began.
    At(Duration),
    /// Since the step before was done.
    After(Duration),
}

enum What {
    Do(Deed),
    /// Waits until the server has ended.
    Gone,
}

impl Events {
    /// Those of a farm, for a load whose measured time begins after `from`.
    pub(super) fn new(farm: &Farm, from: Duration) -> Events {
        let courses = farm.events.iter().flat_map(|event| courses(event, farm, from)).collect();
        Events { from, courses, happened: Vec::new() }
    }

    /// Does what is due at a time since the load began. Returns how long until something else is.
    ///
    /// Errors: what cannot be done, which makes the run a failure.
    pub(super) fn advance(&mut self, now: Duration, hands: &mut impl Hands) -> anyhow::Result<Option<Duration>> {
        let from = self.from;
        let mut next: Option<Duration> = None;
        for course in &mut self.courses {
            while let Some(step) = course.steps.front() {
                let wait = step.due(course.last).saturating_sub(now);
                let wait = if !wait.is_zero() {
                    wait
                } else if match step.what {
                    What::Do(deed) => hands.perform(step.server, deed, course.factor)?,
                    What::Gone => hands.is_gone(step.server)?,
                } {
                    course.last = now;
                    self.happened.extend(step.happened(from, Some(now)));
                    course.steps.pop_front();
                    continue;
                } else {
                    AGAIN
                };
                next = Some(next.map_or(wait, |next| next.min(wait)));
                break;
            }
        }
        Ok(next)
    }

    /// All of them, those that the load's end has prevented at the end.
    pub(super) fn finish(self) -> Vec<Happened> {
        let Events { from, courses, mut happened } = self;
        happened.extend(courses.iter().flat_map(|course| &course.steps).filter_map(|step| step.happened(from, None)));
        happened
    }
}

impl Step {
    fn due(&self, last: Duration) -> Duration {
        match self.when {
            When::At(time) => time,
            When::After(wait) => last + wait,
        }
    }

    fn happened(&self, from: Duration, at: Option<Duration>) -> Option<Happened> {
        let What::Do(what) = self.what else { return None };
        let seconds = |time: Duration| time.as_secs_f64() - from.as_secs_f64();
        let planned = match self.when {
            When::At(time) => Some(seconds(time)),
            When::After(_) => None,
        };
        Some(Happened { server: self.name.clone(), what, planned, at: at.map(seconds) })
    }
}

/// A deploy goes from server to server; everything else happens to all its servers at once.
fn courses(event: &Event, farm: &Farm, from: Duration) -> Vec<Course> {
    let names = farm.names();
    let place = |name: String| names.iter().position(|known| *known == name).map(|place| (place, name));
    let servers = event.servers(farm).into_iter().filter_map(place);
    let at = from + event.at.0;
    let course = |steps: Vec<Step>| Course { steps: steps.into(), factor: event.factor(), last: Duration::ZERO };
    if event.action == Action::Deploy {
        let away = event.duration.unwrap_or_default().0;
        let steps = servers.enumerate().flat_map(|(number, (server, name))| {
            let begin = if number == 0 { When::At(at) } else { When::After(Duration::ZERO) };
            let step = |when, what| Step { server, name: name.clone(), when, what };
            [
                step(begin, What::Do(Deed::Stop)),
                step(When::After(Duration::ZERO), What::Gone),
                step(When::After(away), What::Do(Deed::Start)),
            ]
        });
        return vec![course(steps.collect())];
    }
    let (deed, back) = match event.action {
        Action::Stop | Action::Deploy => (Deed::Stop, Deed::Start),
        Action::Kill => (Deed::Kill, Deed::Start),
        Action::Freeze => (Deed::Freeze, Deed::Thaw),
        Action::Slow => (Deed::Slow, Deed::Fast),
        Action::Fail => (Deed::Fail, Deed::Work),
    };
    let of_one = |(server, name): (usize, String)| {
        let step = |when, what| Step { server, name: name.clone(), when, what };
        let mut steps = vec![step(When::At(at), What::Do(deed))];
        if deed == Deed::Stop {
            steps.push(step(When::After(Duration::ZERO), What::Gone));
        }
        steps.extend(event.duration.map(|duration| step(When::At(at + duration.0), What::Do(back))));
        course(steps)
    };
    servers.map(of_one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that was told to stop needs 30 ms, one that is started 20.
    #[derive(Default)]
    struct Slowly {
        now: u64,
        since: Option<u64>,
        done: Vec<String>,
    }

    impl Slowly {
        fn after(&mut self, time: u64) -> bool {
            let done = *self.since.get_or_insert(self.now) + time <= self.now;
            if done {
                self.since = None;
            }
            done
        }
    }

    impl Hands for Slowly {
        fn perform(&mut self, server: usize, deed: Deed, factor: f64) -> anyhow::Result<bool> {
            if deed == Deed::Start && !self.after(20) {
                return Ok(false);
            }
            let factor = if deed == Deed::Slow { format!(" {factor}") } else { String::new() };
            self.done.push(format!("{} {deed:?}{factor} {server}", self.now));
            Ok(true)
        }

        fn is_gone(&mut self, _: usize) -> anyhow::Result<bool> {
            Ok(self.after(30))
        }
    }

    /// What is done, and what is recorded, in the first 5 seconds of a load whose measured time begins after one.
    fn run(events: &str) -> (Vec<String>, Vec<Happened>) {
        let text = format!("name = 'f'\nservers = [{{ name = 's', count = 3 }}]\nevents = [{events}]");
        let mut events = Events::new(&toml::from_str(&text).unwrap(), Duration::from_secs(1));
        let mut hands = Slowly::default();
        while let Some(wait) = events.advance(Duration::from_millis(hands.now), &mut hands).unwrap() {
            hands.now += wait.as_millis() as u64;
            if hands.now > 5000 {
                break;
            }
        }
        (hands.done, events.finish())
    }

    #[test]
    fn what_happens_happens_at_its_time_and_is_undone() {
        let (done, happened) = run("{ at = '2s', do = 'freeze', servers = ['s-2'], duration = '500ms' }, \
             { at = '1s', do = 'slow', factor = 8, servers = ['s-1'], duration = '9s' }, { at = '1500ms', do = 'kill', servers = ['s-3'] }");
        assert_eq!(done, ["2000 Slow 8 0", "2500 Kill 2", "3000 Freeze 1", "3500 Thaw 1"]);
        let of = |server: &str, what, planned, at| Happened { server: server.into(), what, planned: Some(planned), at };
        let expected = [
            of("s-1", Deed::Slow, 1.0, Some(1.0)),
            of("s-3", Deed::Kill, 1.5, Some(1.5)),
            of("s-2", Deed::Freeze, 2.0, Some(2.0)),
            of("s-2", Deed::Thaw, 2.5, Some(2.5)),
            of("s-1", Deed::Fast, 10.0, None),
        ];
        assert_eq!(happened, expected);
    }

    #[test]
    fn a_deploy_goes_from_server_to_server() {
        let (done, happened) = run("{ at = '1s', do = 'deploy', servers = ['s-1', 's-3'], duration = '100ms' }");
        assert_eq!(done, ["2000 Stop 0", "2150 Start 0", "2150 Stop 2", "2300 Start 2"]);
        let times: Vec<_> = happened.iter().map(|event| (event.what, event.planned)).collect();
        let expected = [(Deed::Stop, Some(1.0)), (Deed::Start, None), (Deed::Stop, None), (Deed::Start, None)];
        assert_eq!(times, expected);
    }

    #[test]
    fn one_that_stops_late_is_started_when_it_has_ended() {
        let (done, _) = run("{ at = '0s', do = 'stop', duration = '10ms', servers = ['s-1'] }");
        assert_eq!(done, ["1000 Stop 0", "1050 Start 0"]);
    }
}
