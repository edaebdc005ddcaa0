//! One server of a fleet: its configuration, and what a choice reads of it.

use std::sync::Arc;

use crate::Nanos;
use crate::server_state::{CLOSED, DOWN, EJECTED, LIMITED, MEASURED, ServerState};

/// A server, as an index into the list that the fleet was built from.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Member(pub u32);

/// A server as configured.
#[derive(Clone, Debug)]
pub struct ServerSpec {
    /// The address as written, for instance `app1:80` or `unix:/run/app`. Consistent hashing places the server by it;
    /// servers of one name share a place by round robin.
    pub name: Box<str>,
    /// Share of the requests; 0 takes no new requests.
    pub weight: u32,
    /// Requests in flight at most; 0 is unlimited.
    pub max_conns: u32,
    /// From this number of requests in flight on, only requests that belong to the server are taken
    /// ([`crate::Driver::claim`]); 0 is `max_conns`.
    pub soft_max_conns: u32,
    /// Failures within `fail_timeout` after which the server gets no requests for that time; 0 is never.
    pub max_fails: u32,
    /// See `max_fails`.
    pub fail_timeout: Nanos,
    /// The time in which a server that returns reaches its full weight; 0 is at once.
    pub slow_start: Nanos,
    /// Servers with a greater number are used when no server with a smaller one can be used.
    pub priority: u32,
    /// Used only when no other server can be used, after all priorities.
    pub backup: bool,
    /// Takes no new requests except those that belong to it.
    pub draining: bool,
    /// Never used.
    pub down: bool,
}

impl ServerSpec {
    /// A server with NGINX's defaults: weight 1, no limit, `max_fails=1 fail_timeout=10s`.
    pub fn new(name: &str) -> ServerSpec {
        ServerSpec {
            name: name.into(),
            weight: 1,
            max_conns: 0,
            soft_max_conns: 0,
            max_fails: 1,
            fail_timeout: 10_000_000_000,
            slow_start: 0,
            priority: 0,
            backup: false,
            draining: false,
            down: false,
        }
    }
}

/// Why a server does not take a request that has to go there.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refused {
    /// Down, by the configuration or by an operator.
    #[error("down")]
    Down,
    /// Takes no new requests: draining, or without weight.
    #[error("draining")]
    Draining,
    /// Closed by failures.
    #[error("failed")]
    Failed,
    /// The server or its group is at its limit of requests in flight.
    #[error("full")]
    Full,
    /// The request has tried it.
    #[error("tried")]
    Tried,
}

/// The data that a pick reads of one server, besides its state: one cache line.
#[repr(align(64))]
pub(crate) struct Slot {
    pub state: Arc<ServerState>,
    /// Where the algorithm keeps what it knows of the server: the same state, or that of a shadow.
    pub kept: Arc<ServerState>,
    pub member: Member,
    pub weight: u32,
    /// The configured limit for requests that the algorithm places.
    placed_max: u32,
    soft_max_conns: u32,
    /// That for requests that belong to the server.
    max_conns: u32,
    /// 0 as well when failures do not close the server.
    pub max_fails: u32,
    /// Takes no new requests: down, draining, or without weight.
    pub closed: bool,
    down: bool,
    /// Of a shadow, which takes no slots.
    is_shadow: bool,
    pub fail_timeout: Nanos,
    pub slow_start: Nanos,
}

impl Slot {
    /// `kept` is where a shadow keeps what it knows of the server; `None` if this is no shadow's.
    pub fn new(
        member: Member,
        server: &ServerSpec,
        state: Arc<ServerState>,
        kept: Option<Arc<ServerState>>,
        single: bool,
    ) -> Slot {
        Slot {
            is_shadow: kept.is_some(),
            kept: kept.unwrap_or_else(|| state.clone()),
            state,
            member,
            weight: server.weight,
            placed_max: tighter(server.soft_max_conns, server.max_conns),
            soft_max_conns: server.soft_max_conns,
            max_conns: server.max_conns,
            max_fails: if single { 0 } else { server.max_fails },
            closed: server.down || server.draining || server.weight == 0,
            down: server.down,
            fail_timeout: server.fail_timeout,
            slow_start: server.slow_start,
        }
    }

    /// The limit of requests in flight for those that the algorithm places; 0 is none.
    #[inline]
    pub fn limit(&self) -> u32 {
        self.limit_in(self.state.flags())
    }

    /// Takes a slot within the limit and another one; 0 is none. A shadow only looks whether there is one.
    #[inline]
    pub fn acquire_within(&self, limit: u32) -> bool {
        let limit = tighter(self.limit(), limit);
        if self.is_shadow {
            return limit == 0 || self.state.in_flight() < limit;
        }
        self.state.acquire(limit)
    }

    #[inline]
    pub fn limit_in(&self, flags: u32) -> u32 {
        if flags & (LIMITED | MEASURED) == 0 {
            return self.placed_max;
        }
        tighter(self.soft_max_conns, self.hard_limit())
    }

    /// The limit for requests that belong to the server; 0 is none.
    fn hard_limit(&self) -> u32 {
        let configured = self.state.max_conns_override().unwrap_or(self.max_conns);
        tighter(configured, self.state.ceiling().unwrap_or(0))
    }

    #[inline]
    pub fn failed(&self, now: Nanos) -> bool {
        self.max_fails != 0 && self.state.fails() >= self.max_fails && now < self.opens_at()
    }

    /// When failures that have closed the server let it open again. NGINX counts whole seconds: without a timeout the server
    /// is closed until the second has ended.
    #[inline]
    pub fn opens_at(&self) -> Nanos {
        const SECOND: Nanos = 1_000_000_000;
        let checked = self.state.checked();
        match self.fail_timeout {
            0 => (checked / SECOND).saturating_add(1).saturating_mul(SECOND),
            timeout => checked.saturating_add(timeout).saturating_add(1),
        }
    }

    /// Takes a slot for a request that has to go to this server, or says why it cannot. A `returning` request belongs
    /// to the server, which then may be draining or above its soft limit.
    pub fn claim(&self, now: Nanos, returning: bool) -> Result<(), Refused> {
        self.claim_despite(0, now, returning)
    }

    /// The same for a probe of an ejected server.
    pub fn claim_probe(&self, now: Nanos) -> Result<(), Refused> {
        self.claim_despite(EJECTED, now, false)
    }

    fn claim_despite(&self, ignored: u32, now: Nanos, returning: bool) -> Result<(), Refused> {
        let flags = self.state.flags() & !ignored;
        let closed = self.closed || flags & CLOSED != 0;
        let refused = if self.down || flags & DOWN != 0 {
            Refused::Down
        } else if closed && !returning {
            Refused::Draining
        } else if self.failed(now) {
            Refused::Failed
        } else if !self.state.acquire(if returning { self.hard_limit() } else { self.limit() }) {
            Refused::Full
        } else {
            return Ok(());
        };
        Err(refused)
    }

    /// A success has ended its failures: if they had closed it, slow start begins.
    pub fn revived(&self, now: Nanos, fails: u32) {
        if self.slow_start != 0 && self.max_fails != 0 && fails >= self.max_fails {
            self.state.warm_up(now);
        }
    }
}

/// The tighter of two limits, where 0 is none.
fn tighter(a: u32, b: u32) -> u32 {
    if a == 0 || b == 0 { a.max(b) } else { a.min(b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_one_cache_line() {
        assert_eq!((size_of::<Slot>(), align_of::<Slot>()), (64, 64));
    }
}
