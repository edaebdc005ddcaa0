//! IP hash: a client's address decides, so that a client keeps its server.
//!
//! The first three octets of an IPv4 address, or all 16 bytes of an IPv6 address, are folded as `h = (h * 113 + byte) %
//! 6271` from 89; `h` modulo the sum of weights selects a server. If it is closed, the bytes are folded again, up to 20
//! times; then round robin chooses.
//! Source: NGINX, with the same choice for every address. Only 6271 values exist, so shares of large fleets are uneven;
//! `hash` has no such limit.
//! Cost: O(log n) for different weights, O(1) for equal ones.
//! If no server is eligible, the driver goes to the backups.

use std::sync::Arc;

use super::DRAWS;
use crate::policy::{Basis, Context};
use crate::spec::{Entry, Host, Key, Share, Times};
use crate::structures::fallback::{Search, with_turns};
use crate::structures::round_robin::RoundRobin;
use crate::structures::wheel::Wheel;

pub(crate) const ENTRY: Entry = Entry {
    name: "ip_hash",
    aliases: &[],
    summary: "the client's address chooses the server",
    what: "\
        A client always goes to the same server as long as the list of servers does not change. The first three \
        octets of an IPv4 address, or the whole IPv6 address, are hashed to one of 6271 values. The value selects a \
        server, in proportion to the weights. If that server is closed, the value is hashed again, up to 20 times; \
        then round robin chooses.\n\n\
        During slow start a server gets a growing part of its clients, always the same ones. Backup servers are not \
        allowed.",
    when: "\
        Use it for sessions in the memory of one server when clients do not accept cookies, and where the choices \
        have to be NGINX's.",
    when_not: "\
        Do not use it if many clients come from one network or one address (NAT, a proxy): they all go to one \
        server. Do not use it for many servers: with 6271 values the shares are uneven; use hashed_ip. Do not use it \
        if servers are added or removed often: most clients change their server; use hashed_ip or last_server. It \
        does not react to load: a slow server keeps its clients.",
    nginx: Some("ip_hash"),
    parameters: &[],
    source: "NGINX",
    cost: "O(log n); O(1) for equal weights",
    linear: false,
    times: Times::Never,
    host: Host::Any,
    share: Share::Key,
    key: Key::ClientAddress,
    needs_key: false,
    strict: None,
    backup: false,
    build: |_, tier| {
        let wheel = Arc::new(Wheel::new(tier));
        with_turns(tier, move |_, _| IpHash { wheel: wheel.clone() })
    },
};

struct IpHash {
    wheel: Arc<Wheel>,
}

impl Search for IpHash {
    fn find(&mut self, cx: &mut Context<'_>, _: &mut RoundRobin) -> Option<usize> {
        if cx.tier.len() < 2 {
            return None;
        }
        let address = match cx.key.len() {
            4 => &cx.key[..3],
            16 => cx.key,
            _ => &[0; 3],
        };
        if cx.tried.progress.rounds == 0 {
            cx.tried.progress.hash = 89;
        }
        while cx.tried.progress.tries <= DRAWS {
            // The remainder of six steps at once is that of each in turn, and 6271 * 113^6 is below 2^64.
            let step = |h: u64, byte: &u8| h * 113 + u64::from(*byte);
            let fold = |h: u32, bytes: &[u8]| (bytes.iter().fold(u64::from(h), step) % 6271) as u32;
            let hash = address.chunks(6).fold(cx.tried.progress.hash, fold);
            cx.tried.progress.hash = hash;
            cx.tried.progress.rounds += 1;
            let index = self.wheel.at(hash)?;
            if cx.admits(index) {
                return Some(index);
            }
            cx.tried.progress.tries += 1;
        }
        None
    }

    fn basis(&self) -> Basis {
        Basis::Key
    }
}
