//! What a resolver has asked and been answered.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::message::Kind;

/// Counters that any thread may read.
#[derive(Debug, Default)]
pub struct Statistics {
    names: AtomicU64,
    services: AtomicU64,
    codes: [AtomicU64; 6],
    timed_out: AtomicU64,
    unknown: AtomicU64,
}

/// What was counted so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Questions for addresses.
    pub names: u64,
    /// Questions for servers of a service.
    pub services: u64,
    /// Answers by response code: NOERROR, FORMERR, SERVFAIL, NXDOMAIN, NOTIMP, REFUSED.
    pub codes: [u64; 6],
    /// Questions without an answer in time.
    pub timed_out: u64,
    /// Answers with another code.
    pub unknown: u64,
}

impl Statistics {
    pub(crate) fn asked(&self, kind: Kind) {
        let counter = if kind == Kind::Service { &self.services } else { &self.names };
        counter.fetch_add(1, Relaxed);
    }

    pub(crate) fn answered(&self, code: u16) {
        self.codes.get(usize::from(code)).unwrap_or(&self.unknown).fetch_add(1, Relaxed);
    }

    pub(crate) fn timed_out(&self) {
        self.timed_out.fetch_add(1, Relaxed);
    }

    /// What was counted so far.
    pub fn counts(&self) -> Counts {
        let of = |counter: &AtomicU64| counter.load(Relaxed);
        Counts {
            names: of(&self.names),
            services: of(&self.services),
            codes: std::array::from_fn(|code| of(&self.codes[code])),
            timed_out: of(&self.timed_out),
            unknown: of(&self.unknown),
        }
    }
}
