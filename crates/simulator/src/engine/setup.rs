//! A scenario made ready: one algorithm at one load.

use balanza_balancing::registry::Spec;
use balanza_balancing::{Nanos, ServerSpec};

use super::guards::Guards;
use super::server::{Bucket, Kind};
use crate::model::arrivals::Arrivals;
use crate::model::distribution::Distribution;
use crate::model::keys::Keys;
use crate::scenario::{Action, Dispatchers, Servers, View};

/// All that replications share.
#[derive(Clone)]
pub(crate) struct Setup {
    pub spec: Spec,
    pub guards: Guards,
    pub seed: u64,
    pub duration: Nanos,
    pub warmup: Nanos,
    pub arrivals: Arrivals,
    pub work: Distribution,
    pub think: Distribution,
    pub keys: Keys,
    pub groups: Vec<Servers>,
    /// Of the groups, in their order.
    pub kinds: Vec<Kind>,
    pub dispatchers: Dispatchers,
    pub delay: Nanos,
    pub client_rtt: Nanos,
    /// 0 is none.
    pub timeout: Nanos,
    pub retries: u32,
    pub bytes: u64,
    /// Whether answers with an error status go to the client; otherwise they are failed attempts.
    pub errors_pass: bool,
    /// Between two reports of load; 0 for algorithms that do not use them.
    pub reports: Nanos,
    pub script: Vec<Scripted>,
}

/// An event of the scenario.
#[derive(Clone, Debug)]
pub(crate) struct Scripted {
    pub at: Nanos,
    pub action: Action,
    pub servers: Vec<u32>,
    pub value: Option<f64>,
}

/// Random failures of a server; means in nanoseconds.
pub(crate) struct Failing {
    pub between: f64,
    pub lasts: f64,
    pub action: Action,
}

impl Setup {
    /// What a group's servers are.
    pub fn kind(group: &Servers) -> Kind {
        let bucket = |c: crate::scenario::Credits| Bucket {
            initial: c.initial.nanos() as f64,
            limit: c.limit.nanos() as f64,
            baseline: c.baseline,
        };
        Kind {
            concurrency: group.concurrency,
            discipline: group.discipline,
            queue_limit: group.queue_limit.unwrap_or(u32::MAX),
            overflow: group.overflow,
            error_rate: group.error_rate,
            drops_abandoned: group.drops_abandoned,
            credits: group.credits.map(bucket),
            speed: group.speed,
        }
    }

    /// Each server's kind and its number.
    pub fn servers(&self) -> impl Iterator<Item = (&Kind, u16)> {
        let of_group = |(group, number): (&Servers, u16)| (0..group.count).map(move |_| number);
        self.groups.iter().zip(0..).flat_map(of_group).map(|number| (&self.kinds[usize::from(number)], number))
    }

    /// The servers as the balancer is told of them.
    pub fn specs(&self) -> Vec<ServerSpec> {
        let of_group = |group: &'_ Servers| {
            let spec = ServerSpec {
                weight: group.weight,
                max_conns: group.max_conns,
                max_fails: group.max_fails,
                fail_timeout: group.fail_timeout.nanos(),
                slow_start: group.slow_start.nanos(),
                priority: group.priority,
                backup: group.backup,
                ..ServerSpec::new("")
            };
            (0..group.count).map(move |_| spec.clone())
        };
        let named = |(i, spec)| ServerSpec { name: format!("s{i}").into(), ..spec };
        self.groups.iter().flat_map(of_group).enumerate().map(named).collect()
    }

    pub fn board(&self) -> bool {
        self.dispatchers.view == View::Board
    }

    /// Work a second that a server of this kind can do.
    pub fn capacity_of(&self, kind: u16) -> f64 {
        let kind = &self.kinds[usize::from(kind)];
        kind.speed * f64::from(kind.concurrency)
    }

    pub fn failing(&self, kind: u16) -> Option<Failing> {
        let group = &self.groups[usize::from(kind)];
        let between = group.mtbf?.nanos() as f64;
        Some(Failing { between, lasts: group.mttr.nanos() as f64, action: group.failure })
    }
}
