//! What is tested, and how it is driven.

use std::collections::VecDeque;
use std::sync::Arc;

use balanza_balancing::registry::{Share, Spec};
use balanza_balancing::{
    Driver, Fleet, Group, Member, Nanos, NoServer, Outcome, Report, ServerSpec, ServerState, Start, Tried,
};

pub const MS: Nanos = 1_000_000;
pub const SECOND: Nanos = 1_000 * MS;

/// Sizes below and beyond what algorithms scan.
pub const FEW: usize = 5;
pub const MANY: usize = 50;

use crate::forms::forms;

/// The result of a check: what is wrong.
pub type Verdict = Result<(), String>;

/// Ends a check with a message unless the condition holds.
macro_rules! require {
    ($condition:expr, $($message:tt)+) => {
        let holds: bool = $condition;
        if !holds {
            return Err(format!($($message)+));
        }
    };
}
pub(crate) use require;

/// Changes what is told of a server.
pub type Tell = fn(&mut ServerSpec);

/// The library, or the library told something else than the check believes.
#[derive(Clone, Copy)]
pub struct Subject {
    /// What it is told of a server.
    pub server: Tell,
    /// The state that it uses for a server.
    pub state: fn(&Arc<ServerState>) -> Arc<ServerState>,
    /// What it is told of groups.
    pub groups: fn(&[Group]) -> Vec<Group>,
    /// How it picks.
    pub pick: fn(&mut Driver, Nanos, &[u8], &mut Tried) -> Result<Member, NoServer>,
    /// The seed that it uses.
    pub seed: fn(u64) -> u64,
}

/// The library as it is.
pub const LIBRARY: Subject = Subject {
    server: |_| {},
    state: Arc::clone,
    groups: |groups| groups.to_vec(),
    pick: |driver, now, key, tried| driver.pick(now, key, tried),
    seed: |seed| seed,
};

impl Subject {
    pub fn fleet(&self, spec: &Spec, servers: &[(ServerSpec, Arc<ServerState>)]) -> Arc<Fleet> {
        self.fleet_with_groups(spec, servers, &[])
    }

    pub fn fleet_with_groups(
        &self,
        spec: &Spec,
        servers: &[(ServerSpec, Arc<ServerState>)],
        groups: &[Group],
    ) -> Arc<Fleet> {
        let told = |(server, state): &(ServerSpec, Arc<ServerState>)| {
            let mut server = server.clone();
            (self.server)(&mut server);
            (server, (self.state)(state))
        };
        let servers = servers.iter().map(told).collect();
        Arc::new(Fleet::with_groups(spec, servers, &(self.groups)(groups)).unwrap())
    }

    pub fn driver(&self, fleet: &Arc<Fleet>, seed: u64) -> Driver {
        Driver::new(fleet.clone(), (self.seed)(seed), Start::default())
    }
}

/// Whether the form refuses a request rather than send it to another server than its own: then a pick need not exist.
pub fn refuses(spec: &Spec) -> bool {
    spec.is_strict()
}

/// Whether a server that takes less than its weight keeps its clients nevertheless, because no other server may have
/// them.
pub fn keeps_its_clients(spec: &Spec) -> bool {
    refuses(spec) && spec.entry().share == Share::Key
}

pub fn servers(n: usize, of: impl Fn(usize, &mut ServerSpec)) -> Vec<(ServerSpec, Arc<ServerState>)> {
    let server = |i: usize| {
        let mut server = ServerSpec::new(&format!("10.0.{}.{}:80", i / 250, i % 250));
        of(i, &mut server);
        (server, Arc::new(ServerState::new()))
    };
    (0..n).map(server).collect()
}

pub fn success(time: Nanos) -> Report {
    Report { outcome: Outcome::Success, header_time: Some(time), last_byte_time: Some(time), bytes: 1_000 }
}

pub const FAILED: Report = Report { outcome: Outcome::Failure, header_time: None, last_byte_time: None, bytes: 0 };

/// The key of the i-th client: four bytes, so that it is an address as well.
pub fn key(i: u64) -> [u8; 4] {
    let mixed = i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ((mixed ^ mixed >> 29) as u32).to_be_bytes()
}

/// Sends requests one after the other, `concurrency` of them in flight, and counts them by server. Requests that find
/// nobody are not counted.
pub struct Traffic {
    pub now: Nanos,
    /// Between two requests.
    pub gap: Nanos,
    /// How many are in flight at a time, the new one included.
    pub concurrency: usize,
    pub sent: u64,
    /// With the time that each was sent at.
    flying: VecDeque<(Member, Nanos)>,
}

impl Traffic {
    pub fn new(concurrency: usize) -> Traffic {
        Traffic { now: 1_000 * SECOND, gap: MS, concurrency, sent: 0, flying: VecDeque::new() }
    }

    pub fn send(&mut self, subject: &Subject, driver: &mut Driver, requests: u64) -> Vec<u64> {
        let mut counts = vec![0; driver.fleet().len()];
        for _ in 0..requests {
            self.now += self.gap;
            self.sent += 1;
            if let Ok(member) = (subject.pick)(driver, self.now, &key(self.sent), &mut Tried::default()) {
                counts[member.0 as usize] += 1;
                self.flying.push_back((member, self.now));
            }
            while self.flying.len() >= self.concurrency {
                let Some((member, sent)) = self.flying.pop_front() else { break };
                driver.complete(self.now, member, &success(self.now - sent));
            }
        }
        counts
    }
}

/// Runs a check on the library, in all forms.
pub fn every_form(check: impl Fn(&Subject, &Spec) -> Verdict) {
    let wrong: Vec<String> = forms()
        .iter()
        .filter_map(|spec| check(&LIBRARY, spec).err().map(|message| format!("{spec:?}: {message}")))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
