//! Servers that drain until a deadline: then they are set down, and what they still serve is closed.

use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant, SystemTime};

use balanza_balancing::Member;
use balanza_config::model::membership::{Change, Protocol, ServerKey, keys};
use balanza_config::model::{Level, UpstreamServer};

use super::{State, lock};
use crate::essential;
use crate::servers::membership::{ServerId, Shared};
use crate::worker::Command;

/// The clock of the day may be set, so that deadlines are looked at from time to time.
const LONGEST: Duration = Duration::from_secs(60);

impl State {
    /// Deadlines may have changed. Starts the thread that waits for them with the first one.
    pub(super) fn watch_drains(&mut self) {
        if let Some(thread) = &self.drainer {
            let _ = thread.send(());
            return;
        }
        if self.changes.values().all(|changed| changed.drains().is_empty()) {
            return;
        }
        let (sender, changed) = channel();
        let state = Weak::clone(&self.me);
        let run = move || {
            let _guard = essential::Guard::new("the thread of drains");
            wait(&state, &changed);
        };
        match std::thread::Builder::new().name("drains".into()).spawn(run) {
            Ok(_) => self.drainer = Some(sender),
            Err(error) => self.log(Level::Alert, format_args!("deadlines of drains are not kept: {error}")),
        }
    }

    /// Ends the drains whose time is over. Returns how long to wait for the next one.
    fn end_drains(&mut self, now: SystemTime) -> Option<Duration> {
        let mut due = Vec::new();
        let mut next: Option<SystemTime> = None;
        for ((protocol, upstream), changed) in &self.changes {
            for (key, deadline) in changed.drains() {
                if *deadline <= now {
                    due.push((*protocol, upstream.clone(), key.clone()));
                } else {
                    next = Some(next.map_or(*deadline, |next| next.min(*deadline)));
                }
            }
        }
        for (protocol, upstream, key) in due {
            if let Some((server, left)) = self.end_drain(protocol, &upstream, key) {
                self.cut_off.insert(server, (Instant::now(), left));
            }
        }
        next.map(|next| next.duration_since(now).unwrap_or_default())
    }

    /// Sets a server down and closes what it serves. Returns how much that was.
    fn end_drain(&mut self, protocol: Protocol, upstream: &str, key: ServerKey) -> Option<(ServerId, u32)> {
        let generation = Arc::clone(&self.generation);
        let shared = generation.upstream(protocol, upstream)?;
        let membership = shared.membership();
        let place = keys(&membership.servers).iter().position(|known| *known == key)?;
        let id = membership.ids[place];
        let left = membership.fleet.state(Member(place as u32)).in_flight();
        let name = &membership.servers[place].name;
        let server = UpstreamServer { draining: false, down: true, ..membership.servers[place].clone() };
        if let Err(error) = self.change(protocol, upstream, vec![Change::Set(key.clone(), server)]) {
            self.log(Level::Error, format_args!("\"{name}\" in upstream \"{upstream}\" drains on: {error}"));
            let _ = self.change(protocol, upstream, vec![Change::Drain(key, None)]);
            return None;
        }
        for worker in self.workers.iter().chain(&self.leaving) {
            let _ = worker.commands.send(Command::HangUp(protocol, upstream.to_owned(), id));
        }
        let what = if protocol == Protocol::Http { "requests" } else { "sessions" };
        let message = format_args!(
            "\"{name}\" in upstream \"{upstream}\" is down: the time to drain is over, {left} {what} in flight are closed"
        );
        self.log(Level::Notice, message);
        Some((id, left))
    }

    /// The servers of an upstream that drain until a deadline.
    pub(super) fn deadlines(&self, shared: &Shared) -> Vec<(ServerId, SystemTime)> {
        let changed = self.changes.get(&(shared.protocol, shared.conf.name.clone()));
        let Some(changed) = changed.filter(|changed| !changed.drains().is_empty()) else { return Vec::new() };
        let membership = shared.membership();
        let known = keys(&membership.servers);
        let find = |(key, deadline): &(ServerKey, SystemTime)| {
            known.iter().position(|known| known == key).map(|place| (membership.ids[place], *deadline))
        };
        changed.drains().iter().filter_map(find).collect()
    }
}

/// Waits for deadlines until the engine has ended.
fn wait(state: &Weak<Mutex<State>>, changed: &Receiver<()>) {
    loop {
        let Some(state) = state.upgrade() else { return };
        let next = lock(&state).end_drains(SystemTime::now());
        drop(state);
        if let Err(RecvTimeoutError::Disconnected) = changed.recv_timeout(next.unwrap_or(LONGEST).min(LONGEST)) {
            return;
        }
    }
}
