//! What is known of a run beside what the client saw, and whether it may be believed.

use crate::plan::System;
use crate::process::{descendants, of_one};
use crate::record::{Deed, Happened, Measured, ProcessRecord, Role, ServerRecord};
use crate::system::Running;

/// What the sender of a load is called.
pub(super) const CLIENT: &str = "client";

/// What servers counted between two moments. What is a maximum began with the server.
pub(super) fn difference(before: &[ServerRecord], after: Vec<ServerRecord>) -> Vec<ServerRecord> {
    let since = |mut now: ServerRecord| {
        if let Some(before) = before.iter().find(|before| before.name == now.name) {
            now.requests = now.requests.saturating_sub(before.requests);
            now.aborted = now.aborted.saturating_sub(before.aborted);
        }
        now
    };
    after.into_iter().map(since).collect()
}

/// What the lab's own generator used, which it knows itself: it is a thread of this process.
pub(super) fn client(measured: &Measured, elapsed: f64) -> Option<ProcessRecord> {
    let share = measured.cpu?;
    let memory_max = of_one(std::process::id().cast_signed()).map_or(0, |usage| usage.memory);
    Some(ProcessRecord {
        name: CLIENT.into(),
        role: Role::Client,
        user: share * elapsed,
        system: 0.0,
        memory_max,
        samples: vec![(elapsed, share)],
    })
}

/// The processes of the system below its own.
pub(super) fn workers(system: &mut Running) -> Vec<i32> {
    system.process().map(|process| descendants(process.pid())).unwrap_or_default()
}

/// Whether a worker has ended and another was put in its place.
pub(super) fn replaced(before: &[i32], system: &mut Running) -> Option<String> {
    let now = workers(system);
    let gone = before.iter().filter(|pid| !now.contains(pid)).count();
    let process = system.process()?;
    let name = process.name();
    (gone > 0).then(|| match process.last_output() {
        words if words.is_empty() => format!("{name} lost a worker during the run"),
        words => format!("{name} lost a worker during the run and says: {words}"),
    })
}

/// Whether more was answered than the servers have answered, so somebody else did.
pub(super) fn uncounted(
    measured: &Measured,
    servers: &[ServerRecord],
    events: &[Happened],
    system: &System,
) -> Option<String> {
    // A balancer of the user's may have servers of its own, and the user's servers do not count.
    if matches!(system, System::Url { .. }) || servers.is_empty() {
        return None;
    }
    // One that the plan has ended could not say its last count: what the client has from it was its own.
    let left = |server: &ServerRecord| {
        let ended = |event: &Happened| event.server == server.name && matches!(event.what, Deed::Stop | Deed::Kill);
        events.iter().any(|event| event.at.is_some() && ended(event))
    };
    if measured.by_server.is_empty() && servers.iter().any(left) {
        return None;
    }
    let given = |server: &ServerRecord| measured.by_server.get(&server.name).copied().unwrap_or_default();
    let of_one = |server: &ServerRecord| server.requests.max(if left(server) { given(server) } else { 0 });
    let counted: u64 = servers.iter().map(of_one).sum();
    let answered = measured.answered;
    (answered > counted).then(|| format!("the client has {answered} answers, the servers gave {counted}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(name: &str, requests: u64, aborted: u64) -> ServerRecord {
        ServerRecord { name: name.into(), requests, aborted, in_flight_max: 7, queued_max: 3 }
    }

    #[test]
    fn what_was_counted_before_does_not_count() {
        let before = [record("a", 5, 1), record("b", 2, 0)];
        let after = vec![record("a", 105, 4), record("b", 2, 0), record("c", 9, 9)];
        assert_eq!(difference(&before, after), [record("a", 100, 3), record("b", 0, 0), record("c", 9, 9)]);
    }

    #[test]
    fn the_client_s_own_share_is_taken_over_the_time_that_passed() {
        let measured = Measured { cpu: Some(0.25), seconds: 3.0, ..Measured::default() };
        let record = client(&measured, 4.0).unwrap();
        assert_eq!((record.user, record.role, record.samples.as_slice()), (1.0, Role::Client, &[(4.0, 0.25)][..]));
        assert!(record.memory_max > 0);
        assert_eq!(client(&Measured::default(), 4.0), None);
    }

    #[test]
    fn answers_that_no_server_gave_are_noticed() {
        let measured = Measured { answered: 101, ..Measured::default() };
        let servers = [record("a", 60, 0), record("b", 40, 0)];
        let reason = uncounted(&measured, &servers, &[], &System::Nginx).unwrap();
        assert_eq!(reason, "the client has 101 answers, the servers gave 100");
        assert_eq!(uncounted(&Measured { answered: 100, ..measured.clone() }, &servers, &[], &System::Nginx), None);
        assert_eq!(uncounted(&measured, &[], &[], &System::Nginx), None);
        let own = System::Url { name: "mine".into(), url: "http://127.0.0.1:1".into() };
        assert_eq!(uncounted(&measured, &servers, &[], &own), None);
    }

    #[test]
    fn one_that_the_plan_has_ended_gave_what_the_client_has_from_it() {
        let servers = [record("a", 60, 0), record("b", 40, 0)];
        let by_server = [("a".to_owned(), 60), ("b".to_owned(), 45)].into();
        let measured = Measured { answered: 105, by_server, ..Measured::default() };
        let event = |server: &str, what, at| Happened { server: server.into(), what, planned: Some(1.0), at };
        let reason = |events: &[Happened]| uncounted(&measured, &servers, events, &System::Nginx);
        assert_eq!(reason(&[event("b", Deed::Kill, Some(1.0))]), None);
        assert_eq!(reason(&[event("b", Deed::Stop, Some(1.0))]), None);
        // Neither of these takes a count away, and an answer of nobody's is noticed in any case.
        for harmless in
            [event("b", Deed::Freeze, Some(1.0)), event("a", Deed::Kill, Some(1.0)), event("b", Deed::Kill, None)]
        {
            assert!(reason(std::slice::from_ref(&harmless)).is_some(), "{harmless:?}");
        }
        let more = Measured { answered: 106, ..measured.clone() };
        assert!(uncounted(&more, &servers, &[event("b", Deed::Kill, Some(1.0))], &System::Nginx).is_some());
        let unknown = Measured { by_server: Default::default(), ..more };
        assert_eq!(uncounted(&unknown, &servers, &[event("b", Deed::Kill, Some(1.0))], &System::Nginx), None);
    }
}
