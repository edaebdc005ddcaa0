//! What is known of a run beside what the client saw, and whether it may be believed.

use crate::plan::System;
use crate::process::{descendants, of_one};
use crate::record::{Measured, ProcessRecord, Role, ServerRecord};
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
pub(super) fn uncounted(measured: &Measured, servers: &[ServerRecord], system: &System) -> Option<String> {
    // A balancer of the user's may have servers of its own, and the user's servers do not count.
    if matches!(system, System::Url { .. }) || servers.is_empty() {
        return None;
    }
    let counted: u64 = servers.iter().map(|server| server.requests).sum();
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
        let reason = uncounted(&measured, &servers, &System::Nginx).unwrap();
        assert_eq!(reason, "the client has 101 answers, the servers gave 100");
        assert_eq!(uncounted(&Measured { answered: 100, ..measured.clone() }, &servers, &System::Nginx), None);
        assert_eq!(uncounted(&measured, &[], &System::Nginx), None);
        let own = System::Url { name: "mine".into(), url: "http://127.0.0.1:1".into() };
        assert_eq!(uncounted(&measured, &servers, &own), None);
    }
}
